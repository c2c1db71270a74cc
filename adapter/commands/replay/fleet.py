"""`effective-load replay --all`: the policies of a cluster, replayed on all cores, and their ranked report."""

import argparse
import asyncio
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from adapter.commands.cluster import Cluster, ClusterError, ListedPolicy
from adapter.commands.replay.compare import RAW, SUBJECT, compare
from adapter.commands.replay.inputs import Workload, fault, read_from_prometheus, read_source, service_of, sums
from adapter.commands.replay.model import Summary
from adapter.commands.replay.prometheus_history import HistoryUnavailable, Source
from adapter.commands.replay.report import cost
from adapter.commands.terminal.output import aligned
from adapter.commands.terminal.waiting import Progress
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa
from adapter.runtime.faults import FaultyDocument
from adapter.settings import Kubernetes, load_settings

_ALONE = ("policy", "hpa", "against", "csv", "html", "sweep")
_COLUMNS = ("SERVICE", "POD-HOURS", "SAVED", "COST SAVED", "OVER HIGH", "SHORTFALL", "AT RISK")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetService:
    """A policy with its HPA and what its pods request; or `error`, why it cannot be replayed."""

    name: str
    policy: Policy | None = None
    hpa: Hpa | None = None
    workload: Workload | None = None
    error: str = ""


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
        return bool(self.stock and self.policy) and self.policy.risk > 1.1 * self.stock.risk + 0.0001  # type: ignore[union-attr]


def replay_all(parsed: argparse.Namespace) -> list[Row]:
    """Replay every policy of the cluster, those that save most first, then those that failed.

    Raises FaultyDocument and KubeError.
    """
    for name in _ALONE:
        if value := getattr(parsed, name):
            raise fault("POLICY" if name == "policy" else f"--{name}", value, "is not valid with --all; leave it out")
    source = read_source(parsed)
    kubernetes = load_settings(parsed.settings).kubernetes if parsed.settings else Kubernetes()
    namespaces = (parsed.namespace,) if parsed.namespace else kubernetes.namespaces
    services = asyncio.run(_services(parsed.kubeconfig, namespaces, Fraction(kubernetes.hpa_tolerance)))
    if not services:
        where = f"namespace {parsed.namespace}" if parsed.namespace else "the cluster"
        raise fault("--all", None, f"found no WatermarkPolicy in {where}; name another --namespace or --kubeconfig")
    rows = list(_replayed(argparse.Namespace(**vars(parsed) | {"run": None}), services, source))
    return sorted(rows, key=lambda row: (bool(row.error), -row.saved, row.name))


def _replayed(parsed: argparse.Namespace, services: Sequence[FleetService], source: Source) -> Iterator[Row]:
    workers = min(len(os.sched_getaffinity(0)), len(services))
    context = multiprocessing.get_context("forkserver")
    with (
        ProcessPoolExecutor(workers, mp_context=context) as pool,
        closing(Progress("services replayed:", len(services))) as progress,
    ):
        futures = {pool.submit(replay_one, parsed, service, source): service for service in services}
        for future in as_completed(futures):
            if (error := future.exception()) is not None:  # the process died, perhaps out of memory
                yield Row(name=futures[future].name, error=f"the process that replayed it failed: {error}")
            else:
                yield future.result()
            progress.advance()


def replay_one(parsed: argparse.Namespace, listed: FleetService, source: Source) -> Row:
    """The row of one service, with its error where it cannot be replayed."""
    if listed.policy is None or listed.workload is None:
        return Row(name=listed.name, error=listed.error)
    try:
        service = service_of(parsed, listed.policy, listed.hpa, listed.workload)
        service, ticks = read_from_prometheus(service, source, is_one=False)
        if not ticks:
            return Row(name=listed.name, error="the history has no data for that time")
        runs = compare(service, ticks).runs
    except (FaultyDocument, HistoryUnavailable) as error:
        return Row(name=listed.name, error=str(error))
    return Row(name=listed.name, stock=runs[0].summary, policy=runs[SUBJECT].summary)


