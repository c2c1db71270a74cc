"""The page of a decision: one list of sections, drawn by rich; without a terminal it is plain text."""

import argparse
import io
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adapter.commands.cluster import Answer, Decision, Metric
from adapter.commands.explain.hpa import condition_text, did_last, will_do
from adapter.commands.explain.read import Explained, read
from adapter.commands.terminal import output
from adapter.commands.terminal.command import FAILED, NO_DECISION, OK
from adapter.commands.terminal.output import duration, printable
from adapter.kube.session import Session
from adapter.load.explanation import range_text, value_text, value_texts
from adapter.load.quantity import parse_nano
from adapter.load.samples import SourceState
from adapter.runtime.times import parse_time

_PLAIN_WIDTH = 1000
"""Lines in a pipe are not broken."""
_BAND_WIDTH = 60
_ROOM = Fraction(5, 4)
"""The right end of a drawn band, in multiples of the largest value in it."""
_MOST_PODS = 25
_COUNTED = {"serving", "doubtful"}
_SIGNS = {"target": "┆", "raw": "○", "usage": "●"}


async def explain(parsed: argparse.Namespace) -> int:
    """Read, then print or save. Returns the exit status. Raises KubeError."""
    namespace, name = parsed.policy
    async with await Session.open(parsed.kubeconfig, context=parsed.context) as session:
        namespace = namespace or parsed.namespace or await session.default_namespace()
        with Console(stderr=True).status("asking the server for its decision"):  # on a terminal alone
            explained = await read(session, namespace, name)
    status = NO_DECISION if explained.error else FAILED if explained.answer is None else OK
    if parsed.save and explained.answer is not None:
        return _save(parsed.save, explained.answer.document)
    if parsed.save:
        output.complain("\n".join(explained.trouble))
    else:
        _print(page(explained))
    return status


def _print(shown: RenderableType) -> None:
    """Print to a terminal in colours; elsewhere as plain lines."""
    if sys.stdout.isatty():
        Console().print(shown)
        return
    plain = io.StringIO()
    Console(width=_PLAIN_WIDTH, file=plain).print(shown)
    output.print_lines(line.rstrip() for line in plain.getvalue().splitlines())


def _save(file: str, document: str) -> int:
    """Write the document to a file. Returns the exit status."""
    if file == "-":
        output.print_lines([document])
        return OK
    try:
        Path(file).write_text(f"{document}\n", encoding="utf-8")
    except OSError as error:
        output.complain(f"{file}: cannot be written: {error.strerror}")
        return FAILED
    output.complain(f"{file} has the decision's inputs: `effective-load decide {file}` decides again")
    return OK


def page(explained: Explained) -> RenderableType:
    """All sections."""
    answer = explained.answer
    sections: list[tuple[str, list[RenderableType]]] = [
        (f"WatermarkPolicy {explained.namespace}/{explained.name}", [*map(_text, _headline(explained))]),
        ("What is missing", [*map(_text, explained.trouble)]),
        ("What is wrong", [*map(_text, map(str, explained.findings))]),
    ]
    if answer is None:
        conditions = map(_text, map(condition_text, explained.conditions))
        sections.append(("The policy's status, as the companion wrote it last", [*conditions]))
    else:
        decision, policy = answer.decision, answer.case.inputs.policy if answer.case else None
        shares = {one.name for one in policy.metrics if one.relative_to is not None} if policy is not None else set()
        bands = [line for metric in decision.metrics for line in band(metric, is_share=metric.name in shares)]
        sections += [
            ("Load", [*bands]),
            ("Why", [*map(_text, decision.explanation)]),
            ("Pods", [_pods(decision, shares)]),
        ]
        if rows := list(freshness(answer)):
            sections.append(("Freshness", [_table(("INPUT", "AGE", "TROUBLE"), rows)]))
    if explained.hpa is not None:
        sections.append((f"HPA {explained.hpa.name} will", [*map(_text, will_do(explained))]))
        sections.append((f"HPA {explained.hpa.name} did last", [*map(_text, did_last(explained))]))
    parts = [
        (Text(printable(title), "bold"), Padding(Group(*lines), (0, 0, 1, 2))) for title, lines in sections if lines
    ]
    return Group(*(part for pair in parts for part in pair))


def _text(text: str) -> Text:
    """Text of others: neither markup nor control characters in it count."""
    return Text(printable(text), overflow="fold")


def _headline(explained: Explained) -> Iterator[str]:
    """The count and its two bounds, or the error."""
    if explained.error:
        yield f"HPAs get an error: {explained.error}"
    elif explained.answer is None:
        yield "the server's decision is not known"
    else:
        decision = explained.answer.decision
        yield f"asks for {decision.desired_replicas} (now {decision.current}), served as {decision.served}"
        yield f"the load allows {range_text(decision.lower_bound, decision.upper_bound)}"


