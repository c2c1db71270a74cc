"""The front of an autoscaler: the pod-hours that it needs at one shortfall or another, found by moving its level.

The level is the stock HPA's target or the policy's high watermark; the low watermark keeps its share of the high one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import exp, log
from typing import Any, NamedTuple

from adapter.commands.replay.aim import OpenHistory
from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.comparison import RAW, Comparison, Result
from adapter.commands.replay.hpas import stock_hpa_for
from adapter.commands.replay.service import Autoscaler, Summary
from adapter.commands.replay.simulation import simulate
from adapter.commands.replay.suggest import SHIPPED_LOW, watermark_text
from adapter.commands.replay.text_table import aligned
from adapter.load.spec import Metric, Policy
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import Hpa

SHORTFALLS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)
_LEVELS = tuple(Fraction(percent, 100) for percent in (15, 35, 60, 85, 100))
"""The levels that are played first, as shares of a pod's capacity."""
_ROUNDS = 2
_NOTHING = 1e-7
"""A shortfall below this is none."""
_HOUR = 3600

Play = Callable[[Sequence[Fraction]], Sequence[Summary]]
"""Plays levels, as shares of a pod's capacity, in one pass over the history."""


class Level(NamedTuple):
    """A point of a front: the level (share of a pod's capacity), and what it takes there."""

    share: float
    pod_hours: float
    flaps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The fronts of some autoscalers by name: a level for each of `shortfalls`, None where none is safe enough."""

    shortfalls: Sequence[float]
    levels: Mapping[str, Sequence[Level | None]]
    metric: Metric
    capacity: Fraction


def levels_at(
    play: Play, shortfalls: Sequence[float], *, first: Sequence[Fraction] = _LEVELS, rounds: int = _ROUNDS
) -> list[Level | None]:
    """The levels at which an autoscaler has just these shortfalls (0 to 1); None where the least level has more.

    Shortfall grows with the level about as a power of it, so between two levels that were played its logarithm is a
    straight line; each round plays where that line meets the shortfalls. `first`: the levels of the first pass.
    """
    played = dict(zip(first, play(first), strict=True))
    for _ in range(rounds):
        ends = [_ends(played, shortfall) for shortfall in shortfalls]
        wanted = {
            _between(played, *pair, shortfall)
            for pair, shortfall in zip(ends, shortfalls, strict=True)
            if pair is not None and pair[0] != pair[1]
        }
        new = sorted(wanted - played.keys())
        played |= dict(zip(new, play(new) if new else (), strict=True))
    return [_level(played, shortfall) for shortfall in shortfalls]


def _risk(summary: Summary) -> float:
    return log(max(summary.shortfall or 0.0, _NOTHING))


def _ends(played: Mapping[Fraction, Summary], shortfall: float) -> tuple[Fraction, Fraction] | None:
    """The highest level up to which every level is safe enough, and the next one; twice the last if all are."""
    levels = sorted(played)
    if _risk(played[levels[0]]) > log(shortfall):
        return None
    for below, above in pairwise(levels):
        if _risk(played[above]) > log(shortfall):
            return below, above
    return levels[-1], levels[-1]


def _share(played: Mapping[Fraction, Summary], below: Fraction, above: Fraction, shortfall: float) -> float:
    """How far between two levels the shortfall lies, 0 to 1."""
    low, high = _risk(played[below]), _risk(played[above])
    return 0.0 if high == low else (log(shortfall) - low) / (high - low)


def _between(played: Mapping[Fraction, Summary], below: Fraction, above: Fraction, shortfall: float) -> Fraction:
    """The level to play next: not too near to either end, so that the other one moves as well."""
    share = min(0.85, max(0.15, _share(played, below, above, shortfall)))
    return Fraction(round(1000 * exp(log(below) + share * (log(above) - log(below)))), 1000)


def _level(played: Mapping[Fraction, Summary], shortfall: float) -> Level | None:
    ends = _ends(played, shortfall)
    if ends is None:
        return None
    (below, above), (first, second) = ends, (played[ends[0]], played[ends[1]])
    # By time: what an autoscaler needs that is at one level for a part of the time and at the other for the rest.
    # Across a level at which it ceases to act (a target at the limit), nearly all of that is the safe one.
    risks = (first.shortfall or 0.0), (second.shortfall or 0.0)
    share = 0.0 if below == above else (shortfall - risks[0]) / (risks[1] - risks[0])

    def mean(low: float, high: float) -> float:
        return low + share * (high - low)

    return Level(
        mean(float(below), float(above)),
        mean(first.pod_seconds, second.pod_seconds) / _HOUR,
        mean(first.flaps, second.flaps),
    )


def at_level(policy: Policy, high: Fraction, ratio: Fraction | None = None) -> Policy:
    """The policy with this high watermark of its first metric, and the low one at its share of it, or at `ratio`."""
    first, *others = policy.metrics
    if ratio is None and first.high and first.low is not None:
        ratio = first.low / first.high
    low = None if ratio is None else high * ratio
    return replace(policy, metrics=(replace(first, high=high, low=low), *others))


def front_of(result: Result, capacity: Fraction, history: OpenHistory) -> Front:
    """The fronts of the stock HPA, of the policy, and of a policy with the watermarks and the pace that we ship.

    `capacity` is that of a pod, in the unit of the first metric's watermarks (`player.capacity_of`).
    """
    compared = result.comparison
    policy, hpa = compared.policy, compared.hpa
    shipped = replace(hpa, scale_down=replace(SHIPPED_PACE, tolerance=hpa.scale_down.tolerance), has_behavior=True)
    kinds: dict[str, Callable[[Fraction], Autoscaler]] = {
        RAW: lambda share: HpaAutoscaler(_stock(compared, capacity * share)),
        f"policy {policy.name}": lambda share: PolicyAutoscaler(
            at_level(policy, capacity * share), hpa, "", compared.totals
        ),
        "policy as shipped": lambda share: PolicyAutoscaler(
            at_level(policy, capacity * share, SHIPPED_LOW), shipped, "", compared.totals
        ),
    }

    def play(made: Callable[[Fraction], Autoscaler], shares: Sequence[Fraction]) -> list[Summary]:
        with history() as ticks:
            runs = simulate(ticks, compared.setup, [made(share) for share in shares], compared.judge)
        return [run.summary for run in runs]

    return Front(
        shortfalls=SHORTFALLS,
        levels={name: levels_at(partial(play, made), SHORTFALLS) for name, made in kinds.items()},
        metric=policy.metrics[0],
        capacity=capacity,
    )


def _stock(compared: Comparison, high: Fraction) -> Hpa:
    """The stock HPA with its target at this level: the one that runs today keeps its behavior and tolerance."""
    aimed = stock_hpa_for(at_level(compared.policy, high), compared.hpa, compared.setup, compared.totals)
    return replace(compared.stock, metrics=aimed.metrics) if compared.is_given else aimed


def lines(front: Front) -> Iterator[str]:
    """The front as a table: a line for each shortfall, with pod-hours and level of each autoscaler."""
    yield "Pod-hours at equal shortfall, and the target or the high watermark that has it:"
    yield ""
    rows = [["SHORTFALL", *front.levels]]
    for index, shortfall in enumerate(front.shortfalls):
        rows.append([f"{100 * shortfall:g} %", *(_cell(front, one[index]) for one in front.levels.values())])
    yield from aligned(rows)


def _cell(front: Front, level: Level | None) -> str:
    return "never so small" if level is None else f"{level.pod_hours:.1f} ({_text(front, level)})"


def _text(front: Front, level: Level) -> str:
    """The level as a policy writes it, to a percent of the capacity."""
    return watermark_text(front.metric, front.capacity * round(100 * level.share) / 100)


def data(front: Front) -> list[dict[str, Any]]:
    """The front as JSON data: an entry for each shortfall; null where an autoscaler never has so little."""
    return [
        {
            "shortfallRatio": shortfall,
            "autoscalers": [
                {
                    "name": name,
                    "podHours": None if level is None else round(level.pod_hours, 3),
                    "level": None if level is None else _text(front, level),
                    "flaps": None if level is None else round(level.flaps, 1),
                }
                for name, level in ((name, levels[index]) for name, levels in front.levels.items())
            ],
        }
        for index, shortfall in enumerate(front.shortfalls)
    ]
