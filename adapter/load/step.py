"""Strategy Step (step tolerance): add at once what the target needs and a few more, remove a few at a time.

One pod beyond a limit is enough to act (or, with trigger Average, the average must be), up before down. A step down is
only taken where the pods that are left carry the load within the limit, with a whole sample of each pod, and where
nothing has changed since the samples began.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from adapter.load.assessment import HeldBy, Reading, StepDown, Upper
from adapter.load.bounds import Band, Loads, Sums, reading_of
from adapter.load.pod_samples import PodSample
from adapter.load.spec import Step, Trigger


def usages_of(serving: Sequence[PodSample], band: Band) -> tuple[list[Fraction], list[Fraction]]:
    """The usages of the serving pods with a sample that are compared with the limit above, and with that below."""
    sized = [(sample, sample.sizes) for sample in serving if sample.sizes is not None]
    shown = [Fraction(one.usage * band.unit, sizes.larger) for one, sizes in sized if one.usage is not None]
    return shown, [Fraction(one.bound * band.unit, sizes.smaller) for one, sizes in sized if one.bound is not None]


def reading(sums: Sums, shown: Sequence[Fraction] | None, band: Band, step: Step, replaceable: int) -> Reading:
    """What these pods need at the target, which is both watermarks of the band, and `step.up` pods more.

    One of the usages `shown` by serving pods is enough to act. For a service total (None), and with trigger Average,
    the average is.
    """
    found = reading_of(sums, band, replaceable)
    if found.usage is None or band.beyond is None or band.high is None:
        return found
    by_one = step.trigger is Trigger.ANY_POD and shown is not None
    peak = max(shown or (), default=Fraction(0)) if by_one else found.usage
    if peak <= band.beyond and found.saturation is None:
        return found._replace(needed=None)
    needed = math.ceil(sums.pods * found.usage / band.high) if found.needed is None else found.needed
    return found._replace(needed=needed + step.up, extreme=peak if by_one and peak > band.beyond else None)


def upper(bounds: Sequence[Fraction], loads: Loads, band: Band, step: Step, *, has_changed: bool) -> Upper:
    """The step down, where one serving pod (or the average) is below its limit and the others can carry the load.

    `bounds`: what the serving pods may use at most.
    """
    if band.under is None or band.beyond is None or not bounds:
        return Upper()
    average = sum(bounds) / len(bounds)
    if (average if step.trigger is Trigger.AVERAGE else min(bounds)) >= band.under:
        return Upper()
    if loads.gaps or loads.doubtful or has_changed:
        cause = HeldBy.MISSING if loads.gaps else HeldBy.DOUBT if loads.doubtful else HeldBy.DEPARTED
        return Upper(stages=((None, 0), (cause, None)))
    fewest = max(1, math.ceil(loads.serving * average / band.beyond))
    return Upper(step=StepDown(step.down, step.min_pods, loads.serving, fewest))
