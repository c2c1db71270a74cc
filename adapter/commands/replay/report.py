"""The figures of a replay: for the table, the page, and as JSON data."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from adapter.commands.replay.compare import SUBJECT, Result
from adapter.commands.replay.score import Summary
from adapter.commands.terminal.output import aligned, duration
from adapter.load.quantity import nano_text
from adapter.runtime.times import format_time

_FIGURES: dict[str, Callable[[Summary], str]] = {
    "REPLICAS": lambda one: f"{one.replicas.least} / {one.replicas.average:.1f} / {one.replicas.most}",
    "OVER HIGH": lambda one: duration(one.over_high_seconds),
    "LONGEST": lambda one: duration(one.longest_over_high_seconds),
    "SHORTFALL": lambda one: percent(one.shortfall_ratio),
    "CHANGES": lambda one: f"{one.change_count:,}",
    "FLAPS": lambda one: f"{one.flaps:,}",
    "OVERSHOOT": lambda one: f"{one.overshoot:,}",
    "POD-HOURS": lambda one: f"{one.pod_hours:.1f}",
}
MEANING = (
    "REPLICAS: least / average / most. OVER HIGH: time with more than a high watermark on a serving pod; LONGEST: in a "
    "row. FLAPS: changes turned back within 10 minutes. OVERSHOOT: most replicas beyond the need."
)


def percent(ratio: float | None) -> str:
    """A share for people; empty where it is unknown."""
    return "" if ratio is None else f"{100 * ratio:.3f} %"


def figures(result: Result) -> list[tuple[str, ...]]:
    """Head, and a cell for each run; without the shortfall where no capacity is known."""
    rows = [(head, *(figure(run.summary) for run in result.runs)) for head, figure in _FIGURES.items()]
    return [row for row in rows if any(row[1:])]


def lines(result: Result) -> Iterator[str]:
    """A table with one line for each autoscaler."""
    policy = result.service.policy
    yield f"Replay of {policy.namespace}/{policy.name}, {span_text(result)}, {result.ticks} ticks"
    yield from notes(result)
    yield ""
    columns = [("AUTOSCALER", *(run.name for run in result.runs)), *figures(result)]
    yield from aligned(list(zip(*columns, strict=True)))
    yield from ("", MEANING)


def span_text(result: Result) -> str:
    """Its beginning, end and length."""
    length = duration(result.end - result.begin)
    return f"{format_time(result.begin)} to {format_time(result.end)}: {length}"


def notes(result: Result) -> Iterator[str]:
    """What a reader of the figures should know of the history and the policy."""
    yield f"The stock HPA is {result.stock_is}"
    raw, ours = result.runs[0].summary, result.runs[SUBJECT].summary
    if ours.pod_hours > raw.pod_hours:
        pairs = ((one.over_high_seconds, one.longest_over_high_seconds) for one in (ours, raw))
        over, longest = (" instead of ".join(map(duration, pair)) for pair in zip(*pairs, strict=True))
        yield f"The policy has more pod-hours: it is over the high watermark for {over}, at most {longest} in a row"
    if raw.unknown_seconds:
        yield f"{duration(raw.unknown_seconds)} without data: not judged, and nothing scales down on old samples"
    if capacity := result.service.setup.capacity:
        carried = ", ".join(f"{nano_text(amount)} {name}" for name, amount in capacity.items())
        yield f"Load beyond what the serving pods can carry, {carried} each, is shortfall"
    if result.service.policy.registry is not None:
        yield "Pull-outs are evidence by annotation here, not by the registry of the policy"


def data(result: Result) -> dict[str, Any]:
    """The result as JSON data: every run's figures, and its count over time as `changes`."""
    service = result.service
    return {
        "policy": {"namespace": service.policy.namespace, "name": service.policy.name},
        "from": format_time(result.begin),
        "to": format_time(result.end),
        "ticks": result.ticks,
        "stockHpa": result.stock_is,
        "capacity": {name: nano_text(amount) for name, amount in service.setup.capacity.items()},
        "runs": [
            {"name": run.name}
            | msgspec.to_builtins(run.summary)
            | {"changes": [{"at": format_time(at), "before": old, "after": new} for at, old, new in run.changes]}
            for run in result.runs
        ],
    }
