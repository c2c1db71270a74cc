"""The report of a replay as a table and as JSON data."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from adapter.commands.replay.compare import Result
from adapter.commands.replay.model import Run, Summary
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import nano_text
from adapter.runtime.times import format_time

_HOUR, _DAY = 3600, 86_400
_COLUMNS = (
    "AUTOSCALER", "REPLICAS", "OVER HIGH", "LONGEST", "SHORTFALL", "CHANGES", "FLAPS", "OVERSHOOT", "POD-HOURS", "COST",
)  # fmt: skip


def lines(result: Result) -> Iterator[str]:
    """A table with one line for each autoscaler."""
    policy, price = result.service.policy, result.service.price
    span = f"{format_time(result.begin)} to {format_time(result.end)}"
    length = duration_text(result.end - result.begin)
    yield f"Replay of {policy.namespace}/{policy.name}, {span}: {length}, {result.ticks} ticks"
    yield from notes(result)
    yield ""
    yield from aligned([_COLUMNS, *(_cells(run, price) for run in result.runs)])
    yield ""
    yield "REPLICAS: least / average / most. OVER HIGH: time with more than a high watermark on a serving pod."
    if any(run.summary.shortfall is not None for run in result.runs):
        yield "SHORTFALL: share of the load beyond the capacity of the serving pods."


def _cells(run: Run, price: Fraction | None) -> tuple[str, ...]:
    summary = run.summary
    return (
        run.name,
        f"{summary.least} / {_average(summary):.1f} / {summary.most}",
        duration_text(summary.over_high),
        duration_text(summary.longest),
        "" if summary.shortfall is None else f"{100 * summary.shortfall:.3f} %",
        str(summary.changes),
        str(summary.flaps),
        str(summary.overshoot),
        f"{summary.pod_hours:.1f}",
        "" if price is None else f"{cost(summary, price):.2f}",
    )


def notes(result: Result) -> Iterator[str]:
    """What a reader of the figures should know of the history and the policy."""
    yield f"The stock HPA is {result.stock_is}"
    if unknown := result.runs[0].summary.unknown:
        yield f"{duration_text(unknown)} without data: not judged, and nothing scales down on old samples"
    if result.service.policy.registry is not None:
        yield "Pull-outs are evidence by annotation here, not by the registry of the policy"


def _average(summary: Summary) -> float:
    return summary.pod_seconds / summary.seconds if summary.seconds else 0.0


def cost(summary: Summary, price: Fraction) -> float:
    """What the pods cost at this price for an hour of one."""
    return summary.pod_hours * float(price)


def duration_text(seconds: float) -> str:
    """A duration in its largest unit of which there are two: 7 d, 5.6 h, 14.0 min; 0 for none."""
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:g} d" if seconds % _DAY == 0 else f"{seconds / _DAY:.1f} d"
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds else "0"


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
        "runs": [run_data(run, service.price) for run in result.runs],
    }


def run_data(run: Run, price: Fraction | None) -> dict[str, Any]:
    """One run as JSON data; `changes` lists the first ones, `chart` is the run over time."""
    summary = run.summary
    return {
        "name": run.name,
        "seconds": summary.seconds,
        "unknownSeconds": summary.unknown,
        "replicas": {
            "least": summary.least,
            "average": round(_average(summary), 3),
            "most": summary.most,
            "final": summary.final,
        },
        "overHighSeconds": summary.over_high,
        "longestOverHighSeconds": summary.longest,
        "shortfallRatio": summary.shortfall,
        "changeCount": summary.changes,
        "flaps": summary.flaps,
        "overshoot": summary.overshoot,
        "podHours": round(summary.pod_hours, 3),
        "cost": None if price is None else round(cost(summary, price), 4),
        "changes": [
            {"at": format_time(change.at), "before": change.before, "after": change.after} for change in run.changes
        ],
        "chart": [
            {
                "at": format_time(bucket.at),
                "seconds": bucket.seconds,
                "least": bucket.least,
                "most": bucket.most,
                "averageLoad": None if bucket.average is None else nano_text(round(bucket.average)),
            }
            for bucket in run.buckets
        ],
    }
