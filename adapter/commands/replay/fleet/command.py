"""`effective-load replay --all` and `--merge`: many services, in one run or in shards, and their ranked report."""

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from adapter.commands.replay.fleet import ranking
from adapter.commands.replay.fleet.page import fleet_page
from adapter.commands.replay.fleet.parts import FleetPart, ShardRow, merge, read_part, to_json
from adapter.commands.replay.fleet.runner import FromPrometheus, Source, Task, picklable, run_tasks
from adapter.commands.replay.fleet.services import (
    FleetService,
    Shard,
    annotate,
    read_shard,
    services_of_cluster,
    services_of_folder,
)
from adapter.commands.replay.history.progress import Progress
from adapter.commands.replay.history.source import PrometheusSource, open_source
from adapter.commands.replay.page.markup import write_text
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time
from adapter.settings import Kubernetes, load_settings

OK, FAILED = 0, 1
_TITLE = "this cannot be replayed"
_SAME = (
    "step", "namespace", "query", "pulled_out_query", "replicas_query", "capacity", "request", "limit", "total",
    "starts", "stops", "sync", "delay", "window", "replicas", "open", "price",
)  # fmt: skip
"""The arguments that figures depend on: they are the same in all parts of a run."""
_ALONE = ("POLICY", "--hpa", "--against", "--csv", "--suggest", "--shortfall", "--front")

Print = Callable[[str], None]


def run(parsed: argparse.Namespace, show: Print) -> int:
    """Run the command. Returns the exit status: 1 where no service at all could be replayed.

    Raises FaultyDocument, HistoryUnavailable and KubeError.
    """
    _check(parsed)
    if parsed.merge:
        return _report(parsed, merge(_parts(parsed.merge)), show)
    shard = read_shard(parsed.shard)
    services = _services(parsed, shard)
    with open_source(parsed, time.time()) as source:
        part = replay_all(parsed, services, shard, FromPrometheus(source), run_identity(parsed, source))
        if parsed.annotate:
            annotate(parsed.kubeconfig, part.services, format_time(source.span.last / 1000))
    if parsed.shard is None:
        return _report(parsed, part, show)
    return _write(parsed, part, show)


def replay_all(
    parsed: argparse.Namespace, services: list[FleetService], shard: Shard, source: Source, identity: dict[str, Any]
) -> FleetPart:
    """Replay these services on all cores. A part of a run; its services are in order of their names."""
    tasks = [Task(service, picklable(parsed), source) for service in services]
    progress = Progress("services replayed:", len(tasks))
    rows = []
    try:
        for row in run_tasks(tasks, parsed.workers):
            rows.append(row)
            progress.advance()
    finally:
        progress.close()
    rows.sort(key=lambda row: (row.policy.namespace, row.policy.name))
    return FleetPart(ShardRow(shard.index, shard.count), identity, tuple(rows))


def run_identity(parsed: argparse.Namespace, source: PrometheusSource) -> dict[str, Any]:
    """What all parts of a run have in common."""
    span = source.span
    moments = {"from": format_time(span.first / 1000), "to": format_time(span.last / 1000)}
    return moments | {name: getattr(parsed, name) for name in _SAME if getattr(parsed, name) not in (None, [], False)}


def _check(parsed: argparse.Namespace) -> None:
    alone = {option: getattr(parsed, option.removeprefix("--").lower()) for option in _ALONE}
    faults = [
        Fault(option, value, "goes with a single policy, without --all and --merge")
        for option, value in alone.items()
        if value
    ]
    if parsed.html and parsed.shard:
        faults.append(Fault("--html", parsed.html, "goes with --merge: a shard is only a part of the report"))
    if parsed.all and parsed.merge:
        faults.append(Fault("--merge", None, "ranks parts that are there; leave --all away"))
    if parsed.annotate and (parsed.policies or not parsed.all):
        faults.append(Fault("--annotate", None, "goes with --all, for the policies of a cluster"))
    if parsed.part and not parsed.shard:
        faults.append(Fault("--part", parsed.part, "goes with --shard I/N"))
    for option, value in (("--workers", parsed.workers), ("--top", parsed.top)):
        if value is not None and value < 1:
            faults.append(Fault(option, value, "must be 1 or more"))
    if faults:
        raise FaultyDocument(faults, _TITLE)


def _services(parsed: argparse.Namespace, shard: Shard) -> list[FleetService]:
    namespace = parsed.namespace or ""
    if parsed.policies:
        services = services_of_folder(Path(parsed.policies), namespace, shard)
        where = parsed.policies
    else:
        kubernetes = load_settings(parsed.settings).kubernetes if parsed.settings else Kubernetes()
        namespaces = (namespace,) if namespace else kubernetes.namespaces
        services = services_of_cluster(parsed.kubeconfig, namespaces, shard, Fraction(kubernetes.hpa_tolerance))
        where = f"namespace {namespace}" if namespace else "the cluster"
    if not services and parsed.shard is None:
        raise FaultyDocument([Fault("--all", None, f"there is no WatermarkPolicy in {where}")], _TITLE)
    return services


def _parts(files: list[str]) -> dict[str, FleetPart]:
    parts = {}
    for file in files:
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise FaultyDocument([Fault("--merge", file, f"cannot be read: {error.strerror}")], _TITLE) from error
        if file in parts:
            raise FaultyDocument([Fault("--merge", file, "is named twice; name each part once")], _TITLE)
        parts[file] = read_part(content, file)
    return parts


def _write(parsed: argparse.Namespace, part: FleetPart, show: Print) -> int:
    if not parsed.part:
        show(to_json(part))
        return OK
    file = Path(parsed.part)
    staged = file.with_name(f".{file.name}.new")
    try:
        staged.write_text(to_json(part) + "\n")
        staged.replace(file)  # a half-written part never counts
    except OSError as error:
        raise FaultyDocument([Fault("--part", parsed.part, f"cannot be written: {error.strerror}")], _TITLE) from error
    return OK


def _report(parsed: argparse.Namespace, part: FleetPart, show: Print) -> int:
    if parsed.html:
        write_text(parsed.html, fleet_page(part))
    if parsed.output == "json":
        show(json.dumps(ranking.data(part), indent=2))
    else:
        show("\n".join(ranking.lines(part, parsed.top)))
    return OK if any(row.error is None for row in part.services) else FAILED
