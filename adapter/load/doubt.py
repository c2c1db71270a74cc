"""The scenarios of one metric: with every doubtful pod out, then with the most loaded ones in, one after the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from adapter.load.assessment import Scenario, Verdict
from adapter.load.pod_samples import PodSample
from adapter.load.spec import Average, Policy, Strategy
from adapter.load.step import recommend as recommend_step
from adapter.load.totals import Band, Totals
from adapter.load.watermark import recommend as recommend_by_watermarks
from adapter.load.watermark import recommend_by_ratio

ALL_UP_TO = 64
"""Of more doubtful pods not every scenario is kept, for `decide` looks at all of them."""
_RECOMMEND: Mapping[Strategy, Callable[[Totals, Band], Scenario]] = {
    Strategy.WATERMARK: recommend_by_watermarks,
    Strategy.RATIO: recommend_by_ratio,
    Strategy.STEP: recommend_step,
}


class AwayPods(NamedTuple):
    """How many pods are out in a scenario.

    `out` are kept in the count on the way down; `replaceable` may be replaced on the way up; `reserved` (starting, or
    doubtful for a short time) already count as replacements.
    """

    out: int
    replaceable: int
    reserved: int


class Doubt(NamedTuple):
    """What matters of a doubtful pod where a scenario has it out.

    `is_long`: it may not come back soon; another one is reserved. `is_replaceable`: it may be replaced. `is_young`: it
    may only not be registered yet, and is young there.
    """

    is_long: bool
    is_replaceable: bool
    is_young: bool


DoubtfulPod = tuple[PodSample, Doubt]


def scenarios_of(
    policy: Policy, band: Band, away: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]
) -> list[Scenario]:
    """The scenarios by the number of doubtful pods in. The pods come in in this order.

    `away` and `totals` are without the doubtful pods; the totals end with all of them in. Of more than ALL_UP_TO pods
    that differ in their usage alone only the scenarios at turns: the first and the last of those that propose in one
    way, and where the pods reach a limit. Between turns proposals grow or fall, and the largest is at one of them.
    """
    away = AwayPods(
        away.out + len(order),
        away.replaceable + sum(doubt.is_replaceable for _, doubt in order),
        away.reserved + sum(not doubt.is_long for _, doubt in order),
    )
    for sample, doubt in order:
        if doubt.is_young:
            totals.add_young(sample)
    turns: set[int] = set()
    if len(order) > ALL_UP_TO and _are_comparable(policy, totals, order):
        turns = {0, len(order)}
        for edge in (band.high, band.high_plus, band.low, band.low_minus):
            if edge is not None:
                limit = edge * totals.weigh(order[0][0]) / totals.unit
                turns.add(sum((sample.usage or 0) > limit for sample, _ in order))
    scenarios = [_scenario(policy, band, totals, away, 0)]
    for inside, (sample, doubt) in enumerate(order, 1):
        totals.add(sample)
        if doubt.is_young:
            totals.add_young(sample, -1)
        away = AwayPods(away.out - 1, away.replaceable - doubt.is_replaceable, away.reserved - (not doubt.is_long))
        scenarios.append(_scenario(policy, band, totals, away, inside))
    if not turns:
        return scenarios
    # Scenarios of one kind propose in the same way.
    kinds = [
        (
            (each.verdict, each.held, each.zero, each.drift),
            [amount is None for amount in (each.needed, each.shrink, each.edge, each.saturation)],
        )
        for each in scenarios
    ]
    turns |= {
        place for inside in range(1, len(kinds)) if kinds[inside] != kinds[inside - 1] for place in (inside - 1, inside)
    }
    return [scenarios[inside] for inside in sorted(turns)]


def _are_comparable(policy: Policy, totals: Totals, order: Sequence[DoubtfulPod]) -> bool:
    """Whether the doubtful pods differ in their usage alone, and proposals between turns only grow or only fall."""
    (first, doubt), n, missing = order[0], totals.n, totals.missing
    weight, limit = totals.weigh(first), first.limit or 0
    return (
        policy.converge_towards is None
        and (policy.average is Average.PER_POD or totals.total or policy.strategy is Strategy.STEP)
        and (not len(totals.departed) or totals.departed.is_unknown)
        and all(
            sample.usage is not None
            and not sample.is_partial
            and (totals.weigh(sample), sample.limit, its_doubt) == (weight, first.limit, doubt)
            for sample, its_doubt in order
        )
        and doubt.is_long is doubt.is_replaceable
        and not doubt.is_young
        and not totals.partial
        and (totals.limit, totals.missing_limit) == (limit * n, limit * missing)
        and (totals.weight, totals.missing_weight) == (weight * n, weight * missing)
        and totals.young_weight == weight * totals.young
    )


def _scenario(policy: Policy, band: Band, totals: Totals, away: AwayPods, inside: int) -> Scenario:
    """The scenario with these totals. Without a sample nothing can be compared."""
    if not totals.n:
        return Scenario(inside=inside, verdict=Verdict.ERROR, missing=totals.missing, out=away.out)
    recommended = _RECOMMEND[policy.strategy](totals, band)
    return recommended._replace(
        inside=inside,
        usage=totals.effective_usage(band.average),
        n=totals.n,
        missing=totals.missing,
        partial=totals.partial,
        young=totals.young,
        departed=len(totals.departed),
        replaceable=away.replaceable,
        reserved=away.reserved,
        out=away.out,
        is_doubted_zero=totals.usage == 0 and not band.tolerate_zero,
    )
