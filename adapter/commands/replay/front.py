"""The front of an autoscaler: the pod-hours that it needs at one shortfall or another, found by moving its level.

The level is the stock HPA's target or the policy's high watermark; the low watermark keeps its share of the high one.
With its tolerance it is never above the CPU limit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.comparison import RAW, SUBJECT, Result, stock_pair
from adapter.commands.replay.hpas import HIGHEST, highest_level, scaled_targets, stock_hpa_for
from adapter.commands.replay.levels import Level, highest_safe, level_at, risk_of, search_levels
from adapter.commands.replay.service import Autoscaler, OpenHistory, Summary
from adapter.commands.replay.suggest import SHIPPED_LOW, watermark_text
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import percent_text
from adapter.load.spec import Metric, Policy
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import DEFAULT_TOLERANCE

SHORTFALLS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)
LEVELS = tuple(Fraction(percent, 100) for percent in (15, 35, 60, 85, 100))
"""The levels that are played first, as shares of a pod's capacity."""
_ROUNDS = 2
_SHARES = tuple(Fraction(percent, 100) for percent in (40, 65, 90, 115, 140))
"""The shares of its target at which the stock HPA is played first."""
_AIM_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The fronts of some autoscalers by name: a level for each of SHORTFALLS, None where none is safe enough."""

    levels: Mapping[str, Sequence[Level | None]]
    metric: Metric
    capacity: Fraction


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
    name, plain = policy.metrics[0].name, Fraction(compared.setup.capacity[policy.metrics[0].name])
    tolerance = compared.stock.scale_up.tolerance

    def stock(share: Fraction) -> Autoscaler:
        """The one that runs today keeps its behavior and tolerance."""
        aimed = stock_hpa_for(at_level(policy, capacity * share), hpa, compared.setup, compared.totals)
        return HpaAutoscaler(replace(compared.stock, metrics=aimed.metrics) if compared.is_given else aimed)

    def ours(share: Fraction) -> Autoscaler:
        return PolicyAutoscaler(at_level(policy, capacity * share), hpa, "", compared.totals)

    def as_shipped(share: Fraction) -> Autoscaler:
        return PolicyAutoscaler(at_level(policy, capacity * share, SHIPPED_LOW), shipped, "", compared.totals)

    def levels(tolerance: Fraction, made: Callable[[Fraction], Autoscaler]) -> list[Level | None]:
        def play(shares: Sequence[Fraction]) -> list[Summary]:
            return [run.summary for run in compared.play(history, [made(share) for share in shares])]

        most = highest_level(compared.setup, name, tolerance, plain)
        played = search_levels(play, SHORTFALLS, sorted({min(most, level) for level in LEVELS}), _ROUNDS)
        return [level_at(played, shortfall) for shortfall in SHORTFALLS]

    return Front(
        levels={
            RAW: levels(DEFAULT_TOLERANCE if tolerance is None else tolerance, stock),
            f"policy {policy.name}": levels(policy.tolerance, ours),
            "policy as shipped": levels(policy.tolerance, as_shipped),
        },
        metric=policy.metrics[0],
        capacity=capacity,
    )


def lines(front: Front) -> Iterator[str]:
    """The front as a table: a line for each shortfall, with pod-hours and level of each autoscaler."""
    yield "Pod-hours at equal shortfall, and the target or the high watermark that has it:"
    yield ""
    rows = [["SHORTFALL", *front.levels]]
    for index, shortfall in enumerate(SHORTFALLS):
        levels = [level[index] for level in front.levels.values()]
        cells = (
            "never so small" if level is None else f"{level.pod_hours:.1f} ({_text(front, level)})" for level in levels
        )
        rows.append([f"{100 * shortfall:g} %", *cells])
    yield from aligned(rows)


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
        for index, shortfall in enumerate(SHORTFALLS)
    ]


def aimed_fairly(result: Result, history: OpenHistory) -> Result:
    """The result with the stock HPA aimed to have the policy's risk.

    An HPA that was given stays as it is. So does one without a target, or where nothing says what is too much.
    """
    compared = result.comparison
    if compared.is_given or not compared.stock.metrics or not (compared.setup.capacity or compared.judge.high):
        return result

    def play(shares: Sequence[Fraction]) -> list[Summary]:
        autoscalers = [HpaAutoscaler(scaled_targets(compared.stock, share)) for share in shares]
        return [run.summary for run in compared.play(history, autoscalers)]

    high = compared.judge.high.items()
    most = min((highest_level(compared.setup, name, DEFAULT_TOLERANCE, mark) for name, mark in high), default=HIGHEST)
    wanted = risk_of(result.runs[SUBJECT].summary)
    shares = sorted({min(most, share) for share in _SHARES})
    safe = highest_safe(search_levels(play, [wanted], shares, _AIM_ROUNDS), wanted)
    share = shares[0] if safe is None else safe
    stock = scaled_targets(compared.stock, share)
    runs = compared.play(history, stock_pair(stock))
    what = "shortfall" if compared.setup.capacity else "time over the high watermark"
    verdict = "at most" if safe is not None else "still above"
    said = f"aimed at {percent_text(round(share, 3))} of the high watermark, where its {what} is {verdict} the policy's"
    return replace(
        result, comparison=replace(compared, stock=stock, stock_is=said), runs=[*runs, *result.runs[SUBJECT:]]
    )
