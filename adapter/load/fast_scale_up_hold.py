"""With a fast scale-up the count may be ahead of the samples, and of the HPA: when it must not fall yet."""

from adapter.load.assessment import Assessment
from adapter.load.spec import Bounds

HPA_SYNC_SECONDS = 20.0
"""So long after a change that was not its own an HPA has synced, which it usually does every 15 s.

What it was never asked for at a sync, its stabilization does not keep.
"""
CLOCK_SKEW_SECONDS = 5.0
"""By so much the HPA's time of a scaling may be before the moment in which it was seen."""


def held_by_fast_scale_up(assessment: Assessment, current: int, bounds: Bounds) -> bool:
    """Whether the count rose after the samples were taken, where somebody may have known newer ones.

    A fast scale-up follows the companion's samples; this process may not have them yet, and its pods may not exist yet.
    And what it raised stays until the HPA was asked for it once, so that a spike between two syncs is stabilized like
    any other. A fall needs no such rule: the load of the pods that left counts (`departures`).
    """
    memory, sampled_at = assessment.memory, assessment.sampled_at
    if not assessment.policy.fast_scale_up:
        return False
    if memory.last_replicas is not None and memory.last_replicas < current:
        return True
    if memory.last_rise is None or sampled_at is None:
        return False
    by_hpa = bounds.last_scale is not None and bounds.last_scale >= memory.last_rise - CLOCK_SKEW_SECONDS
    return sampled_at < memory.last_rise + (0.0 if by_hpa else HPA_SYNC_SECONDS)
