"""The page of one replay: headline, charts, figures and assumptions, in one HTML file that loads and sends nothing.

All text is escaped where it enters the template. The content security policy of the document admits only the style and
the script whose hashes it names, so that text from a policy cannot run even if an escape were missing.
"""

import base64
import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from adapter.commands.replay.compare import SUBJECT, Result
from adapter.commands.replay.inputs import fault
from adapter.commands.replay.model import Bucket, Run, Setup, Summary
from adapter.commands.replay.report import figures, notes, span_text
from adapter.commands.replay.stock import capacity_of
from adapter.commands.terminal.output import duration
from adapter.load.quantity import NANO, nano_text
from adapter.load.spec import Algorithm, Metric, Policy

_STYLES = 8
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
        notes=_items(notes(result)),
        assumptions=_items(assumptions(setup)),
        data=json.dumps(chart_data(policy, setup, metric, runs), separators=(",", ":")).translate(_IN_JSON),
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _items(sentences: Iterator[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


def _titled(index: int, name: str) -> str:
    return f'<span class="swatch" data-run="{_style(index)}" aria-hidden="true"></span><bdi>{escape(name)}</bdi>'


def _style(index: int) -> int:
    """The colour and dash of a run, a number that the style sheet and the script have: 0 for the policy's own."""
    return 0 if index == SUBJECT else 1 + (index if index < SUBJECT else index - 1) % (_STYLES - 1)


def _headline(ours: Summary, base: Run) -> str:
    """The pod-hours beside the stock HPA, and the risk that both are judged by."""
    theirs = base.summary
    change = 100 * (ours.pod_seconds / theirs.pod_seconds - 1) if theirs.pod_seconds else 0.0
    if ours.shortfall is not None:
        shares = f"{100 * ours.shortfall:.3f} % of the load", f"{100 * (theirs.shortfall or 0):.3f} %"
        risk = f"{shares[0]} beyond the pods' capacity ({shares[1]})"
    else:
        risk = f"{duration(ours.over_high)} over the high watermark ({duration(theirs.over_high)})"
    return (
        f"With this policy, <strong>{change:+.1f} % pod-hours</strong> and <strong>{escape(risk)}</strong>, "
        f"compared with <bdi>{escape(base.name)}</bdi>."
    )


def _table(result: Result) -> str:
    head = "".join(f'<th scope="col">{_titled(index, run.name)}</th>' for index, run in enumerate(result.runs))
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for _, title, cells in figures(result)
    )
    return f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"


def assumptions(setup: Setup) -> Iterator[str]:
    """The assumptions of the replay, one sentence each."""
    yield "Closed loop: the recorded load of the whole service, spread evenly over the pods that serve."
    yield "Pulled-out pods are as many as were recorded. They are Ready, count as replicas, and carry nothing."
    yield f"A new pod serves {setup.pod_startup:g} s after its creation. Every pod finds a node."
    yield (
        f"The HPA syncs every {setup.sync:g} s and reads samples that are {setup.sample_age:g} s old and cover "
        f"{setup.window:g} s."
    )
    yield "The HPA is a model of the controller; the policy is decided by the code that serves the real HPA."
    for name, nano in sorted(setup.capacity.items()):
        yield f"One pod can carry {nano_text(nano)} {name}. Load beyond that is shortfall and does not come back."
    yield "Clients neither retry nor leave: the load is the same with any number of pods."


class _Scale(NamedTuple):
    """The unit of a chart's loads, worth so many nano-units, with the watermarks in it; None where there is none."""

    unit: str
    worth: float
    high: float | None
    low: float | None


def _scale(policy: Policy, setup: Setup, metric: Metric) -> _Scale:
    """The unit of a policy's metric: percent of the capacity, millicores, bytes, or the metric's own."""
    unit = {"cpu": "m", "memory": "B", "ephemeral-storage": "B"}.get(metric.resource_name, "")
    worth = mark = Fraction(NANO, 1000 if unit == "m" else 1)
    if capacity := capacity_of(metric, setup) if metric.relative_to else 0:
        unit, worth, mark = "%", Fraction(capacity, 100), Fraction(NANO, 100)
    if policy.algorithm is Algorithm.ABSOLUTE:  # the watermarks are not those of one pod
        return _Scale(unit, float(worth), None, None)
    high, low = (None if nano is None else float(nano / mark) for nano in policy.limits_of(metric))
    return _Scale(unit, float(worth), high, low)


def chart_data(policy: Policy, setup: Setup, metric: Metric, runs: Sequence[Run]) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `needed` are the serving pods that the load needs at the high watermark each.
    """
    scale = _scale(policy, setup, metric)
    times = sorted({bucket.at for run in runs for bucket in run.buckets})
    end = max(run.buckets[-1].at + run.buckets[-1].seconds for run in runs)
    starts = [[bucket.at for bucket in run.buckets] for run in runs]
    on_axis = [
        [run.buckets[max(0, bisect_right(begun, at) - 1)] for at in times]
        for run, begun in zip(runs, starts, strict=True)
    ]

    def column(buckets: Sequence[Bucket], value: Callable[[Bucket], float | None]) -> list[float | None]:
        found = [None if (one := value(bucket)) is None else float(f"{one:.4g}") for bucket in buckets]
        return [*found, found[-1]]  # a step lasts until the next value, and the last one until the end

    def load(bucket: Bucket) -> float | None:
        return None if bucket.average is None else bucket.average / scale.worth

    def needed(bucket: Bucket) -> float | None:
        average = load(bucket)
        return None if average is None or not scale.high else average * bucket.served / bucket.seconds / scale.high

    tolerance = float(policy.tolerance) if metric.target is None else 0.0  # limits of a target have it in them
    return {
        "times": [*(round(at, 3) for at in times), round(end, 3)],
        "unit": scale.unit,
        "metric": metric.name,
        "band": {
            "high": scale.high,
            "low": scale.low,
            "highPlus": None if scale.high is None else scale.high * (1 + tolerance),
            "lowMinus": None if scale.low is None else scale.low * (1 - tolerance),
        },
        "needed": column(on_axis[SUBJECT], needed) if scale.high else [],
        "pulledOut": column(on_axis[SUBJECT], lambda bucket: bucket.out / bucket.seconds),
        "runs": [
            {
                "name": run.name,
                "least": column(buckets, lambda bucket: bucket.least),
                "most": column(buckets, lambda bucket: bucket.most),
                "average": column(buckets, load),
                "highest": column(buckets, lambda bucket: bucket.highest / scale.worth if bucket.carrying else None),
                "style": _style(index),
            }
            for index, (run, buckets) in enumerate(zip(runs, on_axis, strict=True))
        ],
    }
