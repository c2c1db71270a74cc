"""The page of one replay: headline, charts, figures and assumptions, in one HTML file that loads and sends nothing.

All text is escaped where it enters the template. The content security policy of the document admits only the style and
the script whose hashes it names, so that text from a policy cannot run even if an escape were missing.
"""

import base64
import hashlib
import json
from html import escape
from importlib import resources
from math import ceil, inf
from pathlib import Path
from string import Template
from typing import Any

from adapter.commands.replay.autoscalers import capacity_of, plain_usage
from adapter.commands.replay.compare import SUBJECT, Result
from adapter.commands.replay.model import fault
from adapter.commands.replay.report import MEANING, figures, notes, span_text
from adapter.commands.replay.score import Run, Summary, pieces
from adapter.commands.terminal.output import duration
from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Metric

_UNITS = {"cpu": ("m", NANO / 1000), "memory": ("B", float(NANO)), "ephemeral-storage": ("B", float(NANO))}
"""The unit of a chart by resource, and its worth in nano-units."""
_LEAST_PART, _MOST_PARTS = 60, 1024
"""Seconds of a part of a chart, and parts of it."""
_IN_JSON = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def write_page(file: str, result: Result) -> None:
    """Write the page to the file of `--html`. Raises FaultyDocument where that fails."""
    try:
        Path(file).write_text(page(result), encoding="utf-8")
    except OSError as error:
        advice = f"cannot be written: {error.strerror}; name a file in a folder that exists"
        raise fault("--html", file, advice) from error


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
        notes="".join(f"<li>{escape(note)}</li>" for note in (*notes(result), MEANING)),
        startup=f"{setup.pod_startup:g}",
        sync=f"{setup.sync:g}",
        age=f"{setup.sample_age:g}",
        window=f"{setup.window:g}",
        data=json.dumps(chart_data(result, metric), separators=(",", ":")).translate(_IN_JSON),
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _titled(index: int, name: str) -> str:
    return f'<span class="swatch" data-run="{index}" aria-hidden="true"></span><bdi>{escape(name)}</bdi>'


def _headline(ours: Summary, base: Run) -> str:
    """The pod-hours beside the stock HPA, and the risks: a policy that costs more is over its watermark for less."""
    hours = f"<strong>{100 * (ours.pod_hours / base.summary.pod_hours - 1):+.1f} % pod-hours</strong>"
    over, instead = (duration(one.over_high_seconds) for one in (ours, base.summary))
    over = f"<strong>{over} over the high watermark</strong> instead of {instead}"
    return f"With this policy, beside <bdi>{escape(base.name)}</bdi>: {hours}, {over}."


def _table(result: Result) -> str:
    head = "".join(f'<th scope="col">{_titled(index, run.name)}</th>' for index, run in enumerate(result.runs))
    body = "".join(
        f'<tr><th scope="row">{escape(head)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for head, *cells in figures(result)
    )
    return f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"


Column = list[float | None]


def _columns(result: Result, run: Run, metric: str, length: float) -> dict[str, Column]:
    """A run in parts of this length (seconds): the smallest and the largest count, and the largest of all else.

    `load` is that of a serving pod, `total` that of the service (nano-units); None where it is unknown.
    """
    count = ceil((result.end - result.begin) / length)
    columns: dict[str, Column] = {name: [None] * count for name in ("least", "most", "out", "load", "total")}
    for at, seconds, load, pods in pieces(result.history, run.moments):
        total = (load or {}).get(metric)
        share = None if total is None or not pods.serving else total / pods.serving
        found = {"least": -pods.replicas, "most": pods.replicas, "out": pods.out, "load": share, "total": total}
        first, last = int((at - result.begin) / length), ceil((at + seconds - result.begin) / length)
        for name, value in found.items():
            if value is not None:
                column = columns[name]
                for index in range(first, min(last, count)):
                    column[index] = max(value, -inf if (known := column[index]) is None else known)
    return columns | {"least": [None if value is None else -value for value in columns["least"]]}


def chart_data(result: Result, metric: Metric) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `needed` are the serving pods that the load needs at the high watermark each.
    """
    policy, setup = result.service.policy, result.service.setup
    unit, worth = _UNITS.get(metric.resource, ("", float(NANO)))
    if metric.relative_to is not None:
        unit, worth = "%", capacity_of(metric, setup) / 100
    marks = (*policy.limits_of(metric), *policy.edges_of(metric))
    if policy.algorithm is Algorithm.ABSOLUTE:
        marks = (None, None, None, None)
    plain = [None if mark is None else float(plain_usage(metric, mark, setup)) / worth for mark in marks]
    length = max(_LEAST_PART, ceil((result.end - result.begin) / _MOST_PARTS))
    runs = [_columns(result, run, metric.name, length) for run in result.runs]

    def shown(column: Column, unit: float = 1.0) -> Column:
        found = [None if value is None else float(f"{value / unit:.4g}") for value in column]
        return [*found, found[-1]]  # a step lasts until the next value, and the last one until the end

    ours = runs[SUBJECT]
    return {
        "times": [*(round(result.begin + length * index, 3) for index in range(len(ours["out"]))), result.end],
        "unit": unit,
        "band": dict(zip(("high", "low", "highPlus", "lowMinus"), plain, strict=True)),
        "needed": shown(ours["total"], worth * plain[0]) if plain[0] else [],
        "pulledOut": shown(ours["out"]),
        "runs": [
            {"name": run.name, "style": index, "load": shown(columns["load"], worth)}
            | {name: shown(columns[name]) for name in ("least", "most")}
            for index, (run, columns) in enumerate(zip(result.runs, runs, strict=True))
        ],
    }
