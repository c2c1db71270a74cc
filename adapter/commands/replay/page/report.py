"""The page of one replay: headline, figures, charts, and what the model assumes."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.replay.comparison import SUBJECT
from adapter.commands.replay.hpas import resource_of, shared_amount
from adapter.commands.replay.page.markup import (
    LIBRARY_VERSION,
    NOT_KNOWN,
    Html,
    change_text,
    count_text,
    document,
    duration_text,
    join,
    share_text,
    tag,
)
from adapter.commands.replay.report import Report, cost, notes
from adapter.commands.replay.service import Bucket, Run, Setup, Summary
from adapter.load.quantity import NANO, nano_text
from adapter.load.spec import Algorithm, Metric, Policy
from adapter.runtime.times import format_time

_STYLES = 8


def page(report: Report) -> str:
    """One HTML document that needs nothing else."""
    result, runs = report.result, report.result.runs
    policy, setup = result.comparison.policy, result.comparison.setup
    title = f"{policy.namespace}/{policy.name}"
    judged = next(iter(result.comparison.judge.high), "")
    metric = next((metric for metric in policy.metrics if metric.name == judged), policy.metrics[0])
    length = duration_text(result.end - result.begin)
    facts = [f"{format_time(result.begin)} to {format_time(result.end)} ({length})", report.source]
    body = join(
        [
            tag("a", "Skip to the charts", class_="skip", href="#charts"),
            tag(
                "header",
                tag("p", "Replay", class_="kind"),
                tag("h1", tag("bdi", title)),
                tag("p", " · ".join(filter(None, facts)), class_="facts"),
                tag("p", *_headline(runs[SUBJECT].summary, runs[0]), class_="headline"),
            ),
            tag(
                "main",
                tag(
                    "section",
                    (_card(index, run, runs[0]) for index, run in enumerate(runs)),
                    class_="cards",
                    aria_label="Results at a glance",
                ),
                _charts([run.name for run in runs], metric.name),
                _table(report),
                tag(
                    "section",
                    tag("h2", "What is modelled"),
                    tag("ul", (tag("li", sentence) for sentence in assumptions(setup))),
                    class_="model",
                ),
            ),
            tag("footer", f"Charts: uPlot {LIBRARY_VERSION} (MIT licence). This page loads nothing and sends nothing."),
        ]
    )
    return document(f"Replay of {title}", body, chart_data(policy, setup, metric, runs))


def _headline(ours: Summary, base: Run) -> Iterable[str]:
    yield "With this policy, pods would have been over the high watermark for "
    yield tag("strong", duration_text(ours.over_high))
    yield f" instead of {duration_text(base.summary.over_high)} with "
    yield tag("bdi", base.name)
    if ours.shortfall or base.summary.shortfall:
        yield ", the load beyond the pods' capacity "
        yield tag("strong", share_text(ours.shortfall))
        yield f" instead of {share_text(base.summary.shortfall)}"
    change = change_text(ours.pod_seconds, base.summary.pod_seconds)
    yield ", at "
    yield tag("strong", "the same pod-hours" if change == "±0 %" else f"{change} pod-hours")
    yield "."


def _card(index: int, run: Run, base: Run) -> Html:
    summary = run.summary
    change = change_text(summary.pod_seconds, base.summary.pod_seconds)
    facts = [
        ("pod-hours", count_text(summary.pod_hours), change if index else None),
        ("shortfall", share_text(summary.shortfall), None),
        ("flaps", count_text(summary.flaps), None),
    ]
    ours = tag("span", "this policy", class_="ours") if index == SUBJECT else ""
    return tag(
        "article",
        tag("h2", _swatch(index), tag("bdi", run.name), ours),
        tag("p", tag("strong", duration_text(summary.over_high)), " over the high watermark", class_="main"),
        tag(
            "dl",
            (
                tag("div", tag("dt", name), tag("dd", value, tag("small", f" {note}") if note else ""))
                for name, value, note in facts
            ),
        ),
        class_="card subject" if index == SUBJECT else "card",
    )


def _swatch(index: int) -> Html:
    return tag("span", class_="swatch", data_run=str(line_style(index)), aria_hidden="true")


def _charts(names: Sequence[str], metric: str) -> Html:
    buttons = (
        tag("button", _swatch(index), tag("bdi", name), type="button", data_toggle=str(index), aria_pressed="true")
        for index, name in enumerate(names)
    )
    charts = (
        ("replicas", "Replicas", f"Replicas over time: {', '.join(names)}"),
        ("load", f"Load of a serving pod: {metric}", f"Average load of a serving pod over time: {metric}"),
        ("out", "Pulled-out pods", "Pulled-out pods over time"),
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
        (
            tag(
                "figure",
                tag("figcaption", title, tag("span", class_="key", data_key=name)),
                tag("div", class_="plot", id=f"chart-{name}", role="img", aria_label=label, tabindex="0"),
            )
            for name, title, label in charts
        ),
        class_="charts",
    )


def _table(report: Report) -> Html:
    runs, price = report.result.runs, report.result.comparison.price
    base = runs[0].summary.pod_seconds
    figures: dict[str, Callable[[Summary], str]] = {
        "Minutes over the high watermark": lambda one: count_text(one.minutes_over),
        "Longest time over it in a row": lambda one: duration_text(one.recovery),
    }
    if any(run.summary.shortfall is not None for run in runs):
        figures["Load beyond the pods' capacity"] = lambda one: share_text(one.shortfall)
    figures |= {
        "Changes of the count": lambda one: count_text(one.changes),
        "Flaps (changes turned back within 10 minutes)": lambda one: count_text(one.flaps),
        "Most replicas beyond the need": lambda one: count_text(one.overshoot),
        "Peak replicas": lambda one: count_text(one.peak),
        "Pod-hours": lambda one: count_text(one.pod_hours),
        "Pod-hours, change": lambda one: NOT_KNOWN if one is runs[0].summary else change_text(one.pod_seconds, base),
    }
    if price is not None:
        figures["Cost"] = lambda one: f"{cost(one, price):,.2f}"
    head = (
        tag("th", _swatch(index), tag("bdi", run.name), scope="col", class_="subject" if index == SUBJECT else None)
        for index, run in enumerate(runs)
    )
    body = (
        tag("tr", tag("th", title, scope="row"), (tag("td", figure(run.summary)) for run in runs))
        for title, figure in figures.items()
    )
    table = tag("table", tag("thead", tag("tr", tag("td"), head)), tag("tbody", body))
    remarks = tag("ul", (tag("li", note) for note in notes(report.result)), class_="notes")
    return tag("section", tag("h2", "Figures"), tag("div", table, class_="scroll", tabindex="0"), remarks)


def assumptions(setup: Setup) -> Iterable[str]:
    """What the replay takes for granted, one sentence each."""
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
    capacity = shared_amount(metric, setup) if metric.relative_to else 0
    if capacity:
        unit, worth, mark = "%", Fraction(capacity, 100), Fraction(NANO, 100)
    if (metric.relative_to and not capacity) or policy.algorithm is Algorithm.ABSOLUTE:
        return LoadScale(unit, worth, None, None)  # the watermarks cannot be compared with the loads
    high, low = (None if nano is None else float(nano / mark) for nano in policy.limits_of(metric))
    return LoadScale(unit, worth, high, low)


def chart_data(policy: Policy, setup: Setup, metric: Metric, runs: Sequence[Run]) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `metric` is the one that the runs' loads are of. `needed` are the serving pods that the load, which is the same for
    every run, needs at the high watermark each.
    """
    scale = load_scale(policy, setup, metric)
    times = sorted({bucket.at for run in runs for bucket in run.buckets})
    end = max((bucket.at + bucket.seconds for run in runs for bucket in run.buckets), default=0.0)
    on_axis: list[list[Bucket | None]] = []
    for run in runs:
        starts = [bucket.at for bucket in run.buckets]
        places = (bisect_right(starts, at) - 1 for at in times)
        on_axis.append([run.buckets[place] if place >= 0 else None for place in places])

    def steps(values: Iterable[float | None]) -> list[float | None]:
        column = list(values)
        return [*column, *column[-1:]]  # a step lasts until the next value, and the last one until the end

    def column(buckets: Iterable[Bucket | None], value: Callable[[Bucket], float | None]) -> list[float | None]:
        return steps(None if bucket is None else value(bucket) for bucket in buckets)

    def most(value: Callable[[Bucket], float | None]) -> list[float | None]:
        at_once = ([value(bucket) for bucket in row if bucket] for row in zip(*on_axis, strict=True))
        largest = (max((one for one in values if one is not None), default=None) for values in at_once)
        return steps(None if one is None else rounded(one) for one in largest)

    def needed(bucket: Bucket) -> float | None:
        if bucket.average is None:
            return None
        return bucket.average * bucket.serving / (float(scale.worth) * (scale.high or 0.0))

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
        "needed": most(needed) if scale.high else [],
        "pulledOut": most(lambda bucket: bucket.pulled_out),
        "runs": [
            {
                "name": run.name,
                "least": column(buckets, lambda bucket: bucket.least),
                "most": column(buckets, lambda bucket: bucket.most),
                "average": column(buckets, lambda bucket: scale.of(bucket.average)),
                "highest": column(buckets, lambda bucket: scale.of(bucket.highest)),
                "style": line_style(index),
            }
            for index, (run, buckets) in enumerate(zip(runs, on_axis, strict=True))
        ],
    }


def line_style(index: int) -> int:
    """The colour and dash of a run, a number that the style sheet and the script know: 0 for the policy's own."""
    return 0 if index == SUBJECT else 1 + (index if index < SUBJECT else index - 1) % (_STYLES - 1)


def rounded(value: float) -> float:
    """Four significant digits are more than a chart shows, and keep the page small."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
