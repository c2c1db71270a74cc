"""Strategy Watermark: above the high watermark ⌈n·usage/high⌉ pods, below the low one ⌊n·usage/low⌋, between them hold.

The formulas are those of the dual-watermark autoscalers this descends from. Tolerance decides whether, never how many.
Gaps are filled against the direction: with nothing on the way up, with a full load on the way down. So a gap may keep
the count where it is, and moves it nowhere.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.spec import Average, Converge
from adapter.load.totals import Band, Rational, Totals


class Need(NamedTuple):
    """What one reading asks for: `needed` serving pods (None: hold), or a `drift` of so many inside the band.

    `edge` is the count of serving pods that would be asked for just outside the band where the drift leads away from: a
    drift goes no further (None: no such limit). `zero`: the service needs no pod at all.
    """

    verdict: Verdict
    needed: int | None = None
    held: HeldBy | None = None
    drift: int = 0
    edge: int | None = None
    zero: bool = False


_HOLD = Need(Verdict.INSIDE)
_ABOVE_BUT_MISSING = Need(Verdict.ABOVE, held=HeldBy.MISSING)
_BELOW_BUT_MISSING = Need(Verdict.BELOW, held=HeldBy.MISSING)
_BELOW_BUT_DEPARTED = Need(Verdict.BELOW, held=HeldBy.DEPARTED)


def need(tally: Totals, band: Band, converge: Converge | None = None) -> Need:
    """What the watermarks ask of a tally with at least one sample."""
    if tally.usage == 0:
        if not band.tolerate_zero:
            return _HOLD
        if band.low is not None and tally.total and not tally.young:
            return Need(Verdict.BELOW, needed=1, zero=True)
    usage, weight = tally.usage, tally.weight
    if band.average is Average.PER_POD:
        usage *= tally.unit
    else:
        weight = 1
    beyond, under = band.high_plus, band.low_minus
    if beyond is not None and usage * beyond.denominator > beyond.numerator * weight:
        return _above(tally, band)
    if under is not None and usage * under.denominator < under.numerator * weight:
        return _below(tally, band)
    return _HOLD if converge is None else _inside(tally, band, converge)


def compared(tally: Totals, band: Band) -> Fraction:
    """What is held against the watermarks: the average, or the total (nano-units)."""
    return tally.average() if band.average is Average.PER_POD else Fraction(tally.usage)


def _above(tally: Totals, band: Band) -> Need:
    high, beyond = band.high_edge, band.high_plus
    assert high is not None
    assert beyond is not None
    if band.average is Average.TOTAL:
        return Need(Verdict.ABOVE, _rounded_up(tally.n * tally.usage * high.denominator, high.numerator))
    usage, weight = tally.usage * tally.unit, tally.weight + tally.missing_weight
    if usage * beyond.denominator <= beyond.numerator * weight:
        return _ABOVE_BUT_MISSING
    return Need(Verdict.ABOVE, _rounded_up(tally.counted * usage * high.denominator, weight * high.numerator))


def _below(tally: Totals, band: Band) -> Need:
    low, under = band.low_edge, band.low_minus
    assert low is not None
    assert under is not None
    gaps = tally.missing + tally.young
    if gaps and (band.average is Average.TOTAL or band.high is None):
        return _BELOW_BUT_MISSING
    filled: Rational = tally.usage * tally.fill_unit + tally.missing_fill + tally.young_fill
    over: Rational = tally.fill_unit
    if band.average is Average.PER_POD:
        filled, over = filled * tally.unit, over * (tally.weight + tally.missing_weight + tally.young_weight)
    if filled * under.denominator >= under.numerator * over:
        return _BELOW_BUT_MISSING
    if tally.departed.unseen:
        return _BELOW_BUT_DEPARTED
    if len(tally.departed):
        filled += tally.departed_load() * tally.fill_unit * (tally.unit if band.average is Average.PER_POD else 1)
        if filled * under.denominator >= under.numerator * over:
            return _BELOW_BUT_DEPARTED
    share = (_sharing(tally, band) + gaps) * filled * low.denominator
    return Need(Verdict.BELOW, max(1, int(share // (over * low.numerator))))


def _rounded_up(share: Rational, over: Rational) -> int:
    return int(-(-share // over))


def _sharing(tally: Totals, band: Band) -> int:
    """The pods that the samples were taken of.

    In a total the count is a factor of what is needed: were it without the pods that left, the same samples would ask
    for fewer each time. A number for the whole service has their load in it, as their average (`departed_load`).
    """
    is_sum_of_pods = band.average is Average.TOTAL and not tally.total
    return tally.n + (len(tally.departed) if is_sum_of_pods else 0)


def _inside(tally: Totals, band: Band, converge: Converge) -> Need:
    """One step of `multipleOf` toward a watermark, where the step would not carry usage past it."""
    if converge is Converge.LOW:
        return _towards_low(tally, band, compared(tally, band)) or _HOLD
    return _towards_high(tally, band) or _HOLD


def _towards_low(tally: Totals, band: Band, usage: Fraction) -> Need | None:
    step = band.multiple_of
    if band.low is None or usage * tally.n / (tally.n + step) < band.low:
        return None
    if step > 1 or band.high is None:
        return Need(Verdict.INSIDE, drift=step)
    if tally.missing:
        return None  # just above the band the recount would hold
    return Need(Verdict.INSIDE, drift=step, edge=math.floor(tally.n * (1 + band.tolerance)) + 1)


def _towards_high(tally: Totals, band: Band) -> Need | None:
    step = band.multiple_of
    if tally.missing or tally.young or tally.departed.unseen or tally.n <= step or band.high is None:
        return None
    if _with_departed(tally, band) / (tally.n - step) > band.high:
        return None
    if step > 1 or band.low is None:
        return Need(Verdict.INSIDE, drift=-step)
    return Need(Verdict.INSIDE, drift=-step, edge=max(1, math.ceil(tally.n * (1 - band.tolerance)) - 1))


def _with_departed(tally: Totals, band: Band) -> Fraction:
    """Usage times pods, that of the pods that left included."""
    usage = Fraction(tally.usage + tally.departed_load())
    if band.average is Average.TOTAL:
        return usage * _sharing(tally, band)
    return usage * tally.n * tally.unit / tally.weight
