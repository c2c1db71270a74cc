"""A replay of several policies: each with its own HPA and history, on all cores, and their ranked report."""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import track

from adapter.commands.files import ManifestObject
from adapter.commands.replay.compare import RAW, SUBJECT, Service, compare
from adapter.commands.replay.history import PULLED_OUT
from adapter.commands.replay.inputs import read_from_prometheus, read_service, source_of
from adapter.commands.replay.model import fault
from adapter.commands.replay.prometheus import HistoryUnavailable, Source
from adapter.commands.replay.report import FIGURES
from adapter.commands.replay.score import Summary
from adapter.commands.terminal.output import aligned
from adapter.policy.watermark_policy import KIND
from adapter.runtime.faults import FaultyDocument

_FIGURES = ("OVER HIGH", "SHORTFALL", "POD-HOURS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A service with the figures of the stock HPA on the raw average and of its policy, or its error."""

    name: str
    stock: Summary | None = None
    policy: Summary | None = None
    error: str = ""

    @property
    def saved(self) -> float:
        """Pod-hours that the stock HPA uses more."""
        return self.stock.pod_hours - self.policy.pod_hours if self.stock and self.policy else 0.0

    @property
    def is_at_risk(self) -> bool:
        """Whether the risk is higher with the policy: by a tenth and a ten-thousandth, since less may be chance."""
        if self.stock is None or self.policy is None:
            return False
        return self.policy.risk > 1.1 * self.stock.risk + 0.0001


def replay_all(parsed: argparse.Namespace, objects: Sequence[ManifestObject]) -> list[Row]:
    """Replay every policy of the files, those that save most first, then those that failed. Raises FaultyDocument."""
    for name in ("against", "csv", "html", "sweep"):
        if value := getattr(parsed, name):
            raise fault(f"--{name}", value, "is for one policy, and the files have several; leave it out")
    source, services = source_of(parsed), dict[str, Service | str]()
    for one in objects:
        if one.kind == KIND:
            try:
                services[f"{one.namespace}/{one.name}"] = read_service(parsed, one, objects)
            except FaultyDocument as error:
                services[f"{one.namespace}/{one.name}"] = "; ".join(map(str, error.faults))
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("forkserver")) as pool:
        rows = pool.map(replay_one, services, services.values(), repeat(source))
        shown = track(rows, "replayed", len(services), console=Console(stderr=True), disable=not sys.stderr.isatty())
        return sorted(shown, key=lambda row: (bool(row.error), -row.saved, row.name))


def replay_one(name: str, service: Service | str, source: Source) -> Row:
    """The row of a service, or of the error why it cannot be replayed.

    A capacity or a query of a metric that the policy does not have is for other services.
    """
    if isinstance(service, str):
        return Row(name=name, error=service)
    names = {metric.name for metric in service.policy.metrics}
    capacity = {name: amount for name, amount in service.setup.capacity.items() if name in names}
    service = replace(service, setup=replace(service.setup, capacity=capacity))
    own = {name: text for name, text in source.own.items() if name in {*names, PULLED_OUT}}
    try:
        runs = compare(service, read_from_prometheus(service, source._replace(own=own))).runs
    except FaultyDocument as error:
        return Row(name=name, error="; ".join(map(str, error.faults)))
    except HistoryUnavailable as error:
        return Row(name=name, error=str(error))
    return Row(name=name, stock=runs[0].summary, policy=runs[SUBJECT].summary)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The ranked report as text."""
    played = [row for row in rows if not row.error]
    failed = [row for row in rows if row.error]
    at_risk = sum(row.is_at_risk for row in played)
    yield f"{len(played)} services replayed, {at_risk} at risk, {len(failed)} not replayed"
    yield f"Together: {sum(row.saved for row in played):+.1f} pod-hours saved against the {RAW}"
    if played:
        yield ""
        yield from aligned([("SERVICE", *_FIGURES, "SAVED", "AT RISK"), *map(_cells, played)])
        yield ""
        yield "Each pair: stock HPA → policy. OVER HIGH: time with more than a high watermark on a serving pod."
    if failed:
        yield from ("", "NOT REPLAYED", *(f"{row.name}: {row.error}" for row in failed))


def _cells(row: Row) -> list[str]:
    pair = [one for one in (row.stock, row.policy) if one is not None]
    cells = [" → ".join(FIGURES[head][1](one) for one in pair) for head in _FIGURES]
    return [row.name, *(cell.strip(" →") for cell in cells), f"{row.saved:+.1f}", "yes" if row.is_at_risk else ""]


def data(rows: Sequence[Row]) -> dict[str, Any]:
    """The ranked report as JSON data."""
    services = [
        {"name": row.name, "error": row.error}
        if row.error
        else {
            "name": row.name,
            "savedPodHours": row.saved,
            "atRisk": row.is_at_risk,
            "stock": msgspec.to_builtins(row.stock),
            "policy": msgspec.to_builtins(row.policy),
        }
        for row in rows
    ]
    return {"savedPodHours": sum(row.saved for row in rows), "services": services}
