"""The page of one replay: headline, charts, figures and assumptions, in one HTML file that loads and sends nothing.

All text is escaped where it enters the template. The content security policy of the document admits only the style and
the script whose hashes it names, so that text from a policy cannot run even if an escape were missing.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from math import ceil
from pathlib import Path
from string import Template
from typing import Any

from adapter.commands.replay.autoscalers import capacity_of, plain_usage
from adapter.commands.replay.compare import SUBJECT, Result
from adapter.commands.replay.history import Stretch
from adapter.commands.replay.model import Moment, fault
from adapter.commands.replay.report import figures, notes, percent, span_text
from adapter.commands.replay.score import Run, Summary, pieces
from adapter.commands.terminal.output import duration
from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Metric

_STYLES = 8
_UNITS = {"cpu": ("m", NANO / 1000), "memory": ("B", float(NANO)), "ephemeral-storage": ("B", float(NANO))}
"""The unit of a chart by resource, and its worth in nano-units."""
_LEAST_BUCKET, _MOST_BUCKETS = 60, 1024
"""Seconds of a part of a chart, and parts of it."""
_IN_JSON = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def write_page(file: str, result: Result) -> None:
    """Write the page to the file of `--html`. Raises FaultyDocument where that fails."""
    try:
        Path(file).write_text(page(result), encoding="utf-8")
    except OSError as error:
        raise fault(
            "--html", file, f"cannot be written: {error.strerror}; name a file in a folder that exists"
        ) from error


def page(result: Result) -> str:
    """One HTML document."""
    service, runs = result.service, result.runs
    policy, setup = service.policy, service.setup
    metric = next((metric for metric in policy.metrics if not metric.floor), policy.metrics[0])
    texts = {
        name: resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
        for name in ("page.html", "uPlot.min.css", "page.css", "uPlot.LICENSE", "uPlot.iife.min.js", "page.js")
    }
    style = f"{texts['uPlot.min.css']}\n{texts['page.css']}"
    script = f"/*!\n{texts['uPlot.LICENSE']}*/\n{texts['uPlot.iife.min.js']}\n{texts['page.js']}"
    security = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(texts["page.html"]).substitute(
        security=security,
        style=style,
        script=script,
        title=escape(f"{policy.namespace}/{policy.name}"),
        metric=escape(metric.name),
        facts=escape(span_text(result)),
        headline=_headline(runs[SUBJECT].summary, runs[0]),
        buttons="".join(
            f'<button type="button" data-toggle="{index}" aria-pressed="true">{_titled(index, run.name)}</button>'
            for index, run in enumerate(runs)
        ),
        table=_table(result),
        notes="".join(f"<li>{escape(note)}</li>" for note in notes(result)),
        startup=f"{setup.pod_startup:g}",
        sync=f"{setup.sync:g}",
        age=f"{setup.sample_age:g}",
        window=f"{setup.window:g}",
        data=json.dumps(chart_data(result, metric), separators=(",", ":")).translate(_IN_JSON),
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _titled(index: int, name: str) -> str:
    return f'<span class="swatch" data-run="{_style(index)}" aria-hidden="true"></span><bdi>{escape(name)}</bdi>'


def _style(index: int) -> int:
    """The colour and dash of a run, a number that the style sheet and the script have: 0 for the policy's own."""
    return 0 if index == SUBJECT else 1 + (index if index < SUBJECT else index - 1) % (_STYLES - 1)


def _headline(ours: Summary, base: Run) -> str:
    """The pod-hours beside the stock HPA, and the risk that both are judged by."""
    theirs = base.summary
    risk = f"{percent(ours.shortfall_ratio)} of the load beyond the pods' capacity ({percent(theirs.shortfall_ratio)})"
    if ours.shortfall_ratio is None:
        risk = f"{duration(ours.over_high_seconds)} over the high watermark ({duration(theirs.over_high_seconds)})"
    return (
        f"With this policy, <strong>{100 * (ours.pod_hours / theirs.pod_hours - 1):+.1f} % pod-hours</strong> and "
        f"<strong>{escape(risk)}</strong>, compared with <bdi>{escape(base.name)}</bdi>."
    )


def _table(result: Result) -> str:
    head = "".join(f'<th scope="col">{_titled(index, run.name)}</th>' for index, run in enumerate(result.runs))
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for _, title, cells in figures(result)
    )
    return f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"


@dataclass(slots=True)
class _Bucket:
    """A part of a run for a chart: the smallest and the largest count, and the largest of all else.

    `load` is that of a serving pod, `total` that of the service (nano-units); None where it is unknown.
    """

    least: int
    most: int
    out: int = 0
    load: float | None = None
    total: float | None = None


def _buckets(history: Sequence[Stretch], run: Run, metric: str, length: float) -> list[_Bucket]:
    """The parts of a run, each of this length in seconds."""
    found: list[_Bucket] = []
    end = history[0].at
    for at, seconds, load, pods in pieces(history, run.moments):
        if at < end:
            _add(found[-1], load, pods, metric)
        while at + seconds > end:
            found.append(_Bucket(pods.replicas, pods.replicas))
            end = history[0].at + len(found) * length
            _add(found[-1], load, pods, metric)
    return found


def _add(bucket: _Bucket, load: Mapping[str, float] | None, pods: Moment, metric: str) -> None:
    bucket.least, bucket.most = min(bucket.least, pods.replicas), max(bucket.most, pods.replicas)
    bucket.out = max(bucket.out, pods.out)
    if load and metric in load:
        bucket.total = max(bucket.total or 0.0, load[metric])
        if pods.serving:
            bucket.load = max(bucket.load or 0.0, load[metric] / pods.serving)


def chart_data(result: Result, metric: Metric) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `needed` are the serving pods that the load needs at the high watermark each.
    """
    policy, setup, history = result.service.policy, result.service.setup, result.history
    unit, worth = _UNITS.get(metric.resource, ("", float(NANO)))
    if metric.relative_to is not None:
        unit, worth = "%", capacity_of(metric, setup) / 100
    marks = policy.limits_of(metric) if policy.algorithm is Algorithm.AVERAGE else (None, None)
    high, low = (None if mark is None else float(plain_usage(metric, mark, setup)) / worth for mark in marks)
    length = max(_LEAST_BUCKET, ceil((result.end - result.begin) / _MOST_BUCKETS))
    runs = [_buckets(history, run, metric.name, length) for run in result.runs]

    def column(values: Iterable[float | None], unit: float = 1.0) -> list[float | None]:
        found = [None if value is None else float(f"{value / unit:.4g}") for value in values]
        return [*found, found[-1]]  # a step lasts until the next value, and the last one until the end

    tolerance = float(policy.tolerance) if metric.target is None else 0.0  # limits of a target have it in them
    return {
        "times": [*(round(result.begin + length * index, 3) for index in range(len(runs[0]))), round(result.end, 3)],
        "unit": unit,
        "band": {
            "high": high,
            "low": low,
            "highPlus": None if high is None else high * (1 + tolerance),
            "lowMinus": None if low is None else low * (1 - tolerance),
        },
        "needed": column((bucket.total for bucket in runs[SUBJECT]), worth * high) if high else [],
        "pulledOut": column(bucket.out for bucket in runs[SUBJECT]),
        "runs": [
            {
                "name": run.name,
                "least": column(bucket.least for bucket in buckets),
                "most": column(bucket.most for bucket in buckets),
                "load": column((bucket.load for bucket in buckets), worth),
                "style": _style(index),
            }
            for index, (run, buckets) in enumerate(zip(result.runs, runs, strict=True))
        ],
    }
