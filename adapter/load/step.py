"""Strategy Step (step tolerance): add at once what the target needs and a few more, remove a few at a time.

One pod beyond a limit is enough to act (or, with trigger Average, the average must be), up before down. A step down is
only taken where the pods that are left carry the load within the limit, never with a gap in the samples, and never
twice on the same samples.
"""

from fractions import Fraction

from adapter.load.assessment import Shrink, Verdict
from adapter.load.recount import (
    ABOVE_BUT_MISSING,
    BELOW_BUT_DEPARTED,
    BELOW_BUT_MISSING,
    HOLD,
    Recommendation,
    rounded_up,
)
from adapter.load.spec import Step
from adapter.load.totals import Band, Edge, PodLoad, Rational, Totals


def recommend(totals: Totals, band: Band) -> Recommendation:
    """Apply the target, which is both watermarks of the band, to totals with at least one sample."""
    step, beyond, under = band.step, band.high_plus, band.low_minus
    assert step is not None
    assert beyond is not None
    assert under is not None
    if totals.usage == 0 and not band.tolerate_zero:
        return HOLD
    average = totals.usage, totals.weight
    most, least = totals.extremes or (average, average)
    if _against(most, beyond, totals.unit) > 0:
        return _above(totals, band, step, beyond)
    if _against(least, under, totals.unit) < 0:
        return _below(totals, step, beyond, under)
    return HOLD


def _against(load: tuple[int, Rational], limit: Edge, unit: int) -> Rational:
    """Positive where the usage for this weight is above the limit, negative where it is below."""
    usage, weight = load
    return usage * unit * limit.denominator - limit.numerator * weight


def _above(totals: Totals, band: Band, step: Step, beyond: Edge) -> Recommendation:
    target = band.high_edge
    assert target is not None
    weight = totals.weight + totals.missing_weight
    # Pods without a sample dilute an average; a single pod stays beyond its limit.
    if totals.extremes is None and _against((totals.usage, weight), beyond, totals.unit) <= 0:
        return ABOVE_BUT_MISSING
    needed = rounded_up(totals.counted * totals.usage * totals.unit * target.denominator, weight * target.numerator)
    extreme = None if totals.extremes is None else _usage_of(totals.extremes.most, totals)
    return Recommendation(Verdict.ABOVE, needed + step.up, extreme=extreme)


def _below(totals: Totals, step: Step, beyond: Edge, under: Edge) -> Recommendation:
    if totals.missing or totals.young:
        return BELOW_BUT_MISSING
    if totals.departed.is_unknown:
        return BELOW_BUT_DEPARTED
    departed = totals.departed_load()
    if departed and _with_share(totals, departed) * under.denominator >= under.numerator:
        return BELOW_BUT_DEPARTED
    needs_none = totals.usage == 0 and totals.total
    shrink = Shrink(
        by=step.down,
        least=step.min_pods,
        fewest=_fewest(totals, totals.usage + departed, beyond),
        fewest_sampled=_fewest(totals, totals.usage, beyond),
    )
    extreme = None if totals.extremes is None else _usage_of(totals.extremes.least, totals)
    return Recommendation(Verdict.BELOW, zero=needs_none, shrink=shrink, extreme=extreme)


def _with_share(totals: Totals, departed: Fraction) -> Fraction:
    """The least usage, of a pod or on average, with an equal share of the departed pods' load (nano-units)."""
    least = (totals.usage, totals.weight) if totals.extremes is None else totals.extremes.least
    return (Fraction(least[0]) / least[1] + departed / totals.weight) * totals.unit


def _fewest(totals: Totals, usage: Rational, beyond: Edge) -> int:
    """The fewest pods that carry this usage within the limit."""
    return max(1, rounded_up(totals.n * usage * totals.unit * beyond.denominator, totals.weight * beyond.numerator))


def _usage_of(pod: PodLoad, totals: Totals) -> Fraction:
    return Fraction(pod.usage * totals.unit, pod.weight)
