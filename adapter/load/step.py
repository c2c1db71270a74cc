"""Strategy Step (step tolerance): add at once what the target needs and a few more, remove a few at a time.

One pod beyond a limit is enough to act (or, with trigger Average, the average must be), up before down. A step down is
only taken where the pods that are left carry the load within the limit, never with a gap in the samples, and never
twice on the same samples.
"""

import math
from fractions import Fraction

from adapter.load.assessment import Scenario, Shrink, Verdict
from adapter.load.recount import ABOVE_BUT_MISSING, BELOW_BUT_DEPARTED, BELOW_BUT_MISSING, HOLD, above
from adapter.load.spec import Average, Step
from adapter.load.totals import Band, Rational, Totals


def recommend(totals: Totals, band: Band) -> Scenario:
    """Apply the target, which is both watermarks of the band, to totals with at least one sample."""
    step, beyond, under = band.step, band.high_plus, band.low_minus
    assert step is not None
    assert beyond is not None
    assert under is not None
    if totals.usage == 0 and not band.tolerate_zero:
        return HOLD
    average, saturated = totals.effective_usage(Average.PER_POD), band.saturation is not None and totals.is_saturated
    if saturated or (average if totals.most is None else totals.most) > beyond:
        # Pods without a sample dilute an average; a single pod stays beyond its limit.
        usage = Fraction(totals.usage * totals.unit, totals.weight + totals.missing_weight)
        extreme = totals.most if totals.most is not None and totals.most > beyond else None
        if usage <= beyond and extreme is None and not (saturated and totals.stays_saturated):
            return ABOVE_BUT_MISSING
        found = above(totals, band, totals.counted * usage, saturated=saturated)
        return found._replace(needed=(found.needed or 0) + step.up, extreme=extreme)
    if (average if totals.least is None else totals.least) < under:
        return _below(totals, step, beyond, under)
    return HOLD


def _below(totals: Totals, step: Step, beyond: Fraction, under: Fraction) -> Scenario:
    share = Fraction(totals.unit, totals.weight)
    least = totals.bound * share if totals.least_bound is None else totals.least_bound
    if totals.missing or totals.young or totals.unbounded or totals.is_blind or least >= under:
        return BELOW_BUT_MISSING
    # The least usage, of a pod or on average, with an equal share of the departed pods' load.
    departed = totals.departed_load()
    if totals.departed.is_unknown or least + departed * share >= under:
        return BELOW_BUT_DEPARTED

    def fewest(usage: Rational) -> int:
        """The fewest pods that carry this usage within the limit."""
        return max(1, math.ceil(totals.n * usage * share / beyond))

    shrink = Shrink(step.down, step.min_pods, fewest(totals.bound + departed), fewest_sampled=fewest(totals.bound))
    needs_none = totals.usage == 0 and totals.total
    return Scenario(Verdict.BELOW, zero=needs_none, shrink=shrink, extreme=totals.least)
