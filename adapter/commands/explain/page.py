"""The page of an explained decision on a terminal, drawn with rich."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from adapter.commands.decide.decision import decided
from adapter.commands.explain import sentences
from adapter.commands.explain.reading import Explained
from adapter.commands.explain.sentences import (
    COUNTED,
    DrawnBand,
    bands,
    differences,
    headline,
    input_rows,
    usage_text,
)
from adapter.commands.terminal.output import printable
from adapter.load.assessment import Assessment, Verdict
from adapter.load.explanation import stage_sentences
from adapter.load.pods import PodState
from adapter.load.spec import Policy

BAND_WIDTH = 60
"""Characters of a drawn band."""
_ROOM = Fraction(5, 4)
"""The right end of a drawn band, in multiples of the largest value in it."""
_MOST_ROWS = 25
_STATES = {
    PodState.SERVING: "green",
    PodState.DOUBTFUL: "yellow",
    PodState.PULLED_OUT: "magenta",
    PodState.UNREADY: "red",
}
_VERDICTS = {Verdict.ABOVE: "red", Verdict.INSIDE: "green", Verdict.BELOW: "cyan"}


def page(explained: Explained) -> RenderableType:
    """The whole page."""
    case, hpa = explained.case, explained.hpa
    made = decided(case) if case is not None else None
    title = f"WatermarkPolicy {explained.namespace}/{explained.name}{'' if made is None else f' → {made[0].target}'}"
    style = "red" if made is None or made[1].error is not None else "green"
    text = _text(headline(explained, made), "bold")
    panel = Panel(text, title=_text(title), title_align="left", border_style=style, box=box.ROUNDED)
    parts: list[RenderableType] = [panel]
    if explained.trouble:
        parts.append(_section("No decision can be shown", _lines(explained.trouble, first="bold red")))
        # The companion wrote it last; the server does not answer.
        if explained.conditions:
            lines = map(sentences.condition_text, explained.conditions)
            parts.append(_section("The policy's status, as the companion wrote it last", _lines(lines)))
    if case is not None and made is not None:
        policy, (assessment, decision) = case.inputs.policy, made
        if otherwise := differences(explained, decision):
            parts.append(_section("The server decided otherwise", _lines(otherwise, first="bold red")))
        why = stage_sentences(assessment, decision, case.inputs.bounds, case.now)
        inputs = Table.grid(padding=(0, 3, 0, 0))
        for row in input_rows(explained, assessment):
            sign = Text("✗", "red") if row.trouble else Text("✓", "green")
            inputs.add_row(sign, _text(row.name), Text(row.age), Text(row.counts, "dim"), _text(row.trouble, "red"))
        drawn = (line for band in bands(policy, assessment, decision) for line in drawn_band(band))
        parts += [
            _section("Load", *drawn),
            _section("Why", _lines(why, bullet="→ ")),
            _section("Pods", _counts(assessment), _pods(policy, assessment)),
            _section("Inputs", inputs),
        ]
    if explained.hpa_trouble:
        parts.append(_section("The HPA cannot be read", _lines(explained.hpa_trouble, first="bold red")))
    if hpa is not None:
        will, did = sentences.will_do(explained), sentences.did_last(explained)
        parts.append(_section(f"HPA {hpa.name}: what it will do", _lines(will, bullet="→ ")))
        parts.append(_section(f"HPA {hpa.name}: what it did last", _lines(did, bullet="→ ")))
    return Group(*parts)


def _text(text: str, style: str = "") -> Text:
    """Text of others: neither markup nor control characters in it count."""
    return Text(printable(text), style)


def _section(title: str, *parts: RenderableType) -> RenderableType:
    return Group(Rule(_text(title), style="dim", align="left"), Padding(Group(*parts), (0, 0, 0, 2)))


def _lines(lines: Iterable[str], *, first: str = "", bullet: str = "") -> RenderableType:
    """A line each; where a line is too long, the rest of it is indented."""
    grid = Table.grid(padding=(0, 0))
    if bullet:
        grid.add_column(width=len(bullet))
    grid.add_column(overflow="fold")
    for index, line in enumerate(lines):
        text = _text(line, first if not index else "")
        grid.add_row(*((Text(bullet, style="dim"), text) if bullet else (text,)))
    return grid


def drawn_band(band: DrawnBand) -> Iterator[Text]:
    """The lines of a metric: its name and verdict, its band with the values in it, and what the signs mean."""
    style = _VERDICTS.get(Verdict(band.verdict), "")
    yield Text.assemble((band.name, "bold"), "  ", (band.verdict, style))
    values = [value for value in (band.low, band.high, band.target, band.usage, band.raw) if value is not None]
    end = max(values, default=Fraction(0)) * _ROOM
    if band.error:
        yield _text(band.error, "red")
    elif end:
        low = -1 if band.low is None else _column(band.low, end)
        high = BAND_WIDTH if band.high is None else _column(band.high, end)
        signs = ((band.target, "┆", "bold"), (band.raw, "○", "yellow"), (band.usage, "●", f"bold {style}"))
        marks, line = {_column(value, end): (sign, look) for value, sign, look in signs if value is not None}, Text()
        for column in range(BAND_WIDTH):
            plain = ("━", "green") if low < column < high else ("─", "dim")
            line.append(*marks.get(column, ("┃", "bold") if column in {low, high} else plain))
        yield line
        legend = Text(f"● effective {band.text(band.usage)}   ○ over all running pods {band.text(band.raw)}   ")
        if band.target is not None:
            legend.append(f"┆ target {band.text(band.target)}   ")
        low_text = "0" if band.low is None else band.text(band.low)
        high_text = "any" if band.high is None else band.text(band.high)
        yield legend.append(f"┃ {low_text} … {high_text}", "dim")
    yield Text("")


def _column(value: Fraction, end: Fraction) -> int:
    return min(BAND_WIDTH - 1, int(value / end * BAND_WIDTH))


def _counts(assessment: Assessment) -> Text:
    text = _text(f"{assessment.target} has {len(assessment.pods)} pods: ")
    counted = sorted((state, count) for state, count in assessment.counts.items() if count)
    for index, (state, count) in enumerate(counted):
        text.append(", " if index else "").append(f"{count} {state.value}", _STATES.get(state, ""))
    return text


def _pods(policy: Policy, assessment: Assessment) -> RenderableType:
    """All pods, those that are left out first."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "POD", "STATE", "WHY", *(metric.name for metric in policy.metrics)):
        table.add_column(name, overflow="fold")
    pods = sorted(
        assessment.with_usage(assessment.pods), key=lambda pod: (pod.state in COUNTED, pod.state.value, pod.pod.name)
    )
    for pod in pods[:_MOST_ROWS]:
        why = f"{pod.reason} ({pod.evidence})" if pod.evidence else pod.reason
        sign = Text("✓", "green") if pod.state in COUNTED else Text("✗", "red")
        usage = (_text(usage_text(policy, pod, metric.name)) for metric in assessment.metrics)
        state = Text(pod.state.value, _STATES.get(pod.state, ""))
        table.add_row(sign, _text(pod.pod.name), state, _text(why), *usage)
    if len(pods) > _MOST_ROWS:
        table.add_row("", f"… and {len(pods) - _MOST_ROWS} more (-o json lists all)")
    return table
