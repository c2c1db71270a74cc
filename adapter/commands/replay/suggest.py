"""Suggests watermarks and an HPA's behavior from a history: the fewest pod-hours at the risk that is aimed at.

The search is pure: `play` runs the model. Every candidate is judged by one yardstick, never by its own watermark: a
policy with a higher watermark would otherwise look safer. Nothing is applied; a candidate is text to paste.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.replay.levels import SLACK, Level, level_at, search_levels
from adapter.commands.replay.service import Summary
from adapter.load.bounds import SATURATED
from adapter.load.quantity import NANO, nano_text, percent_text
from adapter.load.spec import Metric, Policy, Strategy
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import ScalingRules

MOST_CANDIDATES = 6
BUDGET = 150
"""How many plans a search plays at most."""
_BATCH = 8
SHIPPED_LOW = Fraction(80, 100)
"""The low watermark that docs and examples recommend, as a share of the high one, from 5 pods on."""
_LEVELS = tuple(Fraction(percent, 100) for percent in (15, 35, 60, 85, 100, 130))
"""The high watermarks that are played first, as shares of the yardstick; of a capacity at most all of it."""
_ROUNDS = 3
_NEAR = Fraction(78, 100), Fraction(110, 100)
"""The levels that are played first for a further shape, as shares of the best one's."""
_PLAYS = len(_NEAR) + 2
_RATIOS = tuple(Fraction(percent, 100) for percent in (60, 75, 80, 85, 90))
_DOWN = (SHIPPED_PACE, *(ScalingRules(stabilization=window) for window in (60, 300, 600)))
_UP = (30, 60)
_SATURATION = Fraction(1), Fraction(16, 10)
"""Saturation factors that are tried where the limit is known: none at all, and a bold one."""
_FINE = Fraction(1), Fraction(98, 100), Fraction(96, 100)
"""The levels around the one that was computed at which the plan of the best shape is looked for."""
_MOST_RISK = {True: 0.0005, False: 0.005}
"""What a candidate of the front may risk in any case, by whether the yardstick is a capacity."""
_STEPS = 50
"""A watermark is rounded down by less than one of so many parts."""
_DAY = 86_400.0
_FLAPS, _SAME = 1.5, 1.005


class Part(Enum):
    """The part of the history that candidates are chosen on, and the rest that they are checked on."""

    LEARN = "learn"
    CHECK = "check"


class Plan(NamedTuple):
    """A policy, and how its HPA scales down and for how long it stabilizes upwards (seconds); None: as it does now.

    The HPA keeps its tolerances and its policies upwards.
    """

    policy: Policy
    down: ScalingRules | None = None
    up: int | None = None


Play = Callable[[Sequence[Plan], Part], Sequence[Summary | None]]
"""Plays plans over a part of the history; None where there is no such part. `over_high` is over the yardstick."""
Progress = Callable[[int], None]
"""Told how many more plans were played."""


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
        return summary.shortfall or 0.0 if self.is_capacity else summary.share_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan on the front. `learned` and `checked` are its figures on the two parts; None: the history is short."""

    name: str
    plan: Plan
    learned: Summary
    checked: Summary | None = None
    is_present: bool = False
    is_recommended: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """The plan's policy."""
        return self.plan.policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """The present plan, the recommended one if there is one, and the front by falling cost.

    `tried` plans were played; `aim` is the risk that the recommended one has at most.
    """

    candidates: Sequence[Candidate]
    yardstick: Yardstick
    tried: int
    aim: float = 0.0

    @property
    def recommended(self) -> Candidate | None:
        """The candidate that is recommended; None where the present policy is best."""
        return next((candidate for candidate in self.candidates if candidate.is_recommended), None)

    def recommendation(self) -> str:
        """One sentence: what to do, and what it brings."""
        present, best = self.candidates[0], self.recommended
        risk = f"{100 * self.aim:.3g} % {'shortfall' if self.yardstick.is_capacity else 'of the time over it'}"
        if best is None:
            return f"Keep the present policy: nothing that was tried needs fewer pod-hours at no more than {risk}."
        saved = 1 - best.learned.pod_seconds / present.learned.pod_seconds
        change = f"{100 * saved:.0f} % fewer pod-hours" if saved >= 0 else f"{-100 * saved:.0f} % more pod-hours"
        return f"Candidate {best.name} is recommended: at most {risk} with {change} than now."


