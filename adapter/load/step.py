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
    limit_of,
    rounded_up,
)
from adapter.load.spec import Step
from adapter.load.totals import Band, Edge, PodLoad, Rational, Totals

_Load = tuple[Rational, Rational]
"""Usage (nano-units) and the weight that it is divided by."""


def recommend(totals: Totals, band: Band) -> Recommendation:
    """Apply the target, which is both watermarks of the band, to totals with at least one sample."""
    step, beyond, under = band.step, band.high_plus, band.low_minus
    assert step is not None
    assert beyond is not None
    assert under is not None
    if totals.usage == 0 and not band.tolerate_zero:
        return HOLD
    most, least = _usage_and_weight(totals, totals.most), _usage_and_weight(totals, totals.least)
    saturated = band.saturation is not None and totals.is_saturated
    if saturated or _against(most, beyond, totals.unit) > 0:
        return _above(totals, band, step, beyond, saturated=saturated)
    if _against(least, under, totals.unit) < 0:
        return _below(totals, step, beyond, under)
    return HOLD


def _against(load: _Load, limit: Edge, unit: int) -> Rational:
    """Positive where the usage for this weight is above the limit, negative where it is below."""
    usage, weight = load
    return usage * unit * limit.denominator - limit.numerator * weight


def _usage_and_weight(totals: Totals, pod: PodLoad | None) -> _Load:
    """Of this pod, or without one of all of them together."""
    return (totals.usage, totals.weight) if pod is None else (pod.usage or 0, pod.weight)


def _above(totals: Totals, band: Band, step: Step, beyond: Edge, *, saturated: bool) -> Recommendation:
    target = band.high_edge
    assert target is not None
    weight = totals.weight + totals.missing_weight
    # Pods without a sample dilute an average; a single pod stays beyond its limit.
    is_beyond = _against((totals.usage, weight), beyond, totals.unit) > 0
    one_is_beyond = (
        totals.most is not None and _against(_usage_and_weight(totals, totals.most), beyond, totals.unit) > 0
    )
    if not (is_beyond or one_is_beyond or (saturated and totals.stays_saturated)):
        return ABOVE_BUT_MISSING
    sum_of_pods: Rational = totals.counted * totals.usage * totals.unit
    extreme = _usage_of(totals.most, totals) if one_is_beyond and totals.most is not None else None
    if not saturated:
        needed = rounded_up(sum_of_pods * target.denominator, weight * target.numerator)
        return Recommendation(Verdict.ABOVE, needed + step.up, extreme=extreme)
    assert band.saturation is not None
    needed = rounded_up(band.saturation * sum_of_pods, weight * min(Fraction(*target), limit_of(totals, band)))
    return Recommendation(Verdict.ABOVE, needed + step.up, extreme=extreme, saturation=totals.saturation)


def _below(totals: Totals, step: Step, beyond: Edge, under: Edge) -> Recommendation:
    pod = totals.least_bound
    least: _Load = (totals.bound, totals.weight) if pod is None else (pod.bound or 0, pod.weight)
    if totals.missing or totals.young or totals.unbounded or totals.is_blind:
        return BELOW_BUT_MISSING
    if _against(least, under, totals.unit) >= 0:
        return BELOW_BUT_MISSING
    if totals.departed.is_unknown:
        return BELOW_BUT_DEPARTED
    departed = totals.departed_load()
    # The least usage, of a pod or on average, with an equal share of the departed pods' load.
    with_share = (Fraction(least[0]) / least[1] + departed / totals.weight) * totals.unit
    if departed and with_share * under.denominator >= under.numerator:
        return BELOW_BUT_DEPARTED
    needs_none = totals.usage == 0 and totals.total
    shrink = Shrink(
        by=step.down,
        least=step.min_pods,
        fewest=_fewest(totals, totals.bound + departed, beyond),
        fewest_sampled=_fewest(totals, totals.bound, beyond),
    )
    extreme = None if totals.least is None else _usage_of(totals.least, totals)
    return Recommendation(Verdict.BELOW, zero=needs_none, shrink=shrink, extreme=extreme)


def _fewest(totals: Totals, usage: Rational, beyond: Edge) -> int:
    """The fewest pods that carry this usage within the limit."""
    return max(1, rounded_up(totals.n * usage * totals.unit * beyond.denominator, totals.weight * beyond.numerator))


def _usage_of(pod: PodLoad, totals: Totals) -> Fraction:
    return Fraction((pod.usage or 0) * totals.unit, pod.weight)
