"""The page of one replay: headline, figures, charts, suggestions, and what the model assumes."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import compress
from typing import Any, NamedTuple

from adapter.commands.replay.hpas import resource_of, shared_amount
from adapter.commands.replay.page.markup import (
    LIBRARY_VERSION,
    NOT_KNOWN,
    Html,
    change_text,
    count_text,
    document,
    duration_text,
    hours,
    join,
    minutes,
    share_text,
    tag,
)
from adapter.commands.replay.service import Bucket, Run, Setup, Summary
from adapter.commands.replay.suggest import Candidate, Suggestions, watermark_text
from adapter.commands.replay.suggestion_report import behavior_texts, patch_text
from adapter.load.quantity import NANO, nano_text
from adapter.load.spec import Average, Metric, Policy
from adapter.runtime.times import format_time

Figure = Callable[[Run], str]
Column = list[float | None]
_STYLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a page shows. `since` and `until` are seconds since the epoch; `source` names where the history is from.

    `runs[subject]` is the policy's own run; the others are compared with `runs[0]`. `load` names the metric that their
    loads are of (empty: the first). `price` is that of one pod for an hour. `manifest` is the policy's object, for the
    patches of `suggestions`. `notes` are sentences about the history, such as gaps in it.
    """

    policy: Policy
    setup: Setup
    since: float
    until: float
    runs: Sequence[Run]
    subject: int = 0
    load: str = ""
    source: str = ""
    price: Fraction | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    suggestions: Suggestions | None = None
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The policy with its namespace."""
        return f"{self.policy.namespace}/{self.policy.name}"

    @property
    def metric(self) -> Metric:
        """The metric that the charts show."""
        return next((known for known in self.policy.metrics if known.name == self.load), self.policy.metrics[0])

    def cost(self, run: Run) -> str:
        """What the pods of a run cost, for people."""
        return NOT_KNOWN if self.price is None else f"{float(self.price) * hours(run.summary.pod_seconds):,.2f}"


def page(report: Report) -> str:
    """One HTML document that needs nothing else. Raises ValueError without a run."""
    if not report.runs:
        raise ValueError("a replay without a run has nothing to show")
    body = join(
        [
            tag("a", "Skip to the charts", class_="skip", href="#charts"),
            tag("header", *_heading(report)),
            tag(
                "main",
                tag(
                    "section",
                    (_card(report, index, run) for index, run in enumerate(report.runs)),
                    class_="cards",
                    aria_label="Results at a glance",
                ),
                _charts(report),
                _table(report),
                suggestions_section(report.suggestions, report.manifest),
                tag(
                    "section",
                    tag("h2", "What is modelled"),
                    tag("ul", (tag("li", sentence) for sentence in assumptions(report.setup))),
                    class_="model",
                ),
            ),
            tag("footer", f"Charts: uPlot {LIBRARY_VERSION} (MIT licence). This page loads nothing and sends nothing."),
        ]
    )
    data = chart_data(report.policy, report.setup, report.metric, report.runs, report.subject) | {
        "front": front_data(report.suggestions)
    }
    return document(f"Replay of {report.title}", body, data)


def _heading(report: Report) -> Iterable[Html]:
    yield tag("p", "Replay", class_="kind")
    yield tag("h1", tag("bdi", report.title))
    length = duration_text(report.until - report.since)
    facts = [f"{format_time(report.since)} to {format_time(report.until)} ({length})", report.source]
    yield tag("p", " · ".join(filter(None, facts)), class_="facts")
    yield tag("p", *_headline(report), class_="headline")


def _headline(report: Report) -> Iterable[str]:
    ours, base = report.runs[report.subject], report.runs[0]
    over = duration_text(ours.summary.over_high)
    yield "With this policy, pods would have been over the high watermark for "
    yield tag("strong", over)
    if ours is base:
        yield f", with {count_text(hours(ours.summary.pod_seconds))} pod-hours."
        return
    yield f" instead of {duration_text(base.summary.over_high)} with "
    yield tag("bdi", base.name)
    if ours.summary.shortfall or base.summary.shortfall:
        yield ", the load beyond the pods' capacity "
        yield tag("strong", share_text(ours.summary.shortfall))
        yield f" instead of {share_text(base.summary.shortfall)}"
    change = change_text(ours.summary.pod_seconds, base.summary.pod_seconds)
    yield ", at "
    yield tag("strong", "the same pod-hours" if change == "±0 %" else f"{change} pod-hours")
    yield "."


def _card(report: Report, index: int, run: Run) -> Html:
    summary = run.summary
    facts = [
        ("pod-hours", count_text(hours(summary.pod_seconds)), _delta(run, report.runs[0]) if index else None),
        ("shortfall", share_text(summary.shortfall), None),
        ("flaps", count_text(summary.flaps), None),
    ]
    ours = tag("span", "this policy", class_="ours") if index == report.subject else ""
    over = tag("p", tag("strong", duration_text(summary.over_high)), " over the high watermark", class_="main")
    return tag(
        "article",
        tag("h2", _swatch(report, index), tag("bdi", run.name), ours),
        over,
        tag(
            "dl",
            (
                tag("div", tag("dt", name), tag("dd", value, tag("small", f" {note}") if note else ""))
                for name, value, note in facts
            ),
        ),
        class_="card subject" if index == report.subject else "card",
    )


def _delta(run: Run, base: Run) -> str:
    return change_text(run.summary.pod_seconds, base.summary.pod_seconds)


def _swatch(report: Report, index: int) -> Html:
    style = line_style(index, report.subject)
    return tag("span", class_="swatch", data_run=str(style), aria_hidden="true")


def _charts(report: Report) -> Html:
    names = [run.name for run in report.runs]
    metric = report.metric.name
    buttons = (
        tag(
            "button",
            _swatch(report, index),
            tag("bdi", name),
            type="button",
            data_toggle=str(index),
            aria_pressed="true",
        )
        for index, name in enumerate(names)
    )
    return tag(
        "section",
        tag("h2", "Over time", id="charts"),
        tag("noscript", tag("p", "The charts need JavaScript; the figures below do not.")),
        tag("div", buttons, tag("button", "Whole range", type="button", id="whole", hidden=True), class_="legend"),
        tag(
            "p",
            "Times are UTC. Drag to zoom, double-click for the whole range, arrow keys move along a chart. A shaded "
            "area spans the smallest and the largest count of its stretch of time.",
            class_="hint",
        ),
        _chart("replicas", "Replicas", f"Replicas over time: {', '.join(names)}"),
        _chart("load", f"Load of a serving pod: {metric}", f"Average load of a serving pod over time: {metric}"),
        _chart("out", "Pulled-out pods", "Pulled-out pods over time"),
        class_="charts",
    )


def _chart(name: str, title: str, label: str) -> Html:
    plot = tag("div", class_="plot", id=f"chart-{name}", role="img", aria_label=label, tabindex="0")
    return tag("figure", tag("figcaption", title, tag("span", class_="key", data_key=name)), plot)


def _table(report: Report) -> Html:
    rows = [(title, [value(run) for run in report.runs]) for title, value in _figures(report)]
    head = (
        tag(
            "th",
            _swatch(report, index),
            tag("bdi", run.name),
            scope="col",
            class_="subject" if index == report.subject else None,
        )
        for index, run in enumerate(report.runs)
    )
    body = (tag("tr", tag("th", title, scope="row"), (tag("td", value) for value in values)) for title, values in rows)
    table = tag("table", tag("thead", tag("tr", tag("td"), head)), tag("tbody", body))
    notes = tag("ul", (tag("li", note) for note in report.notes), class_="notes") if report.notes else ""
    return tag("section", tag("h2", "Figures"), tag("div", table, class_="scroll", tabindex="0"), notes)


def _figures(report: Report) -> Iterable[tuple[str, Figure]]:
    capacity = any(run.summary.shortfall is not None for run in report.runs)
    figures: list[tuple[str, Figure]] = [
        ("Minutes over the high watermark", lambda run: count_text(minutes(run.summary.over_high))),
        ("Longest time over it in a row", lambda run: duration_text(run.summary.recovery)),
        ("Load beyond the pods' capacity", lambda run: share_text(run.summary.shortfall)),
        ("Changes of the count", lambda run: count_text(run.summary.changes)),
        ("Flaps (changes turned back within 10 minutes)", lambda run: count_text(run.summary.flaps)),
        ("Most replicas beyond the need", lambda run: count_text(run.summary.overshoot)),
        ("Peak replicas", lambda run: count_text(run.summary.peak)),
        ("Pod-hours", lambda run: count_text(hours(run.summary.pod_seconds))),
        ("Pod-hours, change", lambda run: NOT_KNOWN if run is report.runs[0] else _delta(run, report.runs[0])),
        ("Cost", report.cost),
    ]
    return compress(figures, [True, True, capacity, *[True] * 5, len(report.runs) > 1, report.price is not None])


def assumptions(setup: Setup) -> Iterable[str]:
    """What the replay takes for granted, one sentence each."""
    if setup.is_open:
        yield "Open loop: the load of a pod is what it was at the recorded count, whatever the autoscaler does."
    else:
        yield "Closed loop: the recorded load of the whole service, spread evenly over the pods that serve."
    yield "Pulled-out pods are as many as were recorded. They are Ready, count as replicas, and carry nothing."
    yield (
        f"A new pod serves {setup.starts:g} s after its creation; a deleted one exists for another {setup.stops:g} s "
        "and carries nothing. Every pod finds a node."
    )
    measured = f"measured over {setup.window:g} s" if setup.window else "of a single moment"
    yield f"The HPA syncs every {setup.sync:g} s and reads samples that are {setup.delay:g} s old and {measured}."
    yield (
        "The HPA is a model of the controller of Kubernetes 1.34 to 1.37 with tolerance, stabilization and behavior; "
        "the policy is decided by the code that serves the real HPA."
    )
    if setup.capacity:
        limits = ", ".join(f"{nano_text(nano)} {name}" for name, nano in sorted(setup.capacity.items()))
        yield f"One pod can carry {limits}. Load beyond that counts as shortfall and is not carried over to later."
    yield "Clients neither retry nor leave: the load would have been the same with any number of pods."


def front_data(suggestions: Suggestions | None) -> dict[str, Any] | None:
    """The points of the front's chart: pod-hours and the risk in percent, on the part they were chosen on."""
    if suggestions is None:
        return None
    return {
        "risk": "Shortfall, % of the load"
        if suggestions.yardstick.is_capacity
        else "Time over the present high watermark, %",
        "points": [
            {
                "name": known.name,
                "cost": rounded(hours(known.learned.pod_seconds)),
                "risk": rounded(100 * suggestions.yardstick.risk(known.learned)),
                "present": known.is_present,
            }
            for known in suggestions.candidates
        ],
    }


