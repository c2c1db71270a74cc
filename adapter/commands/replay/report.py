"""The figures of a replay: for the table, the page, and as JSON data."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from adapter.commands.replay.compare import SUBJECT, Result
from adapter.commands.replay.model import Run, Summary
from adapter.commands.terminal.output import aligned, duration
from adapter.load.quantity import nano_text
from adapter.runtime.times import format_time

_FIGURES: dict[str, tuple[str, Callable[[Summary], str]]] = {
    "REPLICAS": ("Replicas: least / average / most", lambda one: f"{one.least} / {one.average:.1f} / {one.most}"),
    "OVER HIGH": ("Time over the high watermark", lambda one: duration(one.over_high)),
    "LONGEST": ("Longest time over it in a row", lambda one: duration(one.longest)),
    "SHORTFALL": (
        "Load beyond the pods' capacity",
        lambda one: "" if one.shortfall is None else f"{100 * one.shortfall:.3f} %",
    ),
    "CHANGES": ("Changes of the count", lambda one: f"{one.changes:,}"),
    "FLAPS": ("Flaps (changes turned back within 10 minutes)", lambda one: f"{one.flaps:,}"),
    "OVERSHOOT": ("Most replicas beyond the need", lambda one: f"{one.overshoot:,}"),
    "POD-HOURS": ("Pod-hours", lambda one: f"{one.pod_hours:.1f}"),
}
"""The columns of the table with their titles on the page."""


def figures(result: Result) -> Iterator[tuple[str, str, list[str]]]:
    """Head, title, and a cell for each run; without the shortfall where no capacity is known."""
    price = result.service.price
    for head, (title, figure) in _FIGURES.items():
        if any(cells := [figure(run.summary) for run in result.runs]):
            yield head, title, cells
    if price is not None:
        yield "COST", "Cost", [f"{cost(run.summary, price):.2f}" for run in result.runs]


def lines(result: Result) -> Iterator[str]:
    """A table with one line for each autoscaler."""
    policy = result.service.policy
    yield f"Replay of {policy.namespace}/{policy.name}, {span_text(result)}, {result.ticks} ticks"
    yield from notes(result)
    yield ""
    columns = [("AUTOSCALER", *(run.name for run in result.runs))]
    columns += [(head, *cells) for head, _, cells in figures(result)]
    yield from aligned(list(zip(*columns, strict=True)))
    yield ""
    yield "REPLICAS: least / average / most. OVER HIGH: time with more than a high watermark on a serving pod."
    if result.runs[SUBJECT].summary.shortfall is not None:
        yield "SHORTFALL: share of the load beyond the capacity of the serving pods."


def span_text(result: Result) -> str:
    """Its beginning, end and length."""
    length = duration(result.end - result.begin)
    return f"{format_time(result.begin)} to {format_time(result.end)}: {length}"


def notes(result: Result) -> Iterator[str]:
    """What a reader of the figures should know of the history and the policy."""
    yield f"The stock HPA is {result.stock_is}"
    raw, ours = result.runs[0].summary, result.runs[SUBJECT].summary
    if ours.pod_seconds > raw.pod_seconds:
        yield (
            f"The policy has more pod-hours: it is over the high watermark for {duration(ours.over_high)} instead of "
            f"{duration(raw.over_high)}, at most {duration(ours.longest)} instead of {duration(raw.longest)} in a row. "
            "A higher lowWatermark has fewer pods; --sweep tries others"
        )
    if unknown := raw.unknown:
        yield f"{duration(unknown)} without data: not judged, and nothing scales down on old samples"
    if result.service.policy.registry is not None:
        yield "Pull-outs are evidence by annotation here, not by the registry of the policy"


def cost(summary: Summary, price: Fraction) -> float:
    """What the pods cost at this price for an hour of one."""
    return summary.pod_hours * float(price)


def data(result: Result) -> dict[str, Any]:
    """The result as JSON data. Loads are quantities, times RFC 3339, durations seconds."""
    service = result.service
    return {
        "policy": {"namespace": service.policy.namespace, "name": service.policy.name},
        "from": format_time(result.begin),
        "to": format_time(result.end),
        "ticks": result.ticks,
        "stockHpa": result.stock_is,
        "capacity": {name: nano_text(amount) for name, amount in service.setup.capacity.items()},
        "runs": [_run(run, service.price) for run in result.runs],
    }


def _run(run: Run, price: Fraction | None) -> dict[str, Any]:
    """One run as JSON data; `changes` lists the first ones, `chart` is the run over time."""
    one = run.summary
    counts = {"least": one.least, "average": round(one.average, 3), "most": one.most, "final": one.final}
    chart = [
        {
            "at": format_time(bucket.at),
            "seconds": bucket.seconds,
            "least": bucket.least,
            "most": bucket.most,
            "averageLoad": None if bucket.average is None else nano_text(round(bucket.average)),
        }
        for bucket in run.buckets
    ]
    return {
        "name": run.name,
        "seconds": one.seconds,
        "unknownSeconds": one.unknown,
        "replicas": counts,
        "overHighSeconds": one.over_high,
        "longestOverHighSeconds": one.longest,
        "shortfallRatio": one.shortfall,
        "changeCount": one.changes,
        "flaps": one.flaps,
        "overshoot": one.overshoot,
        "podHours": round(one.pod_hours, 3),
        "cost": None if price is None else round(cost(one, price), 4),
        "changes": [{"at": format_time(at), "before": before, "after": after} for at, before, after in run.changes],
        "chart": chart,
    }
