"""Strategy Watermark: above the high watermark ⌈n·usage/high⌉ pods, below the low one ⌊n·usage/low⌋, between them hold.

The formulas are those of the dual-watermark autoscalers this descends from. Tolerance decides whether, never how many.
Gaps are filled against the direction: with nothing on the way up, with a full load on the way down. So a gap may keep
the count where it is, and moves it nowhere.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.spec import Average, Converge
from adapter.load.tally import Band, Tally


@dataclass(frozen=True, slots=True)
class Need:
    """What one reading asks for: `count` serving pods (None: hold), or a `drift` of so many inside the band.

    `usage` is the average (or total) that was compared, nano-units. `edge` is the count of serving pods that would be
    asked for just outside the band where the drift leads away from: a drift goes no further (None: no such limit).
    `zero`: the service needs no pod at all.
    """

    verdict: Verdict
    usage: Fraction
    count: int | None = None
    held: HeldBy | None = None
    drift: int = 0
    edge: int | None = None
    zero: bool = False


def need(tally: Tally, band: Band, converge: Converge | None = None) -> Need:
    """What the watermarks ask of a tally with at least one sample."""
    usage = tally.average() if band.average is Average.PER_POD else Fraction(tally.usage)
    if tally.usage == 0:
        if not band.tolerate_zero:
            return Need(Verdict.INSIDE, usage)
        if band.low is not None and tally.total and not tally.young:
            return Need(Verdict.BELOW, usage, count=1, zero=True)
    if band.high_plus is not None and usage > band.high_plus:
        return _above(tally, band, usage)
    if band.low_minus is not None and usage < band.low_minus:
        return _below(tally, band, usage)
    return _inside(tally, band, usage, converge)


def _above(tally: Tally, band: Band, usage: Fraction) -> Need:
    assert band.high is not None
    assert band.high_plus is not None
    if band.average is Average.TOTAL:
        return Need(Verdict.ABOVE, usage, count=math.ceil(tally.n * usage / band.high))
    weight = tally.weight + tally.missing_weight
    recount = Fraction(tally.usage) / weight
    if recount <= band.high_plus:
        return Need(Verdict.ABOVE, usage, held=HeldBy.MISSING)
    return Need(Verdict.ABOVE, usage, count=math.ceil(tally.counted * recount / band.high))


def _below(tally: Tally, band: Band, usage: Fraction) -> Need:
    assert band.low is not None
    assert band.low_minus is not None
    gaps = tally.missing + tally.young
    if gaps and (band.average is Average.TOTAL or band.high is None):
        return Need(Verdict.BELOW, usage, held=HeldBy.MISSING)
    filled, weight = tally.usage + tally.missing_fill + tally.young_fill, Fraction(1)
    if band.average is Average.PER_POD:
        weight = Fraction(tally.weight + tally.missing_weight + tally.young_weight)
    if filled / weight >= band.low_minus:
        return Need(Verdict.BELOW, usage, held=HeldBy.MISSING)
    recount = (filled + tally.departed_load()) / weight
    if tally.departed.unseen or recount >= band.low_minus:
        return Need(Verdict.BELOW, usage, held=HeldBy.DEPARTED)
    return Need(Verdict.BELOW, usage, count=max(1, math.floor((_sharing(tally, band) + gaps) * recount / band.low)))


def _sharing(tally: Tally, band: Band) -> int:
    """The pods that the samples were taken of.

    In a total the count is a factor of what is needed: were it without the pods that left, the same samples would ask
    for fewer each time. A number for the whole service has their load in it, as their average (`departed_load`).
    """
    is_sum_of_pods = band.average is Average.TOTAL and not tally.total
    return tally.n + (len(tally.departed) if is_sum_of_pods else 0)


def _inside(tally: Tally, band: Band, usage: Fraction, converge: Converge | None) -> Need:
    """One step of `multipleOf` toward a watermark, where the step would not carry usage past it."""
    hold = Need(Verdict.INSIDE, usage)
    if converge is None:
        return hold
    if converge is Converge.LOW:
        return _towards_low(tally, band, usage) or hold
    return _towards_high(tally, band, usage) or hold


def _towards_low(tally: Tally, band: Band, usage: Fraction) -> Need | None:
    step = band.multiple_of
    if band.low is None or usage * tally.n / (tally.n + step) < band.low:
        return None
    if step > 1 or band.high is None:
        return Need(Verdict.INSIDE, usage, drift=step)
    if tally.missing:
        return None  # just above the band the recount would hold
    return Need(Verdict.INSIDE, usage, drift=step, edge=math.floor(tally.n * (1 + band.tolerance)) + 1)


def _towards_high(tally: Tally, band: Band, usage: Fraction) -> Need | None:
    step = band.multiple_of
    if tally.missing or tally.young or tally.departed.unseen or tally.n <= step or band.high is None:
        return None
    if _with_departed(tally, band) / (tally.n - step) > band.high:
        return None
    if step > 1 or band.low is None:
        return Need(Verdict.INSIDE, usage, drift=-step)
    return Need(Verdict.INSIDE, usage, drift=-step, edge=max(1, math.ceil(tally.n * (1 - band.tolerance)) - 1))


def _with_departed(tally: Tally, band: Band) -> Fraction:
    """Usage times pods, that of the pods that left included."""
    usage = Fraction(tally.usage + tally.departed_load())
    if band.average is Average.TOTAL:
        return usage * _sharing(tally, band)
    return usage * tally.n / tally.weight
