"""The scenarios of doubtful pods that are alike but for their usage: a few of them tell which one wins.

With each further pod, in the order of usage, the load less a limit for each pod grows while the pods use more than the
limit, and falls from then on. Between these borders, and where the verdict stays the same, what a scenario proposes at
a count is the larger of two terms: one never falls with the number of pods in, the other never grows. So one of the
ends of such a span proposes most; and where that is only the end with fewer pods in, those that propose as much come
before those that do not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, overload

from adapter.load.assessment import Scenario, Verdict
from adapter.load.scenario_list import LazyScenarios, ScenarioMap
from adapter.load.scenarios import AwayPods, ScenarioSketch, maker_of, recommendation_of, sketch
from adapter.load.spec import Average, Policy, Strategy
from adapter.load.totals import Band, Edge, PodLoad, Totals


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
        first, last = 1, 0
        for each in self._parts():
            if last and last != self._border_of(last) and self._kind(last) == self._kind(each.last):
                last = each.last
                continue
            if last:
                yield _Span(first, last)
            first, last = each
        yield _Span(first, last)

    def _parts(self) -> Iterator[_Span]:
        """Spans of one kind between all borders."""
        borders = sorted({0, *(self._border(edge) for edge in self._edges), len(self._pods.usages)})
        for before, last in pairwise(borders):
            first = before + 1
            while first <= last:
                end = self._end_of_kind(first, last)
                yield _Span(first, end)
                first = end + 1

    @property
    def _edges(self) -> tuple[Edge | None, ...]:
        band = self._band
        return band.high_edge, band.high_plus, band.low_edge, band.low_minus

    def _border(self, edge: Edge | None) -> int:
        """How many pods use more than a limit; 0 without the limit."""
        if edge is None:
            return 0
        usages = self._pods.usages
        limit = edge.numerator * self._pods.weight // (edge.denominator * self._totals.unit)
        return len(usages) - bisect_right(usages, limit)

    def _border_of(self, inside: int) -> int:
        """Where the terms of the scenarios of this one's kind turn; 0 where they never do."""
        recommended = self._sketch(inside).recommended
        if recommended.shrink is not None:
            return self._border(self._band.high_plus)
        if recommended.needed is None:
            return 0
        return self._border(self._band.high_edge if recommended.verdict is Verdict.ABOVE else self._band.low_edge)

    def _end_of_kind(self, first: int, last: int) -> int:
        """The last of the scenarios that are of the same kind as the first one: the others follow them."""
        kind = self._kind(first)
        if self._kind(last) == kind:
            return last
        return first - 1 + bisect_left(range(first, last), True, key=lambda inside: self._kind(inside) != kind)

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
        self._known_changes: dict[ScenarioMap, ScenarioSpans] = {}

    def contenders(
        self,
        current: int,  # noqa: ARG002
        multiple_of: int,  # noqa: ARG002
        propose: Callable[[Scenario], int],
    ) -> Sequence[Scenario]:
        """`LazyScenarios.contenders`: the winner, and the scenario with all pods in."""
        ends = [
            (span, inside, propose(self._scenario(inside))) for span in self._spans for inside in self._ends_of(span)
        ]
        most = max(proposal for _, _, proposal in ends)
        span, winner = next((span, inside) for span, inside, proposal in reversed(ends) if proposal == most)
        if winner != span.last:
            among = range(winner, span.last)
            winner += bisect_left(among, True, key=lambda inside: propose(self._scenario(inside)) < most) - 1
        return [self._scenario(winner), self[-1]]

    def _ends_of(self, span: _Span) -> Sequence[int]:
        """The ends of a span that may propose different counts; where one scenario holds, all of them do."""
        last = self._scenario(span.last)
        holds = last.needed is None and last.shrink is None
        return (span.last,) if holds or span.first == span.last else (span.first, span.last)

    @property
    def verdicts(self) -> set[Verdict]:
        """The verdicts of all scenarios."""
        return {self._order.verdict(span.last) for span in self._spans}

    def changed(self, change: ScenarioMap) -> "ScenarioSpans":
        """`LazyScenarios.changed`."""
        known = self._known_changes.get(change)
        if known is None:
            before = self._change
            both = change if before is None else lambda one: change(before(one))
            known = self._known_changes[change] = ScenarioSpans(self._order, self._spans, both)
        return known

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