def suggestions_section(suggestions: Suggestions | None, manifest: Mapping[str, Any]) -> Html:
    """The section, empty where nothing was asked for."""
    if suggestions is None:
        return Html()
    present, *others = suggestions.candidates
    metric = present.policy.metrics[0]
    measure = suggestions.yardstick
    checked, capacity = present.checked is not None, measure.is_capacity
    rows = (_row(known, present, capacity=capacity) for known in suggestions.candidates)
    head = tag("tr", (tag("th", title, scope="col") for title in _titles(capacity=capacity, checked=checked)))
    return tag(
        "section",
        tag("h2", "Suggestions"),
        tag(
            "p",
            tag("strong", suggestions.recommendation()),
            f" {suggestions.tried} plans were played. Every one is judged by the same load: {measure.name}, "
            f"{watermark_text(metric, measure.load)} of {metric.name} for each pod; “minutes over” are over that. ",
            "They were chosen on the first part of the history; “later” is the rest, which the choice has not seen."
            if checked
            else "The history is too short to check them on a part that the choice has not seen.",
        ),
        tag(
            "figure",
            tag(
                "figcaption",
                "Cost and risk",
                tag("span", "lower left is better; the square is the present policy", class_="hint"),
            ),
            tag("div", class_="plot", id="chart-front", role="img", aria_label="Candidates by cost and risk"),
        ),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll wide", tabindex="0"),
        tag("p", "Nothing is applied. Look at the replay of a candidate, then paste its patch.", class_="hint"),
        (_patch(present.policy, known, manifest) for known in others),
        class_="suggestions",
    )


