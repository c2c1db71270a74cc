"""Plays the scenarios, one closed loop for each autoscaler, and makes their table, which docs/scenarios.md records."""

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.history import stretches
from adapter.commands.replay.loop import play as play_loop
from adapter.commands.replay.model import Autoscaler
from adapter.commands.replay.score import Summary, pieces
from adapter.commands.terminal.output import aligned
from tests.replay.scenarios.catalog import BEGAN, HOUR, MILLI, MINUTE, SCENARIOS, SETUP, Contender, ReplayScenario

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
_TABLE = re.compile(r"(?<=## Results\n\n```\n).*?(?=```\n)", re.DOTALL)
_HEAD = ("AUTOSCALER", "OVERSHOOT", "SHORTFALL", "TO THE GOAL", "FLAPS", "POD-HOURS", "PODS")
_LEGEND = (
    "OVERSHOOT    the most pods beyond what the load of that moment needed at the high watermark",
    "SHORTFALL    the share of the load beyond what the serving pods can carry: failed requests",
    "TO THE GOAL  the longest time in which serving pods carried more than the high watermark",
    "FLAPS        changes of the count that turned back within ten minutes",
)


class ScenarioResult(NamedTuple):
    """What one autoscaler did. `counts` are (seconds since the beginning, count), the first one at 0.

    `seconds_to_goal` is the longest time in a row with overloaded pods, None where it had no end.
    """

    name: str
    summary: Summary
    counts: tuple[tuple[int, int], ...]
    seconds_to_goal: float | None


def page() -> str:
    """The documentation with the table as it is now: a scenario's name and story, then a line for each autoscaler."""
    rows = {name: [cells(result) for result in results(name).values()] for name in SCENARIOS}
    lines = (f"  {line}" for line in aligned([_HEAD, *(row for group in rows.values() for row in group)]))
    table = [*_LEGEND, "", next(lines)]
    for name, group in rows.items():
        table += ["", f"{name}: {SCENARIOS[name].story}", *islice(lines, len(group))]
    return _TABLE.sub(lambda _: "\n".join([*table, ""]), PAGE.read_text(encoding="utf-8"))


def cells(result: ScenarioResult) -> tuple[str, ...]:
    """One line of the table."""
    summary, goal = result.summary, result.seconds_to_goal
    return (
        result.name,
        f"{summary.overshoot}",
        f"{100 * (summary.shortfall_ratio or 0):.2f} %",
        "never" if goal is None else duration(goal),
        f"{summary.flaps}",
        f"{summary.pod_hours:.2f}",
        f"{summary.replicas.least}-{summary.replicas.most}",
    )


def duration(seconds: float) -> str:
    """Seconds as people write them: 2h05m, 1m30s, 45s."""
    whole = round(seconds)
    if whole >= HOUR:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}m"
    return f"{whole // MINUTE}m{whole % MINUTE:02d}s" if whole >= MINUTE else f"{whole}s"


def play(scenario: ReplayScenario) -> list[ScenarioResult]:
    """Play a scenario with each of its contenders."""
    high = {"cpu": 1010.0 * MILLI}  # the high watermark with its tolerance of 1 %
    setup = replace(SETUP, replicas=scenario.replicas)
    history = stretches([scenario.tick(at) for at in range(0, scenario.seconds, 5)], setup)
    results = []
    for contender in scenario.contenders:
        minimum = contender.hpa.bounds.minimum
        run = play_loop(history, setup, _autoscaler(scenario, contender), high, minimum)
        counts = ((0, scenario.replicas), *((round(change.at - BEGAN), change.after) for change in run.changes))
        *_, (_, _, load, pods) = pieces(history, run.moments)
        is_over = any((load or {})[name] > mark * pods.serving for name, mark in high.items())
        goal = None if is_over else run.summary.longest_over_high_seconds
        results.append(ScenarioResult(contender.name, run.summary, counts, goal))
    return results


@functools.cache
def results(name: str) -> Mapping[str, ScenarioResult]:
    """The results of a scenario by autoscaler; each is played once in a process."""
    return {one.name: one for one in play(SCENARIOS[name])}


def counts(result: ScenarioResult) -> list[int]:
    """The counts in order."""
    return [count for _, count in result.counts]


def _autoscaler(scenario: ReplayScenario, contender: Contender) -> Autoscaler:
    if contender.policy is None:
        return HpaAutoscaler(contender.hpa, contender.name, effective=contender.effective)
    return PolicyAutoscaler(contender.policy, contender.hpa, contender.name, scenario.totals)
