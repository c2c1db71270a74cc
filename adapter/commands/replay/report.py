"""The report of a replay as a table and as JSON data."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from adapter.commands.replay.comparison import Result
from adapter.commands.replay.service import Run, Summary
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import nano_text
from adapter.runtime.times import format_time

_HOUR = 3600
_DAY = 86_400
_COLUMNS = (
    "AUTOSCALER", "REPLICAS", "OVER HIGH", "LONGEST", "SHORTFALL", "CHANGES", "FLAPS", "OVERSHOOT", "POD-HOURS", "COST",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A comparison's result; `source` names where the history is from."""

    result: Result
    source: str = ""

    def text(self) -> Iterator[str]:
        """A table with one line for each autoscaler."""
        result, summary = self.result, self.result.runs[0].summary
        policy, price = result.comparison.policy, result.comparison.price
        span = f"{format_time(result.begin)} to {format_time(result.end)}"
        yield f"Replay of {policy.namespace}/{policy.name}, {span}: {_duration(summary.seconds)}, {result.ticks} ticks"
        yield from notes(result)
        yield ""
        rows = [
            (
                run.name,
                f"{run.summary.least} / {_average(run.summary):.1f} / {run.summary.peak}",
                _duration(run.summary.over_high),
                _duration(run.summary.recovery),
                "" if run.summary.shortfall is None else f"{100 * run.summary.shortfall:.3f} %",
                str(run.summary.changes),
                str(run.summary.flaps),
                str(run.summary.overshoot),
                f"{run.summary.pod_hours:.1f}",
                "" if price is None else f"{cost(run.summary, price):.2f}",
            )
            for run in result.runs
        ]
        yield from aligned([_COLUMNS, *rows])
        yield ""
        yield "REPLICAS: least / average / most. OVER HIGH: time with more than a high watermark on a serving pod."
        if any(run.summary.shortfall is not None for run in result.runs):
            yield "SHORTFALL: share of the load beyond the capacity of the serving pods."

    def as_json(self) -> str:
        """The report as a JSON text."""
        return json.dumps(data(self.result), indent=2)


def notes(result: Result) -> Iterator[str]:
    """What a reader of the figures should know of the history and the policy."""
    yield f"The stock HPA is {result.comparison.stock_is}"
    if unknown := result.runs[0].summary.unknown:
        yield f"{_duration(unknown)} without data: not judged, and nothing scales down on old samples"
    if result.comparison.policy.registry is not None:
        yield "Pull-outs are evidence by annotation here, not by the registry of the policy"


def _average(summary: Summary) -> float:
    return summary.pod_seconds / summary.seconds if summary.seconds else 0.0


def cost(summary: Summary, price: Fraction) -> float:
    """What the pods cost at this price for an hour of one."""
    return float(Fraction(summary.pod_seconds) / _HOUR * price)


def _duration(seconds: float) -> str:
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:g} d" if seconds % _DAY == 0 else f"{seconds / _DAY:.1f} d"
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds else "0"


def data(result: Result) -> dict[str, Any]:
    """The result as JSON data. Loads are quantities, times RFC 3339, durations seconds."""
    comparison = result.comparison
    return {
        "policy": {"namespace": comparison.policy.namespace, "name": comparison.policy.name},
        "from": format_time(result.begin),
        "to": format_time(result.end),
        "ticks": result.ticks,
        "stockHpa": comparison.stock_is,
        "highWatermarks": {name: nano_text(high) for name, high in comparison.judge.high.items()},
        "capacity": {name: nano_text(amount) for name, amount in comparison.setup.capacity.items()},
        "runs": [run_data(run, comparison.price) for run in result.runs],
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
            "most": summary.peak,
            "final": summary.final,
        },
        "overHighSeconds": summary.over_high,
        "longestOverHighSeconds": summary.recovery,
        "shortfallRatio": summary.shortfall,
        "lostLoadSeconds": None if summary.shortfall is None else nano_text(summary.lost),
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
                "serving": round(bucket.serving, 3),
                "pulledOut": round(bucket.pulled_out, 3),
                "averageLoad": None if bucket.average is None else nano_text(Fraction(bucket.average)),
                "highestLoad": None if bucket.highest is None else nano_text(Fraction(bucket.highest)),
            }
            for bucket in run.buckets
        ],
    }