async def _services(kubeconfig: str | None, namespaces: Sequence[str], tolerance: Fraction) -> list[FleetService]:
    """The services of these namespaces (empty: of all). Raises KubeError where the policies cannot be read."""
    async with await Session.open(kubeconfig) as session:
        cluster = Cluster(session, tolerance)
        return [await _of_policy(cluster, listed) for listed in await cluster.policies(namespaces)]


async def _of_policy(cluster: Cluster, listed: ListedPolicy) -> FleetService:
    name = str(listed)
    if listed.policy is None:
        return FleetService(name=name, error=f"the policy is not valid: {listed.fault}")
    try:
        target = await cluster.pods(listed.policy)
    except (KubeError, ClusterError) as error:
        return FleetService(name=name, error=str(error))
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    if newest := max(target.pods, key=lambda pod: pod.created_at, default=None):
        requests = sums([one.requests for one in newest.containers]) | dict(newest.pod_requests)
        limits = sums([one.limits for one in newest.containers]) | dict(newest.pod_limits)
    workload = Workload(requests=requests, limits=limits)
    return FleetService(name=name, policy=listed.policy, hpa=target.hpa, workload=workload)


def lines(rows: Sequence[Row], price: Fraction | None) -> Iterator[str]:
    """The ranked report as text."""
    played = [row for row in rows if not row.error]
    failed = [row for row in rows if row.error]
    at_risk = sum(row.is_at_risk for row in played)
    yield f"{len(played)} services replayed, {at_risk} at risk, {len(failed)} not replayed"
    yield f"Together: {sum(row.saved for row in played):+.1f} pod-hours saved against the {RAW}"
    if played:
        yield ""
        yield from aligned([_COLUMNS, *(_cells(row, price) for row in played)])
        yield ""
        yield "Each pair: stock HPA → policy. OVER HIGH: minutes with more than a high watermark on a serving pod."
    if failed:
        yield from ("", "NOT REPLAYED", *(f"{row.name}: {row.error}" for row in failed))


def _cells(row: Row, price: Fraction | None) -> list[str]:
    stock, policy = row.stock, row.policy
    assert stock is not None
    assert policy is not None
    shortfall = [f"{100 * (one.shortfall or 0):.3f}" for one in (stock, policy)]
    return [
        row.name,
        f"{stock.pod_hours:.1f} → {policy.pod_hours:.1f}",
        f"{row.saved:+.1f}",
        "" if price is None else f"{row.saved * float(price):+.2f}",
        f"{stock.over_high / 60:.1f} → {policy.over_high / 60:.1f}",
        "" if policy.shortfall is None else f"{' → '.join(shortfall)} %",
        "yes" if row.is_at_risk else "",
    ]


def data(rows: Sequence[Row], price: Fraction | None) -> dict[str, Any]:
    """The ranked report as JSON data."""
    return {"savedPodHours": round(sum(row.saved for row in rows), 3), "services": [_row(row, price) for row in rows]}


def _row(row: Row, price: Fraction | None) -> dict[str, Any]:
    if row.error or row.stock is None or row.policy is None:
        return {"name": row.name, "error": row.error}
    pair = {"stock": row.stock, "policy": row.policy}
    return {
        "name": row.name,
        "savedPodHours": round(row.saved, 3),
        "savedCost": None if price is None else round(row.saved * float(price), 4),
        "atRisk": row.is_at_risk,
        "podHours": {name: round(one.pod_hours, 3) for name, one in pair.items()},
        "cost": None if price is None else {name: round(cost(one, price), 4) for name, one in pair.items()},
        "overHighSeconds": {name: one.over_high for name, one in pair.items()},
        "shortfallRatio": {name: one.shortfall for name, one in pair.items()},
    }
