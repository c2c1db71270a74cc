"""The range of counts that the load allows: the lower bound of what is known, the upper bound of what is possible.

**Lower bound**: what the known load needs at the high watermark. Pods without a sample carry nothing. Two readings of
the doubtful pods, of which the larger wins: all of them serve; or only those that show more than the high watermark do,
since who carries that serves.

**Upper bound**: what the possible load justifies at the low watermark. It is one sum over every pod that may carry
load: a pod without a sample counts as full, one that may be out as one pod at least, and one that left since the
samples began with its last sample. So whatever is missing, late, doubtful or partial can keep a count, and never change
it. The rules D1 to D5 are those of the decision's specification (docs/decision.md).
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import HeldBy, Reading, Upper
from adapter.load.pod_samples import PodSample
from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Capacity, Metric, Policy, Strategy
from adapter.load.states import PodGroups

SATURATED = Fraction(97, 100)
"""Pods that use this much of their limits are throttled at times, so they may need more than they show."""


class Band:
    """The watermarks of one metric (nano-units, exact) with the tolerance around them. None: no such watermark.

    Usage is above the band beyond `beyond` = high · (1 + tolerance), and below it under `under` = low · (1 -
    tolerance): the tolerance decides whether to act, never how many. A target is both watermarks. `total`: the metric
    is a service total, of which 0 is accepted by default. `saturation`: the factor by which the load of throttled pods
    is taken for more: a limit caps CPU itself. `unit`: usage divided by capacities is in parts of 1/`unit`.
    """

    def __init__(self, policy: Policy, metric: Metric, *, total: bool) -> None:
        (self.high, self.low), (self.beyond, self.under) = metric.watermarks, policy.edges_of(metric)
        self.is_absolute = policy.algorithm is Algorithm.ABSOLUTE
        self.accepts_zero = total if policy.accept_zero_usage is None else policy.accept_zero_usage
        self.rounds_up = policy.strategy is not Strategy.WATERMARK
        is_throttled = metric.is_cpu and metric.relative_to is not Capacity.REQUEST
        self.saturation = policy.saturation_factor if is_throttled and policy.saturation_factor > 1 else None
        self.unit = 1 if metric.relative_to is None or total else NANO
        self.step = policy.step if policy.strategy is Strategy.STEP else None

    def is_above(self, usage: Fraction | None) -> bool:
        """Whether usage is above the band."""
        return usage is not None and self.beyond is not None and usage > self.beyond

    def exceeds(self, sample: PodSample) -> bool:
        """Whether the pod shows more than the high watermark: then it serves."""
        usage, sizes = sample.usage, sample.sizes
        if self.high is None or usage is None or sizes is None:
            return False
        return usage * self.unit > self.high * sizes.larger


class Sums(NamedTuple):
    """Sums over the pods of a reading: `usage` (nano-units) of the `sampled` of its `pods`, and what divides it.

    `limit` is the sum of the limits that cap the usage; 0 unless each pod has one.
    """

    pods: int
    sampled: int
    usage: int
    size: Fraction | int
    limit: int

    def average(self, band: Band) -> Fraction | None:
        """The usage that the watermarks are for, with the pods without a sample at 0; None without any sample."""
        if band.is_absolute:
            return Fraction(self.usage) if self.sampled else None
        return Fraction(self.usage * band.unit) / self.size if self.sampled else None


def sums_of(samples: Iterable[PodSample]) -> Sums:
    """The sums over these pods, for the lower bound. A pod without a capacity has the average one of the others."""
    found = list(samples)
    used = [sample.usage for sample in found if sample.usage is not None]
    sizes = [sample.sizes.larger for sample in found if sample.sizes is not None]
    limits = [sample.limit for sample in found]
    size = sum(sizes) if len(sizes) == len(found) else Fraction(sum(sizes) * len(found), len(sizes) or 1)
    return Sums(len(found), len(used), sum(used), size, sum(limits) if all(limits) else 0)


def reading_of(sums: Sums, band: Band, replaceable: int, shown: Sequence[Fraction] | None = None) -> Reading:
    """What these pods need at the high watermark; nothing where they are not above it.

    Saturated pods are above it whatever they use, and may need more than they show. With strategy Step one of the
    usages `shown` by serving pods is enough (None: only the average is), and `step.up` pods more are needed.
    """
    usage = sums.average(band)
    if usage is None or band.high is None:
        return Reading(sums.pods, usage, None, replaceable)
    peak, needed, saturation = usage if shown is None else max(shown, default=Fraction(0)), None, None
    load, mark = (sums.sampled if band.is_absolute else sums.pods) * usage, band.high
    if band.saturation is not None and sums.limit and sums.usage >= SATURATED * sums.limit:
        saturation = Fraction(sums.usage, sums.limit)
        at_most = Fraction(sums.limit) if band.is_absolute else Fraction(sums.limit * band.unit) / sums.size
        load, mark = band.saturation * load, min(mark, at_most)
    if band.is_above(peak) or saturation is not None:
        needed = math.ceil(load / mark) + (band.step.up if band.step is not None else 0)
    extreme = peak if shown is not None and band.is_above(peak) else None
    return Reading(sums.pods, usage, needed, replaceable, saturation, extreme)


class Loads(NamedTuple):
    """What `pods` of a target may carry (nano-units), by the rules D1 to D5; `size` divides it for an average.

    `known`: serving pods with a sample (D1), doubtful ones at what they show, pulled-out ones at one pod at least (D3,
    D4). `doubt`: what counts besides, so that each doubtful pod is one pod at least (D3). `filled`: of pods without a
    sample, and of young ones (D2); `gaps` counts them. `departed`: of pods that left or turned out since the samples
    began (D5, D3). `left` counts those that left. `bounds`: what each serving pod may use, for strategy Step.
    """

    pods: int
    size: Fraction | int
    known: Fraction | int
    doubt: Fraction | int
    filled: Fraction | int = 0
    departed: Fraction | int = 0
    gaps: int = 0
    left: int = 0
    bounds: Sequence[Fraction] = ()


def upper_of(loads: Loads, band: Band, groups: PodGroups) -> Upper:
    """The largest count that this load justifies at the low watermark."""
    known = _justified(loads.known, loads, band, groups)
    if known is None:
        return Upper()
    parts = ((loads.doubt, HeldBy.DOUBT), (loads.filled, HeldBy.MISSING), (loads.departed, HeldBy.DEPARTED))
    largest, cause = max(parts, key=lambda part: part[0])
    if loads.gaps and (band.is_absolute or band.high is None):
        return Upper(known, None, HeldBy.MISSING)
    if groups.doubtful and band.is_absolute:
        return Upper(known, None, HeldBy.DOUBT)
    count = known if not largest else _justified(loads.known + sum(part for part, _ in parts), loads, band, groups)
    return Upper(known, count, cause)


def _justified(load: Fraction | int, loads: Loads, band: Band, groups: PodGroups) -> int | None:
    """The count that a load justifies; None where it is not below the band."""
    if band.low is None or band.under is None or not loads.pods:
        return None
    usage = Fraction(load if band.is_absolute else load * band.unit / Fraction(loads.size))
    if usage >= band.under:
        return None
    # For a sum over pods, their number is a factor of the need: those that left count too.
    needed = (len(groups.serving) + loads.left if band.is_absolute else loads.pods) * usage / band.low
    kept = groups.kept if band.is_absolute else 0
    return max(1 + groups.kept, kept + (math.ceil(needed) if band.rounds_up else math.floor(needed)))


def step_down(loads: Loads, band: Band, groups: PodGroups, *, has_changed: bool) -> Upper:
    """The step down, where one serving pod (or the average) is below its limit and the others can carry the load.

    It is only taken with a whole sample of each pod, and where nothing has changed since the samples began.
    """
    bounds = loads.bounds
    if band.under is None or band.beyond is None or band.step is None or not bounds:
        return Upper()
    average = sum(bounds) / len(bounds)
    if (average if band.step.trigger == "Average" else min(bounds)) >= band.under:
        return Upper()
    if loads.gaps or groups.doubtful or has_changed:
        cause = HeldBy.MISSING if loads.gaps else HeldBy.DOUBT if groups.doubtful else HeldBy.DEPARTED
        return Upper(known=0, cause=cause)
    return Upper(spare=len(groups.serving) - max(1, math.ceil(len(groups.serving) * average / band.beyond)))