def _titles(*, capacity: bool, checked: bool) -> Iterable[str]:
    yield from ("Candidate", "High", "Low", "Saturation", "Scale up", "Scale down", "Pod-hours", "Minutes over")
    if capacity:
        yield "Shortfall"
    yield "Flaps"
    if checked:
        yield from ("Later: pod-hours", "minutes over", "flaps")


def _row(known: Candidate, present: Candidate, *, capacity: bool) -> Html:
    policy = known.policy
    metric = policy.metrics[0]
    cells = [
        watermark_text(metric, metric.high) or NOT_KNOWN,
        watermark_text(metric, metric.low) or NOT_KNOWN,
        *behavior_texts(known.plan).values(),
        _pod_hours(known.learned, None if known.is_present else present.learned),
        count_text(minutes(known.learned.over_high)),
        *([share_text(known.learned.shortfall)] if capacity else []),
        count_text(known.learned.flaps),
    ]
    if known.checked and present.checked:
        cells += [
            _pod_hours(known.checked, None if known.is_present else present.checked),
            count_text(minutes(known.checked.over_high)),
            count_text(known.checked.flaps),
        ]
    name = tag("th", known.name, scope="row")
    return tag("tr", name, (tag("td", cell) for cell in cells), class_="subject" if known.is_present else None)


def _pod_hours(summary: Summary, present: Summary | None) -> Html:
    """Pod-hours, and below them how many more or less than at present."""
    change = change_text(summary.pod_seconds, present.pod_seconds) if present else ""
    return join([count_text(hours(summary.pod_seconds)), tag("small", change) if change else ""])


def _patch(present: Policy, known: Candidate, manifest: Mapping[str, Any]) -> Html:
    notes = [tag("p", "Warning: ", warning, class_="warning") for warning in known.warnings]
    title = f"Patch of candidate {known.name}"
    return tag(
        "details",
        tag("summary", title),
        join(notes),
        tag("pre", tag("code", patch_text(present, known.plan, manifest)), tabindex="0"),
    )


