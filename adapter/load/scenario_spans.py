"""The scenarios of doubtful pods that are alike but for their usage: a few of them tell which one wins.

With each further pod, in the order of usage, the load less a limit for each pod grows while the pods use more than the
limit, and falls from then on. Between these borders, and where the verdict stays the same, what a scenario proposes at
a count is the larger of two terms: one never falls with the number of pods in, the other never grows. So one of the
ends of such a span proposes most; and where that is only the end with fewer pods in, those that propose as much come
before those that do not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, overload

from adapter.load.assessment import Scenario, Verdict
from adapter.load.scenario_list import LazyScenarios, ScenarioMap
from adapter.load.scenarios import AwayPods, ScenarioSketch, maker_of, recommendation_of, sketch
from adapter.load.spec import Average, Policy, Strategy
from adapter.load.steps import Steps
from adapter.load.totals import Band, PodLoad, Totals

_SORTED_AT_ONCE = 4096
"""Values that are sorted in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikePods:
    """Doubtful pods that are alike but for their usage (`usages`, nano-units, the largest last).

    Each has this weight. Either all of them are doubtful for long (`is_long`), or none; `is_replaceable` likewise.
    """

    usages: Sequence[int]
    weight: int
    is_long: bool
    is_replaceable: bool


class _Span(NamedTuple):
    """Scenarios of one kind, by the number of doubtful pods in: from `first` to `last`."""

    first: int
    last: int


def are_comparable(policy: Policy, band: Band, away: AwayPods, none_in: Totals, pods: AlikePods) -> bool:
    """Whether what a scenario proposes is such a larger one of two terms, so that `spans_of` may search them.

    `none_in`: the totals without the doubtful pods, all of which weigh as much as these on average.
    """
    weight = pods.weight
    return (
        policy.converge_towards is None
        and (band.average is Average.PER_POD or none_in.total or policy.strategy is Strategy.STEP)
        and (not len(none_in.departed) or none_in.departed.is_unknown)
        and none_in.weight == weight * none_in.n
        and none_in.missing_weight == weight * none_in.missing
        and none_in.young_weight == weight * none_in.young
        and (pods.is_replaceable or not pods.is_long or not away.replaceable)
        and (pods.is_long or not pods.is_replaceable)
        and weight > 0
        and none_in.usage >= 0
        and pods.usages[0] >= 0
    )


def spans_of(policy: Policy, band: Band, away: AwayPods, none_in: Totals, pods: AlikePods) -> "ScenarioSpans":
    """The scenarios of these pods, which come in the most loaded first. `are_comparable` must be true of them."""
    order = _Order(policy, band, away, none_in, pods)
    return ScenarioSpans(order, tuple(order.spans()))


def sorted_in_steps(values: Sequence[int], at_once: int = _SORTED_AT_ONCE) -> Steps[list[int]]:
    """The values in order, in short steps: merging sorted lists takes `sort` little time."""
    lists = []
    for first in range(0, len(values), at_once):
        lists.append(sorted(values[first : first + at_once]))
        yield
    while len(lists) > 1:
        merged = []
        for first in range(0, len(lists), 2):
            merged.append(sorted([each for some in lists[first : first + 2] for each in some]))
            yield
        lists = merged
    return lists[0] if lists else []


