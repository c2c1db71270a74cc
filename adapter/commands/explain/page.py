"""The page of a decision: one list of sections, drawn by rich; without a terminal it is plain text."""

import argparse
import asyncio
import io
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adapter.commands.explain.hpa import did_last, will_do
from adapter.commands.explain.read import Explained, read
from adapter.commands.terminal import output
from adapter.commands.terminal.command import FAILED, NO_DECISION, OK
from adapter.commands.terminal.output import duration, printable
from adapter.commands.terminal.waiting import waiting
from adapter.kube.session import Session
from adapter.load.explanation import range_text, value_text, value_texts
from adapter.load.quantity import parse_nano
from adapter.runtime.times import format_time, parse_time

_WATCH_SECONDS = 2.0
_PLAIN_WIDTH = 1000
"""Lines in a pipe are not broken."""
_BAND_WIDTH = 60
_ROOM = Fraction(5, 4)
"""The right end of a drawn band, in multiples of the largest value in it."""
_MOST_PODS = 25
_COUNTED = {"serving", "doubtful"}
_KINDS = {"watermarkpolicy", "watermarkpolicies", "wmp"}
"""Before a slash kubectl prints the kind: `watermarkpolicy/checkout`."""


async def explain(parsed: argparse.Namespace) -> int:
    """Read, then draw, print or save; with `--watch` again and again. Returns the exit status. Raises KubeError."""
    before, slash, after = parsed.policy.partition("/")
    is_kind = before.partition(".")[0].lower() in _KINDS
    async with await Session.open(parsed.kubeconfig, context=parsed.context) as session:
        namespace = before if slash and not is_kind else parsed.namespace or await session.default_namespace()
        name = after if slash else before
        if parsed.watch:
            with Live(console=Console(), screen=True, auto_refresh=False) as live:
                while True:
                    live.update(page(await read(session, namespace, name)), refresh=True)
                    await asyncio.sleep(_WATCH_SECONDS)
        with waiting("asking the server for its decision"):
            explained = await read(session, namespace, name)
    if parsed.save:
        return _save(parsed.save, explained)
    if parsed.output == "json":
        output.print_json(data(explained))
    else:
        _print(page(explained))
    return _status(explained)


def _print(shown: RenderableType) -> None:
    """Print to a terminal in colours; elsewhere as plain lines."""
    if sys.stdout.isatty():
        Console().print(shown)
        return
    console = Console(width=_PLAIN_WIDTH, file=io.StringIO())
    with console.capture() as captured:
        console.print(shown)
    output.print_lines(line.rstrip() for line in captured.get().splitlines())


def _status(explained: Explained) -> int:
    if explained.error:
        return NO_DECISION
    return FAILED if explained.answer is None else OK


def _save(file: str, explained: Explained) -> int:
    if explained.answer is None:
        for line in explained.trouble:
            output.complain(line)
        return _status(explained)
    content = bytes(explained.answer.document) + b"\n"
    if file == "-":
        output.print_text(content.decode())
        return OK
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        output.complain(f"{file}: cannot be written: {error.strerror}")
        return FAILED
    output.complain(f"{file} has the decision's inputs: `effective-load decide {file}` decides again")
    return OK


def data(explained: Explained) -> dict[str, Any]:
    """The page as JSON data; `decision` is the server's, in the form of `decide -o json`."""
    answer, hpa, status = explained.answer, explained.hpa, explained.hpa_status
    shown = None
    if hpa is not None:
        keys = ("currentReplicas", "desiredReplicas", "lastScaleTime", "conditions")
        shown = {"name": hpa.name, "willDo": list(will_do(explained)), **{key: status.get(key) for key in keys}}
    return {
        "policy": f"{explained.namespace}/{explained.name}",
        "at": format_time(explained.at),
        "served": answer.decision["served"] if answer is not None else None,
        "error": explained.error or None,
        "serverVersion": answer.server.get("version") if answer is not None else None,
        "decision": answer.decision if answer is not None else None,
        "inputs": [dict(zip(("name", "age", "trouble"), row, strict=True)) for row in freshness(explained)],
        "trouble": list(explained.trouble),
        "hpa": shown,
    }


def page(explained: Explained) -> RenderableType:
    """All sections."""
    decision = explained.answer.decision if explained.answer is not None else None
    sections: list[tuple[str, list[RenderableType]]] = [
        (f"WatermarkPolicy {explained.namespace}/{explained.name}", [*map(_text, _headline(explained, decision))])
    ]
    if explained.trouble:
        sections.append(("What is missing", [*map(_text, explained.trouble)]))
    if decision is None:
        conditions = (f"{one.type} {one.status} ({one.reason}): {one.message}" for one in explained.conditions)
        sections.append(("The policy's status, as the companion wrote it last", [*map(_text, conditions)]))
    else:
        shares = {one["name"] for one in explained.inputs["policy"]["spec"]["metrics"] if one.get("relativeTo")}
        bands = [line for metric in decision["metrics"] for line in band(metric, is_share=metric["name"] in shares)]
        sections += [
            ("Load", [*bands]),
            ("Why", [*map(_text, decision["explanation"])]),
            ("Pods", [_pods(decision, shares)]),
            ("Freshness", [_table(("INPUT", "AGE", "TROUBLE"), freshness(explained))]),
        ]
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


