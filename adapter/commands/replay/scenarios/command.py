"""`effective-load scenarios`: plays shipped scenarios."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from adapter.commands.replay.scenarios.catalog import SCENARIOS
from adapter.commands.replay.scenarios.play import ScenarioResult, play
from adapter.commands.replay.scenarios.scenario import BUILT_IN, HOUR, MINUTE, ShippedScenario
from adapter.commands.replay.text_table import aligned
from adapter.load.quantity import NANO
from adapter.runtime.faults import Fault, FaultyDocument

Played = Sequence[tuple[ShippedScenario, Sequence[ScenarioResult]]]
_HEAD = ("AUTOSCALER", "OVERSHOOT", "SHORTFALL", "TO THE GOAL", "FLAPS", "POD-HOURS", "PODS")
_LEGEND = (
    "OVERSHOOT    the most pods beyond what the load of that moment needed at the high watermark",
    "SHORTFALL    the share of the load beyond what the serving pods can carry: failed requests",
    "TO THE GOAL  the longest time in which serving pods carried more than the high watermark",
    "FLAPS        changes of the count that turned back within ten minutes",
)


class UnknownScenarioError(FaultyDocument):
    """A name is that of no scenario."""


def chosen(names: Sequence[str]) -> list[ShippedScenario]:
    """The scenarios of these names in their own order, all without names. Raises UnknownScenarioError."""
    known = ", ".join(SCENARIOS)
    faults = [Fault("", name, f"is no scenario; the scenarios are {known}") for name in names if name not in SCENARIOS]
    if faults:
        raise UnknownScenarioError(faults, "effective-load scenarios")
    return [one for one in SCENARIOS.values() if not names or one.name in names]


def lines(names: Sequence[str], *, as_json: bool) -> Iterator[str]:
    """Play the scenarios; their table, or one JSON document."""
    played = [(scenario, play(scenario)) for scenario in chosen(names)]
    if as_json:
        yield json.dumps(as_data(played), indent=2)
    else:
        yield from table(played)


def table(played: Played) -> Iterator[str]:
    """The lines of the table: a scenario's name and story, then a line for each autoscaler."""
    rows = [[cells(result) for result in results] for _, results in played]
    lines = (f"  {line}" for line in aligned([_HEAD, *(row for group in rows for row in group)]))
    yield from (*_LEGEND, "", next(lines))
    for (scenario, results), group in zip(played, rows, strict=True):
        yield from ("", f"{scenario.name}: {scenario.story}")
        yield from islice(lines, len(group))
        yield from _against_built_in(results)


def cells(result: ScenarioResult) -> tuple[str, ...]:
    """One line of the table."""
    summary, goal = result.summary, result.seconds_to_goal
    return (
        result.name,
        f"{summary.overshoot}",
        f"{100 * (summary.shortfall or 0):.2f} %",
        "never" if goal is None else duration(goal),
        f"{summary.flaps}",
        f"{summary.pod_seconds / HOUR:.2f}",
        f"{summary.least}-{summary.peak}",
    )


def duration(seconds: float) -> str:
    """Seconds as people write them: 2h05m, 1m30s, 45s."""
    whole = round(seconds)
    if whole >= HOUR:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}m"
    return f"{whole // MINUTE}m{whole % MINUTE:02d}s" if whole >= MINUTE else f"{whole}s"


def _against_built_in(results: Sequence[ScenarioResult]) -> Iterator[str]:
    """Where the experiment's built-in algorithm is among the autoscalers: the others against it."""
    base = next((one for one in results if one.name == BUILT_IN), None)
    if base is None or not base.summary.lost:
        return
    for one in results:
        if one is not base:
            failed = 100 * (one.summary.lost / base.summary.lost - 1)
            more = 100 * (one.throughput / base.throughput - 1)
            yield f"  {one.name} against {BUILT_IN}: failed requests {failed:+.2f} %, throughput {more:+.2f} %"


def as_data(played: Played) -> Mapping[str, Any]:
    """The results as JSON data; times in seconds, `secondsToGoal` is null where there was no end of the overload."""
    return {
        "scenarios": [
            {
                "name": scenario.name,
                "story": scenario.story,
                "seconds": scenario.seconds,
                "runs": [*map(_run, results)],
            }
            for scenario, results in played
        ]
    }


def _run(result: ScenarioResult) -> Mapping[str, Any]:
    summary = result.summary
    return {
        "autoscaler": result.name,
        "overshoot": summary.overshoot,
        "shortfall": round(summary.shortfall or 0.0, 6),
        "secondsToGoal": result.seconds_to_goal,
        "secondsOverHigh": summary.over_high,
        "flaps": summary.flaps,
        "podHours": round(summary.pod_seconds / HOUR, 4),
        "replicas": {"least": summary.least, "most": summary.peak, "final": summary.final},
        "load": {"asked": round(result.asked / NANO, 3), "failed": round(summary.lost / NANO, 3)},
        "counts": [{"at": at, "replicas": count} for at, count in result.counts],
    }
