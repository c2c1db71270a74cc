"""Strategy Watermark: above the high watermark ⌈n·usage/high⌉ pods, below the low one ⌊n·usage/low⌋, else hold.

The formulas are those of known dual-watermark autoscalers. The tolerance decides whether to act, never how far. Gaps
are filled against the direction: with no load on the way up, with a full load on the way down. So a gap can hold the
count, but never change it.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.spec import Average, Converge
from adapter.load.totals import Band, Rational, Totals


class Recommendation(NamedTuple):
    """What the strategy asks for in one scenario: `needed` serving pods (None: hold), or a `drift` inside the band.

    `held` is the stage that turned a change into a hold. `drift` is a step of the count; `edge` bounds it: the number
    of serving pods needed just outside the band, on the side that usage moves away from (None: no bound). `zero`: the
    service needs no pod at all.
    """

    verdict: Verdict
    needed: int | None = None
    held: HeldBy | None = None
    drift: int = 0
    edge: int | None = None
    zero: bool = False


_HOLD = Recommendation(Verdict.INSIDE)
_ABOVE_BUT_MISSING = Recommendation(Verdict.ABOVE, held=HeldBy.MISSING)
_BELOW_BUT_MISSING = Recommendation(Verdict.BELOW, held=HeldBy.MISSING)
_BELOW_BUT_DEPARTED = Recommendation(Verdict.BELOW, held=HeldBy.DEPARTED)


def recommend(totals: Totals, band: Band, converge: Converge | None = None) -> Recommendation:
    """Apply the watermarks to totals with at least one sample. `converge`: the watermark to drift to in the band."""
    if totals.usage == 0:
        if not band.tolerate_zero:
            return _HOLD
        if band.low is not None and totals.total and not totals.young:
            return Recommendation(Verdict.BELOW, needed=1, zero=True)
    usage, weight = totals.usage, totals.weight
    if band.average is Average.PER_POD:
        usage *= totals.unit
    else:
        weight = 1
    beyond, under = band.high_plus, band.low_minus
    if beyond is not None and usage * beyond.denominator > beyond.numerator * weight:
        return _above(totals, band)
    if under is not None and usage * under.denominator < under.numerator * weight:
        return _below(totals, band)
    return _HOLD if converge is None else _inside(totals, band, converge)


def _above(totals: Totals, band: Band) -> Recommendation:
    high, beyond = band.high_edge, band.high_plus
    assert high is not None
    assert beyond is not None
    if band.average is Average.TOTAL:
        return Recommendation(Verdict.ABOVE, _rounded_up(totals.n * totals.usage * high.denominator, high.numerator))
    usage, weight = totals.usage * totals.unit, totals.weight + totals.missing_weight
    if usage * beyond.denominator <= beyond.numerator * weight:
        return _ABOVE_BUT_MISSING
    return Recommendation(
        Verdict.ABOVE, _rounded_up(totals.counted * usage * high.denominator, weight * high.numerator)
    )


def _below(totals: Totals, band: Band) -> Recommendation:
    low, under = band.low_edge, band.low_minus
    assert low is not None
    assert under is not None
    gaps = totals.missing + totals.young
    if gaps and (band.average is Average.TOTAL or band.high is None):
        return _BELOW_BUT_MISSING
    filled: Rational = totals.usage * totals.fill_unit + totals.missing_fill + totals.young_fill
    over: Rational = totals.fill_unit
    if band.average is Average.PER_POD:
        filled, over = filled * totals.unit, over * (totals.weight + totals.missing_weight + totals.young_weight)
    if filled * under.denominator >= under.numerator * over:
        return _BELOW_BUT_MISSING
    if totals.departed.is_unknown:
        return _BELOW_BUT_DEPARTED
    if len(totals.departed):
        filled += totals.departed_load() * totals.fill_unit * (totals.unit if band.average is Average.PER_POD else 1)
        if filled * under.denominator >= under.numerator * over:
            return _BELOW_BUT_DEPARTED
    share = (_sharing(totals, band) + gaps) * filled * low.denominator
    return Recommendation(Verdict.BELOW, max(1, int(share // (over * low.numerator))))


def _rounded_up(share: Rational, over: Rational) -> int:
    return int(-(-share // over))


def _sharing(totals: Totals, band: Band) -> int:
    """The number of pods that the samples were taken of.

    For a sum over pods, the number of pods is a factor of the need: without the departed ones the same samples would
    ask for fewer each time. A number for the whole service has their load in it already.
    """
    is_sum_of_pods = band.average is Average.TOTAL and not totals.total
    return totals.n + (len(totals.departed) if is_sum_of_pods else 0)


def _inside(totals: Totals, band: Band, converge: Converge) -> Recommendation:
    """One step of `multipleOf` towards a watermark, unless the step would carry usage past it."""
    if converge is Converge.LOW:
        return _towards_low(totals, band, totals.effective_usage(band.average)) or _HOLD
    return _towards_high(totals, band) or _HOLD


def _towards_low(totals: Totals, band: Band, usage: Fraction) -> Recommendation | None:
    step = band.multiple_of
    if band.low is None or usage * totals.n / (totals.n + step) < band.low:
        return None
    if step > 1 or band.high is None:
        return Recommendation(Verdict.INSIDE, drift=step)
    if totals.missing:
        return None  # with gaps filled, usage just above the band would hold
    return Recommendation(Verdict.INSIDE, drift=step, edge=math.floor(totals.n * (1 + band.tolerance)) + 1)


def _towards_high(totals: Totals, band: Band) -> Recommendation | None:
    step = band.multiple_of
    if totals.missing or totals.young or totals.departed.is_unknown or totals.n <= step or band.high is None:
        return None
    if _with_departed(totals, band) / (totals.n - step) > band.high:
        return None
    if step > 1 or band.low is None:
        return Recommendation(Verdict.INSIDE, drift=-step)
    return Recommendation(Verdict.INSIDE, drift=-step, edge=max(1, math.ceil(totals.n * (1 - band.tolerance)) - 1))


def _with_departed(totals: Totals, band: Band) -> Fraction:
    """Usage times pods, the load of the departed pods included."""
    usage = Fraction(totals.usage + totals.departed_load())
    if band.average is Average.TOTAL:
        return usage * _sharing(totals, band)
    return usage * totals.n * totals.unit / totals.weight
