"""The scenarios of a metric that may win at some replica count, made when they are asked for.

Thousands of doubtful pods below the band leave thousands of them. One decision looks at a few.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, overload

from adapter.load.assessment import Scenario, Verdict
from adapter.load.recount import Recommendation
from adapter.load.steps import AT_ONCE, Steps

ScenarioMap = Callable[[Scenario], Scenario]


class Candidate(NamedTuple):
    """A scenario that may win: what the strategy recommends there, and how many pods are `out` on the way down.

    `spare`: how many pods a step down can spare there.
    """

    recommended: Recommendation
    out: int
    spare: int
    make: Callable[[], Scenario]


class _Ladder(NamedTuple):
    """Scenarios with fewer and fewer doubtful pods in, which propose more and more, and at most the current count.

    `places` are theirs in the list, and `ranks` grow: what each proposes at most, or, with steps down, the pods that it
    can spare, negative.
    """

    places: list[int]
    ranks: list[int]

    def add(self, place: int, rank: int) -> bool:
        """Add a scenario; False where it does not rank above the last one."""
        if self.ranks and rank <= self.ranks[-1]:
            return False
        self.places.append(place)
        self.ranks.append(rank)
        return True


class _Sorter:
    """Puts the candidates of an order on ladders, beginning with all doubtful pods in; `others` gets the rest.

    What may propose 0 has ladders of its own.
    """

    def __init__(self, others: list[int]) -> None:
        self._others = others
        self._below, self._drifting, self._down = (
            {is_zero: _Ladder([], []) for is_zero in (False, True)} for _ in range(3)
        )

    def put(self, place: int, candidate: Candidate) -> None:
        """Put a candidate where it belongs."""
        recommended = candidate.recommended
        is_on_ladder = False
        if recommended.shrink is not None:
            is_on_ladder = self._down[recommended.zero].add(place, -candidate.spare)
        elif recommended.verdict is Verdict.BELOW and recommended.needed is not None:
            is_on_ladder = self._below[recommended.zero].add(place, recommended.needed + candidate.out)
        elif recommended.drift < 0 and recommended.edge is not None:
            is_on_ladder = self._drifting[recommended.zero].add(place, recommended.edge + candidate.out)
        if not is_on_ladder:
            self._others.append(place)

    @property
    def ladders(self) -> Iterator[_Ladder]:
        """The ladders of scenarios below the band, and of steps down inside it."""
        return (ladder for ladder in (*self._below.values(), *self._drifting.values()) if ladder.places)

    @property
    def steps_down(self) -> Iterator[_Ladder]:
        """The ladders of steps down of strategy Step."""
        return (ladder for ladder in self._down.values() if ladder.places)


class LazyScenarios(Sequence[Scenario]):
    """Scenarios that are made when they are asked for."""

    @abstractmethod
    def contenders(self, current: int, multiple_of: int, propose: Callable[[Scenario], int]) -> Sequence[Scenario]:
        """The scenarios of which one wins at this count, where each proposes so many pods.

        The one with the most doubtful pods in is among them.
        """

    @property
    @abstractmethod
    def verdicts(self) -> set[Verdict]:
        """The verdicts of all scenarios, before any change."""

    @abstractmethod
    def changed(self, change: ScenarioMap) -> "LazyScenarios":
        """These scenarios with a change that makes all of one kind (a verdict, a step) hold the count."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class ScenarioList(LazyScenarios):
    """The scenarios of each order in which doubtful pods come in, by the number of those in.

    `others` are the places of those that are on no ladder.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        others: Sequence[int],
        ladders: Sequence[_Ladder] = (),
        steps_down: Sequence[_Ladder] = (),
        change: ScenarioMap | None = None,
    ) -> None:
        self._candidates = candidates
        self._others = others
        self._ladders = ladders
        self._steps_down = steps_down
        self._change = change
        self._made: dict[int, Scenario] = {}

    @classmethod
    def of(cls, *orders: Sequence[Candidate]) -> "Steps[ScenarioList]":
        """The candidates of each order, those on ladders found."""
        others: list[int] = []
        ladders: list[_Ladder] = []
        steps_down: list[_Ladder] = []
        first = 0
        for order in orders:
            sorter = _Sorter(others)
            for place in range(len(order) - 1, -1, -1):
                if place % AT_ONCE == AT_ONCE - 1:
                    yield
                sorter.put(first + place, order[place])
            ladders += sorter.ladders
            steps_down += sorter.steps_down
            first += len(order)
        return cls(tuple(chain.from_iterable(orders)), others, ladders, steps_down)

    def contenders(self, current: int, multiple_of: int, propose: Callable[[Scenario], int]) -> list[Scenario]:
        """`LazyScenarios.contenders`.

        Of a ladder it is the first one that proposes as much as the last, or the first of all where a change makes all
        of them hold: on a tie, the one with the most doubtful pods in.
        """
        if len(self._candidates) == 1:
            return [self[0]]

        def rounded(rank: int) -> int:
            return -(-rank // multiple_of) * multiple_of

        places = set(self._others)
        for below in self._ladders:
            most = min(current, rounded(below.ranks[-1]))
            places |= {below.places[each] for each in (0, bisect_left(below.ranks, most, key=rounded), -1)}
        for steps_down in self._steps_down:
            most = propose(self[steps_down.places[-1]])
            first = bisect_left(steps_down.places, most, key=lambda place: propose(self[place]))
            places |= {steps_down.places[0], steps_down.places[first]}
        return [self[place] for place in sorted(places)]

    @property
    def verdicts(self) -> set[Verdict]:
        """The verdicts of all scenarios."""
        return {candidate.recommended.verdict for candidate in self._candidates}

    def changed(self, change: ScenarioMap) -> "ScenarioList":
        """`LazyScenarios.changed`."""
        before = self._change
        both = change if before is None else lambda one: change(before(one))
        return ScenarioList(self._candidates, self._others, self._ladders, self._steps_down, both)

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Scenario]:
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Scenario: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Scenario]: ...
    def __getitem__(self, index: int | slice) -> Scenario | Sequence[Scenario]:
        if isinstance(index, slice):
            return tuple(self)[index]
        made = self._made.get(index)
        if made is None:
            scenario = self._candidates[index].make()
            made = self._made[index] = scenario if self._change is None else self._change(scenario)
        return made


def changed(scenarios: Sequence[Scenario], change: ScenarioMap) -> Sequence[Scenario]:
    """`LazyScenarios.changed`, also for scenarios in another sequence."""
    return scenarios.changed(change) if isinstance(scenarios, LazyScenarios) else tuple(map(change, scenarios))


def verdicts_of(scenarios: Sequence[Scenario]) -> set[Verdict]:
    """The verdicts of all scenarios, before any change."""
    if isinstance(scenarios, LazyScenarios):
        return scenarios.verdicts
    return {scenario.verdict for scenario in scenarios}


def contenders(
    scenarios: Sequence[Scenario], current: int, multiple_of: int, propose: Callable[[Scenario], int]
) -> Sequence[Scenario]:
    """`LazyScenarios.contenders`; all scenarios of another sequence."""
    if isinstance(scenarios, LazyScenarios):
        return scenarios.contenders(current, multiple_of, propose)
    return scenarios