class _Order:
    """Makes the scenarios of alike pods, which come in the most loaded first."""

    def __init__(self, policy: Policy, band: Band, away: AwayPods, none_in: Totals, pods: AlikePods) -> None:
        self._policy = policy
        self._band = band
        self._away = away
        self._pods = pods
        self._totals = copy(none_in)
        self._first = none_in.n, none_in.weight, none_in.extremes
        self._sums = list(accumulate(reversed(pods.usages), initial=none_in.usage))
        self._maker = maker_of(band, none_in)
        self._sketches: dict[int, ScenarioSketch] = {}

    def scenario(self, inside: int) -> Scenario:
        """The scenario with the `inside` most loaded pods in."""
        return self._maker.scenario(inside, self._sketch(inside))

    def verdict(self, inside: int) -> Verdict:
        """The verdict of that scenario."""
        return self._sketch(inside).recommended.verdict

    def spans(self) -> Iterator[_Span]:
        """All scenarios, in spans of one kind and between the borders.

        With no doubtful pod in there may be nothing to compare.
        """
        yield _Span(0, 0)
        borders = sorted({0, *self._borders(), len(self._pods.usages)})
        for before, last in pairwise(borders):
            first = before + 1
            while first <= last:
                end = self._end_of_kind(first, last)
                yield _Span(first, end)
                first = end + 1

    def _end_of_kind(self, first: int, last: int) -> int:
        """The last of the scenarios that are of the same kind as the first one: the others follow them."""
        kind = self._kind(first)
        if self._kind(last) == kind:
            return last
        return first - 1 + bisect_left(range(first, last), True, key=lambda inside: self._kind(inside) != kind)

    def _borders(self) -> Iterable[int]:
        """How many pods use more than a limit of the band, for each limit."""
        band, usages = self._band, self._pods.usages
        for edge in (band.high_edge, band.high_plus, band.low_edge, band.low_minus):
            if edge is not None:
                limit = edge.numerator * self._pods.weight // (edge.denominator * self._totals.unit)
                yield len(usages) - bisect_right(usages, limit)

    def _kind(self, inside: int) -> tuple[object, ...]:
        """What tells scenarios apart that propose in different ways."""
        one = self._sketch(inside).recommended
        return one.verdict, one.held, one.needed is None, one.shrink is None, one.zero

    def _sketch(self, inside: int) -> ScenarioSketch:
        known = self._sketches.get(inside)
        if known is None:
            pods, away, out = self._pods, self._away, len(self._pods.usages) - inside
            totals = self._totals_with(inside)
            known = self._sketches[inside] = sketch(
                recommendation_of(self._policy, self._band, totals),
                totals,
                away.replaceable + out * pods.is_replaceable,
                away.reserved + out * (not pods.is_long),
                away.out + out,
            )
        return known

    def _totals_with(self, inside: int) -> Totals:
        """The totals with the `inside` most loaded pods in."""
        totals, pods = self._totals, self._pods
        n, weight, totals.extremes = self._first
        totals.usage, totals.n, totals.weight = self._sums[inside], n + inside, weight + inside * pods.weight
        if totals.seeks_extremes and inside:
            totals.include(PodLoad(pods.usages[-1], pods.weight))
            totals.include(PodLoad(pods.usages[-inside], pods.weight))
        return totals


class ScenarioSpans(LazyScenarios):
    """The scenarios of alike pods in spans; as a sequence, those at the ends of each span."""

    def __init__(self, order: _Order, spans: Sequence[_Span], change: ScenarioMap | None = None) -> None:
        self._order = order
        self._spans = spans
        self._change = change
        self._ends = [inside for span in spans for inside in sorted({*span})]
        self._made: dict[int, Scenario] = {}

    def contenders(
        self,
        current: int,  # noqa: ARG002
        multiple_of: int,  # noqa: ARG002
        propose: Callable[[Scenario], int],
    ) -> Sequence[Scenario]:
        """`LazyScenarios.contenders`: the winner, and the scenario with all pods in."""
        proposals = {inside: propose(self._scenario(inside)) for inside in self._ends}
        most = max(proposals.values())
        winner = max(inside for inside, proposal in proposals.items() if proposal == most)
        span = next(each for each in self._spans if each.first <= winner <= each.last)
        if winner != span.last:
            among = range(winner, span.last)
            winner += bisect_left(among, True, key=lambda inside: propose(self._scenario(inside)) < most) - 1
        return [self._scenario(winner), self[-1]]

    @property
    def verdicts(self) -> set[Verdict]:
        """The verdicts of all scenarios."""
        return {self._order.verdict(span.last) for span in self._spans}

    def changed(self, change: ScenarioMap) -> "ScenarioSpans":
        """`LazyScenarios.changed`."""
        before = self._change
        both = change if before is None else lambda one: change(before(one))
        return ScenarioSpans(self._order, self._spans, both)

    def _scenario(self, inside: int) -> Scenario:
        made = self._made.get(inside)
        if made is None:
            scenario = self._order.scenario(inside)
            made = self._made[inside] = scenario if self._change is None else self._change(scenario)
        return made

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Scenario: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Scenario]: ...
    def __getitem__(self, index: int | slice) -> Scenario | Sequence[Scenario]:
        if isinstance(index, slice):
            return [self._scenario(inside) for inside in self._ends[index]]
        return self._scenario(self._ends[index])
