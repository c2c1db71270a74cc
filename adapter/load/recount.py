"""The recount: where usage is beyond a limit, gaps are filled against the direction before a strategy may act.

On the way up pods without a sample carry no load; on the way down they, and pods that may serve soon, carry a full
load, samples of partial windows count with their bounds, and the load of departed pods is added. So a gap can hold the
count, but never change it.
"""

import math
from collections.abc import Callable
from fractions import Fraction

from adapter.load.assessment import HeldBy, Scenario, Verdict
from adapter.load.spec import Average
from adapter.load.totals import Band, Totals

HOLD = Scenario(Verdict.INSIDE)
ABOVE_BUT_MISSING = Scenario(Verdict.ABOVE, held=HeldBy.MISSING)
BELOW_BUT_MISSING = Scenario(Verdict.BELOW, held=HeldBy.MISSING)
BELOW_BUT_DEPARTED = Scenario(Verdict.BELOW, held=HeldBy.DEPARTED)


def compare(totals: Totals, band: Band, to_fewer: Callable[[Fraction], int]) -> Scenario | None:
    """Compare usage with the band; totals with at least one sample. None: inside the band.

    Above the band, the pods that carry the load at the high limit are needed. Saturated pods are above it whatever they
    use, and may need more than they show. Below it, those that carry it at the low limit, made a whole number by
    `to_fewer`.
    """
    if totals.usage == 0:
        if not band.tolerate_zero:
            return HOLD
        if band.low is not None and totals.total and not totals.young and not totals.is_blind:
            return Scenario(Verdict.BELOW, needed=1, zero=True)
    usage, beyond, under = totals.effective_usage(band.average), band.high_plus, band.low_minus
    saturated = band.saturation is not None and totals.is_saturated
    if beyond is not None and (saturated or usage > beyond):
        n, usage = totals.n, Fraction(totals.usage)
        if band.average is Average.PER_POD:
            n, usage = totals.counted, Fraction(totals.usage * totals.unit, totals.weight + totals.missing_weight)
            if usage <= beyond and not (saturated and totals.stays_saturated):
                return ABOVE_BUT_MISSING
        return above(totals, band, n * usage, saturated=saturated)
    return _below(totals, band, under, to_fewer) if under is not None and usage < under else None


def above(totals: Totals, band: Band, load: Fraction, *, saturated: bool) -> Scenario:
    """The pods that carry this load (n·usage) at the high limit; saturated ones may need more than they show."""
    assert band.high is not None
    if not saturated:
        return Scenario(Verdict.ABOVE, needed=math.ceil(load / band.high))
    assert band.saturation is not None
    total = band.average is Average.TOTAL
    at_most = Fraction(totals.limit) if total else Fraction(totals.limit * totals.unit, totals.weight)
    needed = math.ceil(band.saturation * load / min(band.high, at_most))
    return Scenario(Verdict.ABOVE, needed=needed, saturation=totals.saturation)


def _below(totals: Totals, band: Band, under: Fraction, to_pods: Callable[[Fraction], int]) -> Scenario:
    assert band.low is not None
    gaps = totals.missing + totals.young
    if totals.is_blind or ((gaps or totals.unbounded) and (band.average is Average.TOTAL or band.high is None)):
        return BELOW_BUT_MISSING
    share = Fraction(1)
    if band.average is Average.PER_POD:
        share = Fraction(totals.unit, totals.weight + totals.missing_weight + totals.young_weight)
    filled = share * (totals.bound + totals.unbounded_fill + totals.missing_fill + totals.young_fill)
    if filled >= under:
        return BELOW_BUT_MISSING
    filled += share * totals.departed_load()
    if totals.departed.is_unknown or filled >= under:
        return BELOW_BUT_DEPARTED
    needed = max(1, to_pods((pods_measured(totals, band) + gaps) * filled / band.low))
    return Scenario(Verdict.BELOW, needed=needed)


def pods_measured(totals: Totals, band: Band) -> int:
    """The number of pods that the samples were taken of.

    For a sum over pods, the number of pods is a factor of the need: without the departed ones the same samples would
    ask for fewer each time. A number for the whole service has their load in it already.
    """
    is_sum_of_pods = band.average is Average.TOTAL and not totals.total
    return totals.n + (len(totals.departed) if is_sum_of_pods else 0)