def _headline(explained: Explained, decision: Mapping[str, Any] | None) -> Iterator[str]:
    """The count and its two bounds, or the error."""
    if explained.error:
        yield f"HPAs get an error: {explained.error}"
    elif decision is None:
        yield "the server's decision is not known"
    else:
        yield f"asks for {decision['desiredReplicas']} (now {decision['current']}), served as {decision['served']}"
        yield f"the load allows {range_text(decision.get('lowerBound'), decision.get('upperBound'))}"


def band(metric: Mapping[str, Any], *, is_share: bool) -> Iterator[Text]:
    """A metric's name and verdict, its band with the values in it, and what the signs mean."""
    style = {"Above": "red", "Inside": "green", "Below": "cyan"}.get(metric["verdict"], "")
    yield Text.assemble((metric["name"], "bold"), "  ", (metric["verdict"], style))
    if metric["error"]:
        yield _text(metric["error"])
        return
    keys = ("low", "high", "target", "raw", "usage")
    values = {key: parse_nano(metric[key]) for key in keys if metric[key] is not None}
    texts = value_texts(values, as_percent=is_share)
    end = max(values.values(), default=0) * _ROOM
    if not end:
        return
    at = {key: min(_BAND_WIDTH - 1, int(value / end * _BAND_WIDTH)) for key, value in values.items()}
    low, high = at.get("low", -1), at.get("high", _BAND_WIDTH)
    line = Text()
    signs = {at[key]: sign for key, sign in (("target", "┆"), ("raw", "○"), ("usage", "●")) if key in at}
    for column in range(_BAND_WIDTH):
        inside = ("━", "green") if low < column < high else ("─", "dim")
        line.append(
            *(signs[column], f"bold {style}") if column in signs else ("┃", "bold") if column in {low, high} else inside
        )
    yield line
    target = f"   ┆ target {texts['target']}" if "target" in texts else ""
    yield _text(
        f"● effective {texts.get('usage', '–')}   ○ over all running pods {texts.get('raw', '–')}{target}   "
        f"┃ {texts.get('low', '0')} … {texts.get('high', 'any')}"
    )


def _pods(decision: Mapping[str, Any], shares: set[str]) -> RenderableType:
    """The pods, those that are left out first, each with the evidence."""
    names = [metric["name"] for metric in decision["metrics"]]
    rows = []
    for pod in sorted(decision["pods"], key=lambda pod: (pod["state"] in _COUNTED, pod["state"], pod["name"])):
        why = f"{pod['reason']} ({pod['evidence']})" if pod["evidence"] else pod["reason"]
        usage = (_usage(pod, name, is_share=name in shares) for name in names)
        rows.append(("✓" if pod["state"] in _COUNTED else "✗", pod["name"], pod["state"], why, *usage))
    more = [("", f"… and {len(rows) - _MOST_PODS} more (-o json lists all)", "", "", *[""] * len(names))]
    return _table(("", "POD", "STATE", "WHY", *names), rows[:_MOST_PODS] + more * (len(rows) > _MOST_PODS))


def _usage(pod: Mapping[str, Any], metric: str, *, is_share: bool) -> str:
    value = pod["usage"].get(metric)
    if value is None:
        return str(pod.get("missing", {}).get(metric, ""))
    return value_text(Fraction(parse_nano(value)), as_percent=is_share)


def freshness(explained: Explained) -> Iterator[tuple[str, str, str]]:
    """Each input of the decision: its name, its age, and its trouble."""
    inputs = explained.inputs
    if not inputs or explained.answer is None:
        return
    now = parse_time(inputs["now"]) or explained.at
    observed, spec = inputs["observed"], inputs["policy"]["spec"]
    yield "policy, HPA, pods (watches)", f"assessed {duration(now - observed['now'])} ago", ""
    stale = {metric["name"]: parse_time(metric.get("staleAt")) for metric in explained.answer.decision["metrics"]}
    queries = observed["samples"]["queries"]
    sources = {f"query {name}": (one, stale.get(name)) for name, one in queries.items()}
    if any("resource" in metric for metric in spec["metrics"]):
        resources = [at for name, at in stale.items() if name not in queries and at is not None]
        sources["metrics.k8s.io"] = (observed["samples"]["resources"], min(resources, default=None))
    for name, (source, until) in sources.items():
        left = "no sample counts" if until is None else f"the oldest sample counts {duration(until - now)} more"
        yield name, f"{_answered(source['fetched_at'], now)}, {left}", source["error"] or ""
    if registry := spec.get("registry"):
        listed = observed["roster"] or {}
        trouble = listed.get("error") or ("" if listed else "no list of the service yet")
        count = f", {len(listed.get('instances') or ())} instances" if listed else ""
        age = "no valid answer" if listed.get("valid") is False else f"{_answered(listed.get('at'), now)}{count}"
        yield f"registry {registry.get('name')}", age, str(trouble)


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
