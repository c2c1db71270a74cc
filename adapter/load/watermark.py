"""Strategy Watermark: above the high watermark ⌈n·usage/high⌉ pods, below the low one ⌊n·usage/low⌋, else hold.

The formulas are those of known dual-watermark autoscalers. The tolerance decides whether to act, never how far.

Strategy Ratio has one target for both, and rounds up in both directions.
"""

import math
from fractions import Fraction

from adapter.load.assessment import Scenario, Verdict
from adapter.load.recount import HOLD, compare, pods_measured
from adapter.load.spec import Average, Converge
from adapter.load.totals import Band, Totals


def recommend(totals: Totals, band: Band) -> Scenario:
    """Apply the watermarks to totals with at least one sample. Inside the band, drift to the one that it names."""
    recommended = compare(totals, band, math.floor)
    if recommended is None and band.converge is not None:
        recommended = (_towards_low if band.converge is Converge.LOW else _towards_high)(totals, band)
    return recommended or HOLD


def _towards_low(totals: Totals, band: Band) -> Scenario | None:
    """One step of `multipleOf` towards a watermark, unless the step would carry usage past it."""
    step, usage = band.multiple_of, totals.effective_usage(band.average)
    if band.low is None or usage * totals.n / (totals.n + step) < band.low:
        return None
    if step > 1 or band.high is None:
        return Scenario(Verdict.INSIDE, drift=step)
    if totals.missing:
        return None  # just above the band the recount would hold
    return Scenario(Verdict.INSIDE, drift=step, edge=math.floor(totals.n * (1 + band.tolerance)) + 1)


def _towards_high(totals: Totals, band: Band) -> Scenario | None:
    step = band.multiple_of
    if totals.missing or totals.young or totals.unbounded or totals.is_blind:
        return None
    if totals.departed.is_unknown or totals.n <= step or band.high is None:
        return None
    # Usage times pods, the load of the departed pods included.
    usage = Fraction(totals.bound + totals.departed_load())
    if band.average is Average.TOTAL:
        load = usage * pods_measured(totals, band)
    else:
        load = usage * totals.n * totals.unit / totals.weight
    if load / (totals.n - step) > band.high:
        return None
    if step > 1 or band.low is None:
        return Scenario(Verdict.INSIDE, drift=-step)
    return Scenario(Verdict.INSIDE, drift=-step, edge=max(1, math.ceil(totals.n * (1 - band.tolerance)) - 1))


def recommend_by_ratio(totals: Totals, band: Band) -> Scenario:
    """Apply the target, which is both limits of the band, to totals with at least one sample."""
    return compare(totals, band, math.ceil) or HOLD