def band(metric: Metric, *, is_share: bool) -> Iterator[Text]:
    """A metric's name and verdict, its band with the values in it, and what the signs mean."""
    style = {"Above": "red", "Inside": "green", "Below": "cyan"}.get(metric.verdict, "")
    yield Text.assemble((metric.name, "bold"), "  ", (metric.verdict, style))
    if metric.error:
        yield _text(metric.error)
        return
    keys = ("low", "high", "target", "raw", "usage")
    values = {key: parse_nano(text) for key in keys if (text := getattr(metric, key)) is not None}
    texts = value_texts(values, as_percent=is_share)
    end = max(values.values(), default=0) * _ROOM
    if not end:
        return
    at = {key: min(_BAND_WIDTH - 1, int(value / end * _BAND_WIDTH)) for key, value in values.items()}
    low, high = at.get("low", -1), at.get("high", _BAND_WIDTH)
    signs = {low: ("┃", "bold"), high: ("┃", "bold")}
    signs |= {at[key]: (sign, f"bold {style}") for key, sign in _SIGNS.items() if key in at}
    inside, outside = ("━", "green"), ("─", "dim")
    yield Text.assemble(
        *(signs.get(column) or (inside if low < column < high else outside) for column in range(_BAND_WIDTH))
    )
    target = f"   ┆ target {texts['target']}" if "target" in texts else ""
    yield _text(
        f"● effective {texts.get('usage', '–')}   ○ over all running pods {texts.get('raw', '–')}{target}   "
        f"┃ {texts.get('low', '0')} … {texts.get('high', 'any')}"
    )


def _pods(decision: Decision, shares: set[str]) -> RenderableType:
    """The pods, those that are left out first, each with the evidence."""
    names = [metric.name for metric in decision.metrics]
    rows = []
    for pod in sorted(decision.pods, key=lambda pod: (pod.state in _COUNTED, pod.state, pod.name)):
        why = f"{pod.reason} ({pod.evidence})" if pod.evidence else pod.reason
        used = {name: value_text(parse_nano(text), as_percent=name in shares) for name, text in pod.usage.items()}
        usage = (used.get(name) or pod.missing.get(name, "") for name in names)
        rows.append(("✓" if pod.state in _COUNTED else "✗", pod.name, pod.state, why, *usage))
    more = [("", f"… and {len(rows) - _MOST_PODS} more (-o json lists all)", "", "", *[""] * len(names))]
    return _table(("", "POD", "STATE", "WHY", *names), rows[:_MOST_PODS] + more * (len(rows) > _MOST_PODS))


def freshness(answer: Answer | None) -> Iterator[tuple[str, str, str]]:
    """Each input of the decision: its name, its age, and its trouble."""
    if answer is None or answer.case is None:
        return
    inputs, now = answer.case.inputs, answer.case.now
    yield "policy, HPA, pods (watches)", f"assessed {duration(now - inputs.now)} ago", ""
    stale = {metric.name: parse_time(metric.stale_at) for metric in answer.decision.metrics}
    queries, sources = inputs.samples.queries, list[tuple[str, SourceState, float | None]]()
    sources += [(f"query {name}", one, stale.get(name)) for name, one in queries.items()]
    if any(metric.query is None for metric in inputs.policy.metrics):
        resources = (at for name, at in stale.items() if name not in queries and at is not None)
        sources.append(("metrics.k8s.io", inputs.samples.resources, min(resources, default=None)))
    for name, source, until in sources:
        left = "no sample counts" if until is None else f"the oldest sample counts {duration(until - now)} more"
        yield name, f"{_answered(source.fetched_at, now)}, {left}", source.error or ""
    if inputs.policy.registry is not None:
        name, listed = f"registry {inputs.policy.registry.name}", inputs.roster
        if listed is None:
            yield name, _answered(None, now), "no list of the service yet"
        else:
            age = f"{_answered(listed.at, now)}, {len(listed.instances)} instances"
            yield name, age if listed.valid else "no valid answer", listed.error or ""


def _answered(at: float | None, now: float) -> str:
    return "never answered" if at is None else f"answered {duration(now - at)} ago"


def _table(head: tuple[str, ...], rows: Any) -> RenderableType:
    """A table without the columns that are empty."""
    kept = list(rows)
    columns = [index for index in range(len(head)) if any(row[index] for row in kept)]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index in columns:
        table.add_column(head[index], overflow="fold")
    for row in kept:
        table.add_row(*(_text(row[index]) for index in columns))
    return table
