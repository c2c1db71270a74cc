"""Suggests watermarks, velocity and cooldown from a history: the front between pod-hours and overload.

The search is pure: `play` runs the model. Every candidate is judged by one yardstick, never by its own watermark: a
policy with a higher watermark would otherwise look safer. Nothing is applied; a candidate is text to paste.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import pairwise, product

from adapter.load.quantity import NANO, nano_text, percent_text
from adapter.load.spec import Cooldown, Metric, Policy, Strategy, Velocity
from adapter.replay.service import Summary

MOST_CANDIDATES = 6
BUDGET = 60
"""How many policies a search plays at most."""
_BATCH = 8
_DAY = 86_400.0
_OF_CAPACITY = tuple(Fraction(percent, 100) for percent in (50, 60, 70, 80, 90))
_OF_HIGH = tuple(Fraction(percent, 100) for percent in (70, 85, 100, 110, 120))
_LOW_OF_HIGH = tuple(Fraction(percent, 100) for percent in (35, 50, 65))
_DOWN_PERCENT = (None, 10)
_DOWN_COOLDOWN = (0.0, 300.0, 900.0)
_PACED = 3
_MOST_RISK = {True: 0.0005, False: 0.005}
"""What a candidate may risk in any case, by whether the yardstick is a capacity."""
_DIGITS = 100


class Part(Enum):
    """The part of the history that candidates are chosen on, and the rest that they are checked on."""

    LEARN = "learn"
    CHECK = "check"


Play = Callable[[Sequence[Policy], Part], Sequence[Summary | None]]
"""Plays policies over a part of the history; None where there is no such part. `over_high` is over the yardstick."""
Progress = Callable[[int], None]
"""Told how many more policies were played."""


class SuggestError(ValueError):
    """Nothing can be suggested; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """The load of a pod that counts as too much, in the unit of the first metric's watermarks (nano)."""

    load: Fraction
    is_capacity: bool

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return "the capacity of a pod" if self.is_capacity else "the present high watermark"

    def risk(self, summary: Summary) -> float:
        """The share of the load beyond the capacity; without a capacity, the share of the time over the watermark."""
        if self.is_capacity:
            return summary.shortfall or 0.0
        return summary.over_high / summary.seconds if summary.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A policy on the front. `learned` and `checked` are its figures on the two parts; None: the history is short."""

    name: str
    policy: Policy
    learned: Summary
    checked: Summary | None = None
    is_present: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """The front by falling cost, the present policy first. `tried` policies were played."""

    candidates: Sequence[Candidate]
    yardstick: Yardstick
    tried: int


def yardstick(policy: Policy, capacity: Fraction | None) -> Yardstick:
    """The yardstick for a policy; `capacity` is that of a pod, in the unit of the watermarks. Raises SuggestError."""
    if policy.strategy is not Strategy.WATERMARK:
        raise SuggestError(
            f"strategy {policy.strategy.value} has no watermarks; suggestions are for {Strategy.WATERMARK.value}"
        )
    if policy.metrics[0].floor:
        raise SuggestError(f"metric {policy.metrics[0].name} is a floor; write the metric to be searched first")
    high = policy.metrics[0].high
    if capacity is not None:
        return Yardstick(load=capacity, is_capacity=True)
    if high is None:
        name = policy.metrics[0].name
        raise SuggestError(f"metric {name} has no high watermark to judge by; say what one pod can carry (--capacity)")
    return Yardstick(load=high, is_capacity=False)


def suggest(
    policy: Policy,
    minimum: int,
    measure: Yardstick,
    play: Play,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Suggestions:
    """The front of cost (pod-hours) and risk (see `Yardstick.risk`), at most MOST_CANDIDATES besides the present.

    `minimum` is the HPA's minReplicas. Plays at most `budget` policies, always the same ones for the same history.
    """
    search = _Search(policy, measure, play, budget, progress)
    search.try_all(_watermarks(policy, measure))
    search.try_all(_paces(policy, search.front()[:_PACED]))
    search.try_all(_between(policy, search.front()))
    chosen = [policy, *(known for known in _spread(search.front(), search) if known != policy)]
    checked = play(chosen, Part.CHECK)
    return Suggestions(
        candidates=[
            Candidate(
                name="present" if known == policy else chr(ord("A") + index - 1),
                policy=known,
                learned=search.figures[known],
                checked=figures,
                is_present=known == policy,
                warnings=tuple(_warnings(known, minimum)),
            )
            for index, (known, figures) in enumerate(zip(chosen, checked, strict=True))
        ],
        yardstick=measure,
        tried=len(search.figures),
    )


class _Search:
    """The policies that were played, with their figures."""

    def __init__(self, present: Policy, measure: Yardstick, play: Play, budget: int, progress: Progress | None) -> None:
        self.figures: dict[Policy, Summary] = {}
        self._present, self._play, self._budget = present, play, max(1, budget)
        self._measure, self._progress = measure, progress
        self.try_all([present])

    def try_all(self, policies: Iterable[Policy]) -> None:
        """Plays those that were not played yet, within the budget."""
        left = self._budget - len(self.figures)
        new = [known for known in dict.fromkeys(policies) if known not in self.figures][:left]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            for known, summary in zip(batch, self._play(batch, Part.LEARN), strict=True):
                if summary is None:
                    raise SuggestError("the history has no tick to choose on; take a longer range")
                self.figures[known] = summary
            if self._progress:
                self._progress(len(batch))

    def front(self) -> list[Policy]:
        """Those that no other one beats in cost and risk, by falling cost."""
        best: list[Policy] = []
        for known in sorted(self._sensible(), key=lambda one: (self.cost(one), self.risk(one))):
            if not best or self.risk(known) < self.risk(best[-1]):
                best.append(known)
        return best[::-1]

    def _sensible(self) -> Iterator[Policy]:
        """Without those that flap more than now, or save pods by more than twice the risk."""
        present = self.figures[self._present]
        flaps = max(present.flaps, round(present.seconds / _DAY))
        most = max(2 * self._measure.risk(present), _MOST_RISK[self._measure.is_capacity])
        for known, summary in self.figures.items():
            if summary.flaps <= flaps and self.risk(known) <= most:
                yield known

    def cost(self, known: Policy) -> float:
        """Pod-seconds."""
        return self.figures[known].pod_seconds

    def risk(self, known: Policy) -> float:
        """The risk by the yardstick."""
        return self._measure.risk(self.figures[known])


def _watermarks(policy: Policy, measure: Yardstick) -> Iterator[Policy]:
    high, low = _band(policy)
    base, shares = (measure.load, _OF_CAPACITY) if measure.is_capacity or high is None else (high, _OF_HIGH)
    for share, ratio in product(shares, _LOW_OF_HIGH):
        yield with_watermarks(policy, base * share, base * share * ratio if low else None)


def _paces(policy: Policy, front: Iterable[Policy]) -> Iterator[Policy]:
    ups = dict.fromkeys(((policy.velocity.up, policy.cooldown.up), (None, 0.0)))
    for known in front:
        for (up, up_cooldown), down, cooldown in product(ups, _DOWN_PERCENT, _DOWN_COOLDOWN):
            pace = replace(known, velocity=Velocity(up=up, down=down))
            yield replace(pace, cooldown=Cooldown(up=up_cooldown, down=cooldown))


def _between(policy: Policy, front: Sequence[Policy]) -> Iterator[Policy]:
    """Policies halfway between neighbours on the front, and a little beside each."""
    for one, other in pairwise(front):
        (high, low), (other_high, other_low) = _band(one), _band(other)
        if high and other_high:
            middle = (low + other_low) / 2 if low and other_low else None
            yield from (with_watermarks(pace, (high + other_high) / 2, middle) for pace in (one, other))
    for known in front:
        high, low = _band(known)
        if high and known != policy:
            for share in (Fraction(95, 100), Fraction(105, 100)):
                yield with_watermarks(known, high * share, low * share if low else None)


def _band(policy: Policy) -> tuple[Fraction | None, Fraction | None]:
    return policy.metrics[0].high, policy.metrics[0].low


def _spread(front: Sequence[Policy], search: _Search) -> list[Policy]:
    """At most MOST_CANDIDATES of a front: the ends, and those between whose loss would leave the largest gap."""
    kept = list(front)
    while len(kept) > MOST_CANDIDATES:
        points = [(search.cost(known), search.risk(known)) for known in kept]
        areas = [
            abs((before[0] - after[0]) * (before[1] - after[1]))
            for before, after in zip(points, points[2:], strict=False)
        ]
        del kept[1 + areas.index(min(areas))]
    return kept


def with_watermarks(policy: Policy, high: Fraction, low: Fraction | None) -> Policy:
    """The policy with other watermarks of its first metric, rounded to two digits. `low`: None for none."""
    first, *others = policy.metrics
    grain = _grain(first)
    high, low = _rounded(high, grain), None if low is None else _rounded(low, grain)
    if low is not None and low >= high:
        low = high / 2
    return replace(policy, metrics=(replace(first, high=high, low=low), *others))


def _grain(metric: Metric) -> Fraction:
    if metric.of:
        return Fraction(NANO, 100)
    return Fraction(NANO * 2**20) if metric.resource and metric.resource.name == "memory" else Fraction(1)


def _rounded(value: Fraction, grain: Fraction) -> Fraction:
    count = max(1, round(value / grain))
    digit = 1
    while count // digit >= _DIGITS:
        digit *= 10
    return Fraction(max(1, round(Fraction(count, digit))) * digit) * grain


def _warnings(policy: Policy, minimum: int) -> Iterator[str]:
    high, low = _band(policy)
    floor = max(1, minimum)
    if high and low and low / high > Fraction(floor, floor + 1):
        yield (
            f"low/high is above {floor}/{floor + 1}: at {floor + 1} pods the service would go down to {floor} and up "
            "again"
        )
    if policy.cooldown.up:
        yield f"cooldown: no second rise within {policy.cooldown.up:g} s"


def watermark_text(metric: Metric, value: Fraction | None) -> str:
    """A watermark as a policy writes it; empty where there is none."""
    if value is None:
        return ""
    if metric.of:
        return percent_text(value / NANO).replace(" ", "")
    grain = _grain(metric)
    return f"{value / grain}Mi" if grain != 1 and (value / grain).denominator == 1 else nano_text(value)
