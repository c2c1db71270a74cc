"""Strategy Step (step tolerance): add at once what the target needs and a few more, remove a few at a time.

One pod beyond a limit is enough to act (or, with trigger Average, the average must be), up before down. A step down is
only taken where the pods that are left carry the load within the limit, with a whole sample of each pod, and where
nothing has changed since the samples began.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from adapter.load.assessment import HeldBy, Reading, StepDown, Upper
from adapter.load.bounds import Band, Loads, reading_of, sums_of
from adapter.load.pod_samples import PodSample
from adapter.load.spec import Step, Trigger


def reading(
    samples: Sequence[PodSample], serving: Sequence[PodSample], band: Band, step: Step, replaceable: int
) -> Reading:
    """What these pods need at the target, which is both watermarks of the band, and `step.up` pods more.

    One of the `serving` pods among them is enough to act, or their average must be beyond the limit.
    """
    sums = sums_of(samples)
    found = reading_of(sums, band, replaceable)
    if found.usage is None or band.beyond is None or band.high is None:
        return found
    shown = [
        Fraction(s.usage * band.unit, s.sizes.larger) for s in serving if s.usage is not None and s.sizes is not None
    ]
    most = max(shown, default=Fraction(0))
    extreme = most if most > band.beyond and step.trigger is Trigger.ANY_POD else None
    is_above = extreme is not None or found.saturation is not None
    if not is_above and (found.needed is None or step.trigger is Trigger.ANY_POD):
        return found._replace(needed=None)
    needed = math.ceil(sums.pods * found.usage / band.high) if found.needed is None else found.needed
    return found._replace(needed=needed + step.up, extreme=extreme)


def upper(serving: Sequence[PodSample], loads: Loads, band: Band, step: Step, *, has_changed: bool) -> Upper:
    """The step down, where one serving pod (or the average) is below its limit and the others can carry the load."""
    if band.under is None or band.beyond is None or not loads.serving:
        return Upper()
    usages = [
        Fraction(s.bound * band.unit, s.sizes.smaller) for s in serving if s.bound is not None and s.sizes is not None
    ]
    if not usages:
        return Upper()
    average = sum(usages) / len(usages)
    if (average if step.trigger is Trigger.AVERAGE else min(usages)) >= band.under:
        return Upper()
    if loads.gaps or loads.doubtful or has_changed:
        cause = HeldBy.MISSING if loads.gaps else HeldBy.DOUBT if loads.doubtful else HeldBy.DEPARTED
        return Upper(stages=((None, 0), (cause, None)))
    fewest = max(1, math.ceil(len(usages) * average / band.beyond))
    return Upper(step=StepDown(step.down, step.min_pods, loads.serving, fewest))


def upper_of_total(loads: Loads, band: Band, step: Step, *, has_changed: bool) -> Upper:
    """The step down for a number for the whole service, which the serving pods share."""
    if band.under is None or band.beyond is None or not loads.serving:
        return Upper()
    average = Fraction(loads.known) / loads.serving
    if average >= band.under:
        return Upper()
    if loads.doubtful or has_changed:
        return Upper(stages=((None, 0), (HeldBy.DOUBT if loads.doubtful else HeldBy.DEPARTED, None)))
    fewest = max(1, math.ceil(Fraction(loads.known) / band.beyond))
    return Upper(step=StepDown(step.down, step.min_pods, loads.serving, fewest))
