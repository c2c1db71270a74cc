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
from adapter.commands.decide.reader import DecisionCase
from adapter.commands.explain import sentences
from adapter.commands.explain.reading import Explained
from adapter.commands.explain.sentences import (
    DrawnBand,
    InputRow,
    PodRow,
    bands,
    differences,
    headline,
    input_rows,
    pod_rows,
)
from adapter.commands.terminal.output import printable
from adapter.load.assessment import Assessment, Decision, Verdict
from adapter.load.explanation import stage_sentences
from adapter.load.pods import PodState

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
    return Group(*_parts(explained))


def _parts(explained: Explained) -> Iterator[RenderableType]:
    case = explained.case
    made = decided(case) if case is not None else None
    text = _text(headline(explained, made), "bold")
    title = f"WatermarkPolicy {explained.namespace}/{explained.name}"
    if made is not None:
        title += f" → {made[0].target}"
    style = "red" if made is None or made[1].error is not None else "green"
    yield Panel(text, title=_text(title), title_align="left", border_style=style, box=box.ROUNDED)
    if explained.trouble:
        yield _section("No decision can be shown", _lines(explained.trouble, first="bold red"))
        # The companion wrote it last; the server does not answer.
        if explained.conditions:
            lines = map(sentences.condition_text, explained.conditions)
            yield _section("The policy's status, as the companion wrote it last", _lines(lines))
    if case is not None and made is not None:
        yield from _decision(explained, case, *made)
    if explained.hpa_trouble:
        yield _section("The HPA cannot be read", _lines(explained.hpa_trouble, first="bold red"))
    hpa = explained.hpa
    if hpa is None:
        return
    yield _section(f"HPA {hpa.name}: what it will do", _lines(sentences.will_do(explained), bullet="→ "))
    yield _section(f"HPA {hpa.name}: what it did last", _lines(sentences.did_last(explained), bullet="→ "))


def _decision(
    explained: Explained, case: DecisionCase, assessment: Assessment, decision: Decision
) -> Iterator[RenderableType]:
    policy = case.inputs.policy
    if lines := differences(explained, decision):
        yield _section("The server decided otherwise", _lines(lines, first="bold red"))
    yield _section("Load", *(text for band in bands(policy, assessment, decision) for text in _band(band)))
    yield _section("Why", _lines(stage_sentences(assessment, decision, case.inputs.bounds, case.now), bullet="→ "))
    yield _section("Pods", _counts(assessment), _pods(pod_rows(policy, assessment), [m.name for m in policy.metrics]))
    yield _section("Inputs", _inputs(input_rows(explained, assessment)))


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


def _band(band: DrawnBand) -> Iterator[Text]:
    style = _VERDICTS.get(Verdict(band.verdict), "")
    yield Text.assemble((band.name, "bold"), "  ", (band.verdict, style))
    known = [value for value in (band.low, band.high, band.target, band.usage, band.raw) if value is not None]
    end = max(known, default=Fraction(0)) * _ROOM
    if band.error:
        yield _text(band.error, "red")
    elif end:
        yield from _drawn(band, end, style)
    yield Text("")


def _drawn(band: DrawnBand, end: Fraction, style: str) -> Iterator[Text]:
    low = -1 if band.low is None else _column(band.low, end)
    high = BAND_WIDTH if band.high is None else _column(band.high, end)
    shown = ((band.target, "┆", "bold"), (band.raw, "○", "yellow"), (band.usage, "●", f"bold {style}"))
    marks, line = {_column(value, end): (sign, look) for value, sign, look in shown if value is not None}, Text()
    for column in range(BAND_WIDTH):
        sign = ("━", "green") if low < column < high else ("─", "dim")
        sign = ("┃", "bold") if column in {low, high} else sign
        line.append(*marks.get(column, sign))
    yield line
    legend = Text(f"● effective {band.text(band.usage)}   ○ over all running pods {band.text(band.raw)}   ")
    if band.target is not None:
        legend.append(f"┆ target {band.text(band.target)}   ")
    low_text = "0" if band.low is None else band.text(band.low)
    high_text = "any" if band.high is None else band.text(band.high)
    yield legend.append(f"┃ {low_text} … {high_text}", "dim")


def _column(value: Fraction, end: Fraction) -> int:
    return min(BAND_WIDTH - 1, int(value / end * BAND_WIDTH))


def _counts(assessment: Assessment) -> Text:
    text = _text(f"{assessment.target} has {len(assessment.pods)} pods: ")
    counted = sorted((state, count) for state, count in assessment.counts.items() if count)
    for index, (state, count) in enumerate(counted):
        text.append(", " if index else "").append(f"{count} {state.value}", _STATES.get(state, ""))
    return text


def _pods(rows: list[PodRow], metrics: list[str]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "POD", "STATE", "WHY", *metrics):
        table.add_column(name, overflow="fold")
    for row in rows[:_MOST_ROWS]:
        style = _STATES.get(PodState(row.state), "")
        why = f"{row.reason} ({row.source})" if row.source else row.reason
        sign = Text("✓", "green") if row.counts else Text("✗", "red")
        table.add_row(sign, _text(row.name), Text(row.state, style), _text(why), *map(_text, row.usage))
    if len(rows) > _MOST_ROWS:
        table.add_row("", f"… and {len(rows) - _MOST_ROWS} more (-o json lists all)")
    return table


def _inputs(rows: Iterable[InputRow]) -> RenderableType:
    table = Table.grid(padding=(0, 3, 0, 0))
    for row in rows:
        sign = Text("✗", "red") if row.trouble else Text("✓", "green")
        table.add_row(sign, _text(row.name), Text(row.age), Text(row.counts, "dim"), _text(row.trouble, "red"))
    return table