def yardstick(policy: Policy, capacity: Fraction | None) -> Yardstick:
    """The yardstick for a policy; `capacity` is that of a pod, in the unit of the watermarks. Raises SuggestError."""
    metric = policy.metrics[0]
    if policy.strategy is not Strategy.WATERMARK:
        raise SuggestError(
            f"strategy {policy.strategy.value} has no watermarks; suggestions are for {Strategy.WATERMARK.value}"
        )
    if metric.floor:
        raise SuggestError(f"metric {metric.name} is a floor; write the metric to be searched first")
    if capacity is not None:
        return Yardstick(load=capacity, is_capacity=True)
    if metric.high is None:
        raise SuggestError(
            f"metric {metric.name} has no high watermark to judge by; say what one pod can carry (--capacity)"
        )
    return Yardstick(load=metric.high, is_capacity=False)


def suggest(
    present: Plan,
    minimum: int,
    measure: Yardstick,
    play: Play,
    *,
    aim: float | None = None,
    limit: Fraction | None = None,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Suggestions:
    """The plan with the fewest pod-hours whose risk (see `Yardstick.risk`) is at most `aim`, and the front behind it.

    Without an aim, the risk of the present plan. `minimum` is the HPA's minReplicas. `limit`: no pod shows more, so no
    high watermark with its tolerance is above it. Plays at most `budget` plans, the same ones for the same history.
    """
    search = _Search(present, measure, play, limit, max(1, budget), progress)
    search.try_all([present])
    search.aim = search.risk(present) if aim is None else aim
    search.descend()
    best = search.best()
    recommended = None if best == present else best
    chosen = dict.fromkeys([present, *([recommended] if recommended else []), *_spread(search.front(), search)])
    checked = play(list(chosen), Part.CHECK)
    return Suggestions(
        candidates=[
            Candidate(
                name="present" if plan == present else chr(ord("A") + index - 1),
                plan=plan,
                learned=search.figures[plan],
                checked=figures,
                is_present=plan == present,
                is_recommended=plan == recommended,
                warnings=(*_warnings(plan.policy, minimum, limit), *_disagreements(search, plan, figures, checked[0])),
            )
            for index, (plan, figures) in enumerate(zip(chosen, checked, strict=True))
        ],
        yardstick=measure,
        tried=len(search.figures),
        aim=search.aim,
    )


class _Shape(NamedTuple):
    """What a search moves the level of: all of a plan but how high its watermarks are."""

    ratio: Fraction | None
    saturation: Fraction
    down: ScalingRules | None
    up: int | None


@dataclass(slots=True)
class _Search:
    """The plans that were played, with their figures. `aim` is the risk that is accepted."""

    present: Plan
    measure: Yardstick
    play: Play
    limit: Fraction | None
    budget: int
    progress: Progress | None
    aim: float = 0.0
    figures: dict[Plan, Summary] = field(default_factory=dict)
    chosen: list[Plan] = field(default_factory=list)

    def try_all(self, plans: Iterable[Plan]) -> None:
        """Plays those that were not played yet, within the budget."""
        left = self.budget - len(self.figures)
        new = [plan for plan in dict.fromkeys(plans) if plan not in self.figures][:left]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            played = zip(batch, self.play(batch, Part.LEARN), strict=True)
            self.figures |= {plan: summary for plan, summary in played if summary is not None}
            if self.progress:
                self.progress(len(batch))

    def descend(self) -> None:
        """Moves one part of the shape after the other to what is best at the risk that is aimed at, twice."""
        present = self.present
        metric, factor = present.policy.metrics[0], present.policy.saturation_factor
        has_low = metric.low is not None or metric.high is None
        shape = _Shape(SHIPPED_LOW if has_low else None, factor, present.down, present.up)
        factors = [factor] if self.limit is None else [factor, *_SATURATION]
        choices: list[list[dict[str, Any]]] = [
            [{"saturation": each, "down": down} for each in factors for down in (present.down, *_DOWN)],
            [{"up": up} for up in (present.up, *_UP)],
            [{"ratio": ratio} for ratio in _RATIOS if has_low],
        ]
        level = self._level(shape, _LEVELS, _ROUNDS)
        if level is None:
            return
        tried = {shape: level}
        for parts in choices * 2:
            near = [Fraction(tried[shape].share) * share for share in _NEAR]
            shapes = dict.fromkeys(shape._replace(**part) for part in parts)
            others = [other for other in shapes if other not in tried]
            others = others[: (self.budget - len(self.figures) - len(_FINE)) // _PLAYS]
            self.try_all(self._plan(other, share) for other in others for share in self._within(other, near))
            levels = {other: self._level(other, near, 2) for other in others}
            tried |= {other: level for other, level in levels.items() if level is not None}
            # The cheapest calm shape. Where costs are the same but for luck, the narrowest band, and saturation as now.
            calm = {shape: level for shape, level in tried.items() if self._is_calm(level.flaps)} or tried
            same = min(level.pod_hours for level in calm.values()) * _SAME
            narrow = [shape for shape, level in calm.items() if level.pod_hours <= same]
            shape = max(
                narrow, key=lambda shape: (shape.ratio or 0, -abs(shape.saturation - factor), -calm[shape].pod_hours)
            )
        self.chosen = [self._plan(shape, Fraction(tried[shape].share) * share) for share in _FINE]
        self.try_all(self.chosen)

    def _level(self, shape: _Shape, first: Sequence[Fraction], rounds: int) -> Level | None:
        """Where a shape has the risk that is aimed at; None where it has more, or the budget does not suffice."""
        if len(self.figures) + len(first) + rounds > self.budget:
            return None

        def play(shares: Sequence[Fraction]) -> list[Summary]:
            plans = [self._plan(shape, share) for share in shares]
            self.try_all(plans)
            return [self.figures[plan] for plan in plans]

        risk = self.measure.risk
        played = search_levels(play, [self.aim], self._within(shape, first), rounds, risk)
        return level_at(played, self.aim, risk)

    def _within(self, shape: _Shape, levels: Iterable[Fraction]) -> list[Fraction]:
        """The levels, none above what samples can pass, or without a saturation factor what is surely passed."""
        most = Fraction(1) if self.measure.is_capacity else _LEVELS[-1]
        if self.limit is not None:
            seen = self.limit if shape.saturation > 1 else self.limit * SATURATED
            most = min(most, seen / (1 + self.present.policy.tolerance) / self.measure.load)
        return sorted({min(most, level) for level in levels})

    def _plan(self, shape: _Shape, share: Fraction) -> Plan:
        high = self.measure.load * share
        low = None if shape.ratio is None else high * shape.ratio
        policy = replace(self.present.policy, saturation_factor=shape.saturation)
        return Plan(with_watermarks(policy, high, low), shape.down, shape.up)

    def _is_calm(self, flaps: float) -> bool:
        """Whether so many flaps are at most half as many again as now, or at most one a day."""
        present = self.figures[self.present]
        return flaps <= max(_FLAPS * present.flaps, round(present.seconds / _DAY))

    def best(self) -> Plan:
        """The cheapest plan of the best shape, or of all, that is safe enough; the present one where none is better."""
        limit = self.aim * SLACK
        fits = [plan for plan in self.figures if self.risk(plan) <= limit and self._is_calm(self.figures[plan].flaps)]
        chosen = [plan for plan in fits if plan in self.chosen or plan == self.present]
        return min(chosen if len(chosen) > 1 else fits, key=self.cost, default=self.present)

    def front(self) -> list[Plan]:
        """Those that no other one beats in cost and risk, by falling cost; none with much more risk than aimed at."""
        best: list[Plan] = []
        most = max(2 * self.aim, _MOST_RISK[self.measure.is_capacity])
        for plan in sorted(self.figures, key=lambda shape: (self.cost(shape), self.risk(shape))):
            is_safer = not best or self.risk(plan) < self.risk(best[-1])
            if is_safer and self.risk(plan) <= most and self._is_calm(self.figures[plan].flaps):
                best.append(plan)
        return best[::-1]

    def cost(self, plan: Plan) -> float:
        """Pod-seconds."""
        return self.figures[plan].pod_seconds

    def risk(self, plan: Plan) -> float:
        """The risk by the yardstick."""
        return self.measure.risk(self.figures[plan])


def _disagreements(search: _Search, plan: Plan, later: Summary | None, present: Summary | None) -> Iterator[str]:
    """Where the later part, which the choice has not seen, contradicts it."""
    if later is None or present is None or later is present:
        return
    risk, before = search.measure.risk(later), search.measure.risk(present)
    if risk > max(search.aim, before) * SLACK:
        yield (
            f"on the later part its risk is {100 * risk:.3g} %, more than the {100 * search.aim:.3g} % aimed at (the "
            f"present policy: {100 * before:.3g} %)"
        )
    saves = search.figures[plan].pod_seconds < search.cost(next(iter(search.figures)))
    if saves and later.pod_seconds > present.pod_seconds:
        yield "on the later part it needs more pod-hours than the present policy"


def _spread(front: Sequence[Plan], search: _Search) -> list[Plan]:
    """At most MOST_CANDIDATES of a front: the ends, and those between whose loss would leave the largest gap."""
    kept = list(front)
    while len(kept) > MOST_CANDIDATES:
        points = [(search.cost(plan), search.risk(plan)) for plan in kept]
        areas = [
            abs((before[0] - after[0]) * (before[1] - after[1]))
            for before, after in zip(points, points[2:], strict=False)
        ]
        del kept[1 + areas.index(min(areas))]
    return kept


def with_watermarks(policy: Policy, high: Fraction, low: Fraction | None) -> Policy:
    """The policy with other watermarks of its first metric, rounded down by at most 2 %. `low`: None for none."""
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
    """The value rounded down to a step of 1, 2 or 5 and zeros, of at most 2 % of it."""
    count = max(1, value // grain)
    most = max(1, count // _STEPS)
    zeros = 10 ** (len(str(most)) - 1)
    step = max(digit * zeros for digit in (1, 2, 5) if digit * zeros <= most)
    return Fraction(count // step * step) * grain


def _warnings(policy: Policy, minimum: int, limit: Fraction | None) -> Iterator[str]:
    high, low = policy.metrics[0].high, policy.metrics[0].low
    floor = max(1, minimum)
    if high and low and low / high > Fraction(floor, floor + 1):
        yield (
            f"low/high is above {floor}/{floor + 1}: at {floor + 1} pods the service would go down to {floor} and up "
            "again"
        )
    if limit is not None and low and policy.saturation_factor > 1:
        left = SATURATED * limit / policy.saturation_factor
        if low > left:
            text = watermark_text(policy.metrics[0], _rounded(left, _grain(policy.metrics[0])))
            yield (
                f"the low watermark is above {text}, what pods at their limit use once some were added: "
                "the service would go down again at once"
            )


def watermark_text(metric: Metric, value: Fraction | None) -> str:
    """A watermark as a policy writes it; empty where there is none."""
    if value is None:
        return ""
    if metric.of:
        return percent_text(value / NANO).replace(" ", "")
    grain = _grain(metric)
    return f"{value / grain}Mi" if grain != 1 and (value / grain).denominator == 1 else nano_text(value)