class LoadScale(NamedTuple):
    """The unit that the loads of one metric are drawn in: `unit` as text, worth `worth` nano-units of plain usage.

    `high` and `low` are the watermarks in that unit, None where there is none or it does not apply to a single pod.
    """

    unit: str
    worth: Fraction
    high: float | None
    low: float | None

    def of(self, nano: float | None) -> float | None:
        """A load in this unit, None where there is none."""
        return None if nano is None else rounded(nano / float(self.worth))


def load_scale(policy: Policy, setup: Setup, metric: Metric) -> LoadScale:
    """The unit of a policy's metric: percent of the capacity, millicores, bytes, or the metric's own."""
    unit = {"cpu": "m", "memory": "B", "ephemeral-storage": "B"}.get(resource_of(metric), "")
    worth = mark = Fraction(NANO, 1000 if unit == "m" else 1)
    capacity = shared_amount(metric, setup) if metric.of else 0
    if capacity:
        unit, worth, mark = "%", Fraction(capacity, 100), Fraction(NANO, 100)
    if (metric.of and not capacity) or policy.average is Average.TOTAL:
        return LoadScale(unit, worth, None, None)  # the watermarks cannot be compared with the loads
    high, low = (None if nano is None else float(nano / mark) for nano in policy.limits_of(metric))
    return LoadScale(unit, worth, high, low)


def chart_data(policy: Policy, setup: Setup, metric: Metric, runs: Sequence[Run], subject: int) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `metric` is the one that the runs' loads are of.
    """
    scale = load_scale(policy, setup, metric)
    times = sorted({bucket.at for run in runs for bucket in run.buckets})
    end = max((bucket.at + bucket.seconds for run in runs for bucket in run.buckets), default=0.0)
    aligned = [_aligned(run.buckets, times) for run in runs]
    # The limits around a target have the tolerance in them.
    tolerance = float(policy.tolerance) if metric.target is None else 0.0
    return {
        "times": [*(round(at, 3) for at in times), round(end, 3)] if times else [],
        "unit": scale.unit,
        "metric": metric.name,
        "band": {
            "high": scale.high,
            "low": scale.low,
            "highPlus": None if scale.high is None else scale.high * (1 + tolerance),
            "lowMinus": None if scale.low is None else scale.low * (1 - tolerance),
        },
        "needed": [] if setup.is_open else _needed(aligned, scale),
        "pulledOut": _extended([_most(bucket.pulled_out for bucket in row if bucket) for row in _rows(aligned)]),
        "runs": [
            _run(run, buckets, scale) | {"style": line_style(index, subject)}
            for index, (run, buckets) in enumerate(zip(runs, aligned, strict=True))
        ],
    }


def line_style(index: int, subject: int) -> int:
    """The colour and dash of a run, a number that the style sheet and the script know: 0 for the subject's."""
    return 0 if index == subject else 1 + (index if index < subject else index - 1) % (_STYLES - 1)


def _run(run: Run, buckets: Sequence[Bucket | None], scale: LoadScale) -> dict[str, Any]:
    def column(value: Callable[[Bucket], float | None]) -> Column:
        return _extended([None if bucket is None else value(bucket) for bucket in buckets])

    return {
        "name": run.name,
        "least": column(lambda bucket: bucket.least),
        "most": column(lambda bucket: bucket.most),
        "average": column(lambda bucket: scale.of(bucket.average)),
        "highest": column(lambda bucket: scale.of(bucket.highest)),
    }


def _needed(aligned: Sequence[Sequence[Bucket | None]], scale: LoadScale) -> Column:
    """Serving pods that the load needs at the high watermark each; every run carries the same load."""
    if not scale.high:
        return []
    at_high = float(scale.worth) * scale.high
    return _extended(
        [
            _most(bucket.average * bucket.serving / at_high for bucket in row if bucket and bucket.average is not None)
            for row in _rows(aligned)
        ]
    )


def _rows(aligned: Sequence[Sequence[Bucket | None]]) -> Iterable[tuple[Bucket | None, ...]]:
    return zip(*aligned, strict=True)


def _most(values: Iterable[float]) -> float | None:
    most = max(values, default=None)
    return None if most is None else rounded(most)


def _extended(values: Column) -> Column:
    """Repeats the last value: lines are steps, and the last one lasts until the end."""
    return [*values, *values[-1:]]


def _aligned(buckets: Sequence[Bucket], times: Sequence[float]) -> list[Bucket | None]:
    starts = [bucket.at for bucket in buckets]
    found = (bisect_right(starts, at) - 1 for at in times)
    return [buckets[index] if index >= 0 else None for index in found]


def rounded(value: float) -> float:
    """Four significant digits are more than a chart shows, and keep the page small."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
