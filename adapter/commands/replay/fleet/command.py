"""`effective-load replay --all`: many services, and their ranked report."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.replay.comparison import RAW
from adapter.commands.replay.fleet.runner import Task, run_tasks
from adapter.commands.replay.fleet.services import (
    Figures,
    FleetService,
    ServiceRow,
    Shard,
    read_shard,
    services_of_cluster,
)
from adapter.commands.replay.history.prometheus import PrometheusSource, read_source
from adapter.commands.terminal.command import FAILED, OK
from adapter.commands.terminal.output import aligned
from adapter.commands.terminal.waiting import Progress
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time
from adapter.settings import Kubernetes, load_settings

_TITLE = "this cannot be replayed"
_SAID = (
    "step", "namespace", "query", "pulled_out_query", "capacity", "request", "limit",
    "starts", "delay", "window", "price",
)  # fmt: skip
"""The arguments that figures depend on; the report has those that were given."""
_ALONE = ("POLICY", "--hpa", "--against", "--csv", "--html")
_TOP = 20
"""The services in each ranking of the text."""

OVER_HIGH, SHORTFALL = "overHigh", "shortfall"
_NO_SHORTFALL = 0.0001
_COLUMNS = ("SERVICE", "POD-HOURS", "SAVED", "COST SAVED", "OVER HIGH", "AVOIDED", "SHORTFALL")

Print = Callable[[str], None]


def run(parsed: argparse.Namespace, show: Print) -> int:
    """Run the command. Returns the exit status: 1 where no service at all could be replayed.

    Of a part (`--shard`) it shows a line of JSON for each service; a part may have none.

    Raises FaultyDocument, HistoryUnavailable and KubeError.
    """
    _check(parsed)
    shard = read_shard(parsed.shard) if parsed.shard else Shard()
    services = _services(parsed, shard)
    source = read_source(parsed, time.time())
    run_is = {"from": format_time(source.span.first / 1000), "to": format_time(source.span.last / 1000)}
    rows = replay_all(parsed, services, source)
    if parsed.shard:
        for row in rows:
            show(json.dumps(row_data(row)))
        return OK if not rows or any(row.error is None for row in rows) else FAILED
    run_is |= {name: getattr(parsed, name) for name in _SAID if getattr(parsed, name) not in (None, [], False)}
    show(json.dumps(data(run_is, rows), indent=2) if parsed.output == "json" else "\n".join(lines(run_is, rows)))
    return OK if any(row.error is None for row in rows) else FAILED


def replay_all(
    parsed: argparse.Namespace, services: Sequence[FleetService], source: PrometheusSource
) -> list[ServiceRow]:
    """Replay these services on all cores. Their rows are in order of their names."""
    arguments = argparse.Namespace(**vars(parsed) | {"run": None})  # a function is not sent to other processes
    tasks = [Task(service, arguments, source) for service in services]
    rows = []
    with closing(Progress("services replayed:", len(tasks))) as progress:
        for row in run_tasks(tasks):
            rows.append(row)
            progress.advance()
    return sorted(rows, key=lambda row: (row.namespace, row.name))


def _check(parsed: argparse.Namespace) -> None:
    alone = {option: getattr(parsed, option.removeprefix("--").lower()) for option in _ALONE}
    faults = [
        Fault(option, value, "goes with a single policy, without --all") for option, value in alone.items() if value
    ]
    if faults:
        raise FaultyDocument(faults, _TITLE)


def _services(parsed: argparse.Namespace, shard: Shard) -> list[FleetService]:
    kubernetes = load_settings(parsed.settings).kubernetes if parsed.settings else Kubernetes()
    namespaces = (parsed.namespace,) if parsed.namespace else kubernetes.namespaces
    tolerance = Fraction(kubernetes.hpa_tolerance)
    services = asyncio.run(services_of_cluster(parsed.kubeconfig, namespaces, tolerance, shard))
    if not services and not parsed.shard:
        where = f"namespace {parsed.namespace}" if parsed.namespace else "the cluster"
        raise FaultyDocument([Fault("--all", None, f"there is no WatermarkPolicy in {where}")], _TITLE)
    return services


@dataclass(frozen=True, slots=True)
class Ranked:
    """A service with the stock HPA's run and the policy's. Gains are negative where the policy needs more."""

    row: ServiceRow
    stock: Figures
    policy: Figures

    @property
    def saved(self) -> float:
        """Pod-hours that the stock HPA uses more."""
        return self.stock.pod_hours - self.policy.pod_hours

    @property
    def saved_cost(self) -> float | None:
        """What those cost; None without a price."""
        if self.stock.cost is None or self.policy.cost is None:
            return None
        return self.stock.cost - self.policy.cost

    @property
    def avoided(self) -> float:
        """Seconds over the high watermark that the stock HPA has more."""
        return self.stock.over_high - self.policy.over_high

    @property
    def risks(self) -> tuple[str, ...]:
        """Why the service is at risk with the policy: more load beyond capacity than with the stock HPA.

        Where nobody knows the capacity, more time over the high watermark. A tenth more may be chance.
        """
        if self.policy.shortfall is not None:
            return (SHORTFALL,) if _shortfall(self.policy) > 1.1 * _shortfall(self.stock) + _NO_SHORTFALL else ()
        return (OVER_HIGH,) if self.policy.over_high > 1.1 * self.stock.over_high else ()


class Ranking(NamedTuple):
    """The services by what they gain, those at risk, and those that could not be replayed; each best or worst first."""

    saves: Sequence[Ranked]
    avoids: Sequence[Ranked]
    at_risk: Sequence[Ranked]
    failed: Sequence[ServiceRow]
    all: Sequence[Ranked]

    @property
    def saved(self) -> float:
        """Pod-hours that the policies save together."""
        return sum(service.saved for service in self.all)

    @property
    def saved_cost(self) -> float | None:
        """What those cost; None without a price."""
        costs = [service.saved_cost for service in self.all if service.saved_cost is not None]
        return sum(costs) if costs else None

    @property
    def avoided(self) -> float:
        """Seconds over a high watermark that the policies avoid together."""
        return sum(service.avoided for service in self.all)


def rank(rows: Sequence[ServiceRow]) -> Ranking:
    """Rank all services of a run. Equal ones are in order of their names."""
    services = [Ranked(row, *row.figures) for row in rows if row.figures is not None]
    return Ranking(
        saves=sorted((service for service in services if service.saved > 0), key=lambda service: -service.saved),
        avoids=sorted((service for service in services if service.avoided > 0), key=lambda service: -service.avoided),
        at_risk=sorted(
            (service for service in services if service.risks),
            key=lambda service: (service.avoided, -_shortfall(service.policy)),
        ),
        failed=[row for row in rows if row.error is not None],
        all=services,
    )


def _shortfall(figures: Figures) -> float:
    return figures.shortfall or 0.0


def data(run_is: Mapping[str, Any], rows: Sequence[ServiceRow]) -> dict[str, Any]:
    """The ranked report as JSON data. The three rankings name services; their figures are in `services`."""
    ranking = rank(rows)
    return {
        "run": dict(run_is),
        "serviceCount": len(rows),
        "savedPodHours": round(ranking.saved, 3),
        "savedCost": None if ranking.saved_cost is None else round(ranking.saved_cost, 4),
        "avoidedOverHighSeconds": ranking.avoided,
        "mostSaved": [str(service.row) for service in ranking.saves],
        "mostAvoided": [str(service.row) for service in ranking.avoids],
        "atRisk": [{"policy": str(service.row), "risks": list(service.risks)} for service in ranking.at_risk],
        "failed": [{"policy": str(row), "error": row.error} for row in ranking.failed],
        "services": [row_data(service.row) for service in ranking.all],
    }


def row_data(row: ServiceRow) -> dict[str, Any]:
    """A service as JSON data: its figures with the stock HPA and with the policy, or its error."""
    policy = {"namespace": row.namespace, "name": row.name}
    if row.figures is None:
        return {"policy": policy, "error": row.error}
    service = Ranked(row, *row.figures)
    return {
        "policy": policy,
        "savedPodHours": round(service.saved, 3),
        "savedCost": None if service.saved_cost is None else round(service.saved_cost, 4),
        "avoidedOverHighSeconds": service.avoided,
        "risks": list(service.risks),
        "podHours": {"stock": service.stock.pod_hours, "policy": service.policy.pod_hours},
        "overHighSeconds": {"stock": service.stock.over_high, "policy": service.policy.over_high},
        "shortfallRatio": {"stock": service.stock.shortfall, "policy": service.policy.shortfall},
    }


def lines(run_is: Mapping[str, Any], rows: Sequence[ServiceRow], top: int = _TOP) -> Iterator[str]:
    """The ranked report as text: up to `top` services in each ranking."""
    ranking, count = rank(rows), len(rows)
    yield f"Replay of {count} service{'s' * (count != 1)}, {run_is['from']} to {run_is['to']}: each policy"
    yield f"against the {RAW}: the one of today, else one that is as safe."
    yield f"{len(ranking.at_risk)} at risk, {len(ranking.failed)} not replayed."
    avoided = f"{ranking.avoided / 60:+.1f} minutes over a high watermark avoided"
    yield f"Together: {ranking.saved:+.1f} pod-hours saved, {avoided}."
    for title, services in (
        ("MOST POD-HOURS SAVED", ranking.saves),
        ("MOST TIME OVER A HIGH WATERMARK AVOIDED", ranking.avoids),
        ("AT RISK", ranking.at_risk),
    ):
        if services:
            yield from ("", title)
            yield from aligned([_COLUMNS, *(_cells(service) for service in services[:top])])
            yield from _more(len(services), top)
    if ranking.failed:
        yield from ("", "NOT REPLAYED")
        yield from (f"{row}: {row.error}" for row in ranking.failed[:top])
        yield from _more(len(ranking.failed), top)
    yield ""
    yield "Each pair: stock HPA → policy. OVER HIGH: minutes with more than a high watermark on a serving pod."


def _cells(service: Ranked) -> list[str]:
    stock, policy = service.stock, service.policy
    return [
        str(service.row),
        f"{stock.pod_hours:.1f} → {policy.pod_hours:.1f}",
        f"{service.saved:+.1f}",
        "" if service.saved_cost is None else f"{service.saved_cost:+.2f}",
        f"{stock.over_high / 60:.1f} → {policy.over_high / 60:.1f}",
        f"{service.avoided / 60:+.1f}",
        "" if policy.shortfall is None else f"{100 * _shortfall(stock):.3f} → {100 * policy.shortfall:.3f} %",
    ]


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"… and {count - top} more (-o json)"
