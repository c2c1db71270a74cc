"""Strategy Ratio: usage over one target; beyond the tolerance ⌈n·usage/target⌉ pods in both directions, else hold.

The rule of the stock HPA, with the recount of `recount`. Rounding up on the way down too, it never leaves more usage
than the target, and so never goes up again at the same load.
"""

from adapter.load.recount import HOLD, Recommendation, compare, rounded_up
from adapter.load.totals import Band, Totals


def recommend(totals: Totals, band: Band) -> Recommendation:
    """Apply the target, which is both limits of the band, to totals with at least one sample."""
    return compare(totals, band, rounded_up) or HOLD
