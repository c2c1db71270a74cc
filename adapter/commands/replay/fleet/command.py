"""`effective-load replay --all` and `--merge`: many services, in one run or in shards, and their ranked report."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from adapter.commands.replay.comparison import RAW, SUBJECT
from adapter.commands.replay.fleet.parts import FleetPart, RunRow, ServiceRow, Shard, merge, read_part, to_json
from adapter.commands.replay.fleet.runner import Task, run_tasks
from adapter.commands.replay.fleet.services import (
    FleetService,
    annotate,
    read_shard,
    services_of_cluster,
    services_of_folder,
)
from adapter.commands.replay.history.prometheus import PrometheusSource, open_source
from adapter.commands.replay.page.markup import (
    Html,
    count_text,
    document,
    join,
    share_text,
    signed_text,
    tag,
    write_text,
)
from adapter.commands.terminal.command import FAILED, OK
from adapter.commands.terminal.output import aligned
from adapter.commands.terminal.waiting import Progress
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time
from adapter.settings import Kubernetes, load_settings

_TITLE = "this cannot be replayed"
_SAME = (
    "step", "namespace", "query", "pulled_out_query", "replicas_query", "capacity", "request", "limit", "total",
    "starts", "stops", "sync", "delay", "window", "replicas", "open", "price",
)  # fmt: skip
"""The arguments that figures depend on: they are the same in all parts of a run."""
_ALONE = ("POLICY", "--hpa", "--against", "--csv", "--suggest", "--shortfall", "--front")

OVER_HIGH, SHORTFALL = "overHigh", "shortfall"
_NO_SHORTFALL = 0.0001
_COLUMNS = ("SERVICE", "POD-HOURS", "SAVED", "COST SAVED", "OVER HIGH", "AVOIDED", "SHORTFALL")

Print = Callable[[str], None]
_RISKS = {OVER_HIGH: "more time over high", SHORTFALL: "load beyond capacity"}


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
        part = replay_all(parsed, services, shard, source)
        if parsed.annotate:
            asyncio.run(annotate(parsed.kubeconfig, part.services, format_time(source.span.last / 1000)))
    if parsed.shard is None:
        return _report(parsed, part, show)
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


def replay_all(
    parsed: argparse.Namespace, services: list[FleetService], shard: Shard, source: PrometheusSource
) -> FleetPart:
    """Replay these services on all cores. A part of a run; its services are in order of their names."""
    arguments = argparse.Namespace(**vars(parsed) | {"run": None})  # a function is not sent to other processes
    tasks = [Task(service, arguments, source) for service in services]
    rows = []
    with closing(Progress("services replayed:", len(tasks))) as progress:
        for row in run_tasks(tasks, parsed.workers):
            rows.append(row)
            progress.advance()
    rows.sort(key=lambda row: (row.policy.namespace, row.policy.name))
    identity = {"from": format_time(source.span.first / 1000), "to": format_time(source.span.last / 1000)}
    identity |= {name: getattr(parsed, name) for name in _SAME if getattr(parsed, name) not in (None, [], False)}
    return FleetPart(shard, identity, tuple(rows))


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
        tolerance = Fraction(kubernetes.hpa_tolerance)
        services = asyncio.run(services_of_cluster(parsed.kubeconfig, namespaces, shard, tolerance))
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


def _report(parsed: argparse.Namespace, part: FleetPart, show: Print) -> int:
    if parsed.html:
        write_text(parsed.html, fleet_page(part))
    if parsed.output == "json":
        show(json.dumps(data(part), indent=2))
    else:
        show("\n".join(lines(part, parsed.top)))
    return OK if any(row.error is None for row in part.services) else FAILED


@dataclass(frozen=True, slots=True)
class Ranked:
    """A service with the stock HPA's run and the policy's. Gains are negative where the policy needs more."""

    row: ServiceRow
    stock: RunRow
    policy: RunRow

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
        return self.stock.over_high_seconds - self.policy.over_high_seconds

    @property
    def risks(self) -> tuple[str, ...]:
        """Why the service is at risk with the policy: more load beyond capacity than with the stock HPA.

        Where nobody knows the capacity, more time over the high watermark. A tenth more may be chance.
        """
        if self.policy.shortfall_ratio is not None:
            return (SHORTFALL,) if _shortfall(self.policy) > 1.1 * _shortfall(self.stock) + _NO_SHORTFALL else ()
        return (OVER_HIGH,) if self.policy.over_high_seconds > 1.1 * self.stock.over_high_seconds else ()


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


def rank(part: FleetPart) -> Ranking:
    """Rank all services of a run. Equal ones are in order of their names."""
    services = [Ranked(row, row.runs[0], row.runs[SUBJECT]) for row in part.services if row.error is None]
    return Ranking(
        saves=sorted((service for service in services if service.saved > 0), key=lambda service: -service.saved),
        avoids=sorted((service for service in services if service.avoided > 0), key=lambda service: -service.avoided),
        at_risk=sorted(
            (service for service in services if service.risks),
            key=lambda service: (service.avoided, -_shortfall(service.policy)),
        ),
        failed=[row for row in part.services if row.error is not None],
        all=services,
    )


def _shortfall(run: RunRow) -> float:
    return run.shortfall_ratio or 0.0


def data(part: FleetPart) -> dict[str, Any]:
    """The ranked report as JSON data. The three rankings name services; their figures are in `services`."""
    ranking = rank(part)
    return {
        "run": dict(part.run),
        "serviceCount": len(part.services),
        "savedPodHours": round(ranking.saved, 3),
        "savedCost": None if ranking.saved_cost is None else round(ranking.saved_cost, 4),
        "avoidedOverHighSeconds": ranking.avoided,
        "mostSaved": [str(service.row.policy) for service in ranking.saves],
        "mostAvoided": [str(service.row.policy) for service in ranking.avoids],
        "atRisk": [{"policy": str(service.row.policy), "risks": list(service.risks)} for service in ranking.at_risk],
        "failed": [{"policy": str(row.policy), "error": row.error} for row in ranking.failed],
        "services": [
            {
                "policy": {"namespace": service.row.policy.namespace, "name": service.row.policy.name},
                "savedPodHours": round(service.saved, 3),
                "savedCost": None if service.saved_cost is None else round(service.saved_cost, 4),
                "avoidedOverHighSeconds": service.avoided,
                "risks": list(service.risks),
                "podHours": {"stock": service.stock.pod_hours, "policy": service.policy.pod_hours},
                "overHighSeconds": {
                    "stock": service.stock.over_high_seconds,
                    "policy": service.policy.over_high_seconds,
                },
                "shortfallRatio": {"stock": service.stock.shortfall_ratio, "policy": service.policy.shortfall_ratio},
            }
            for service in ranking.all
        ],
    }


def lines(part: FleetPart, top: int) -> Iterator[str]:
    """The ranked report as text: up to `top` services in each ranking."""
    ranking, count = rank(part), len(part.services)
    yield f"Replay of {count} service{'s' * (count != 1)}, {part.run.get('from')} to {part.run.get('to')}: each policy"
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
        yield from (f"{row.policy}: {row.error}" for row in ranking.failed[:top])
        yield from _more(len(ranking.failed), top)
    yield ""
    yield "Each pair: stock HPA → policy. OVER HIGH: minutes with more than a high watermark on a serving pod."


def _cells(service: Ranked) -> list[str]:
    stock, policy = service.stock, service.policy
    return [
        str(service.row.policy),
        f"{stock.pod_hours:.1f} → {policy.pod_hours:.1f}",
        f"{service.saved:+.1f}",
        "" if service.saved_cost is None else f"{service.saved_cost:+.2f}",
        f"{stock.over_high_seconds / 60:.1f} → {policy.over_high_seconds / 60:.1f}",
        f"{service.avoided / 60:+.1f}",
        ""
        if policy.shortfall_ratio is None
        else f"{100 * _shortfall(stock):.3f} → {100 * policy.shortfall_ratio:.3f} %",
    ]


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"… and {count - top} more (--top)"


def fleet_page(part: FleetPart) -> str:
    """The page of a whole run."""
    ranking, count = rank(part), f"{len(part.services):,} services"
    span = f"{part.run.get('from', '')} to {part.run.get('to', '')}"
    cards = [
        (signed_text(ranking.saved), "pod-hours saved"),
        *([] if ranking.saved_cost is None else [(_money(ranking.saved_cost), "cost saved")]),
        (signed_text(ranking.avoided / 60), "minutes over a high watermark avoided"),
        (count_text(len(ranking.at_risk)), f"of {count} at risk with their policy"),
    ]
    failed = (tag("li", tag("bdi", str(row.policy)), ": ", row.error or "") for row in ranking.failed)
    body = join(
        [
            tag(
                "header",
                tag("p", "Replay", class_="kind"),
                tag("h1", f"Replay of {count}"),
                tag("p", f"{span} · each policy against the {RAW}", class_="facts"),
            ),
            tag(
                "main",
                tag(
                    "section",
                    (
                        tag("article", tag("p", tag("strong", text), name, class_="main"), class_="card")
                        for text, name in cards
                    ),
                    class_="cards",
                    aria_label="All services together",
                ),
                _services_section(ranking),
                tag("section", tag("h2", "Not replayed"), tag("ul", failed)) if ranking.failed else "",
            ),
            tag("footer", "This page loads nothing and sends nothing."),
        ]
    )
    return document(f"Replay of {count}", body, {})


def _services_section(ranking: Ranking) -> Html:
    columns: list[tuple[str, Callable[[Ranked], tuple[float | None, str]]]] = [
        ("Pod-hours saved", lambda service: (service.saved, signed_text(service.saved))),
        (
            "Cost saved",
            lambda service: (service.saved_cost, "" if service.saved_cost is None else _money(service.saved_cost)),
        ),
        ("Pod-hours, stock", lambda service: (service.stock.pod_hours, count_text(service.stock.pod_hours))),
        ("policy", lambda service: (service.policy.pod_hours, count_text(service.policy.pod_hours))),
        ("Minutes over avoided", lambda service: (service.avoided, signed_text(service.avoided / 60))),
        ("stock", lambda service: (service.stock.over_high_seconds, count_text(service.stock.over_high_seconds / 60))),
        (
            "policy",
            lambda service: (service.policy.over_high_seconds, count_text(service.policy.over_high_seconds / 60)),
        ),
        (
            "Shortfall, stock",
            lambda service: (service.stock.shortfall_ratio, share_text(service.stock.shortfall_ratio)),
        ),
        ("policy", lambda service: (service.policy.shortfall_ratio, share_text(service.policy.shortfall_ratio))),
    ]
    if all(service.policy.shortfall_ratio is None for service in ranking.all):
        del columns[-2:]
    if ranking.saved_cost is None:
        del columns[1]
    titles = ["Service", *(title for title, _ in columns), "Risks"]
    head = (
        tag("th", tag("button", title, type="button"), scope="col", aria_sort="descending" if index == 1 else "none")
        for index, title in enumerate(titles)
    )
    rows = []
    for service in sorted(ranking.all, key=lambda service: -service.saved):
        figures = (figure(service) for _, figure in columns)
        risks = ", ".join(_RISKS[risk] for risk in service.risks)
        row = (
            tag("th", tag("bdi", str(service.row.policy)), scope="row"),
            *(tag("td", text, data_value="" if value is None else repr(float(value))) for value, text in figures),
            tag("td", risks, class_="warning" if risks else None, data_value=str(len(service.risks))),
        )
        rows.append(tag("tr", row))
    search = tag("label", "Search ", tag("input", type="search", data_search="services"))
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="sortable", id="services")
    return tag(
        "section",
        tag("h2", "Services"),
        tag("p", search, class_="search"),
        tag("div", table, class_="scroll wide", tabindex="0"),
        tag("p", f"Saved and avoided: by the policy, against the {RAW}. Negative: the policy has more.", class_="hint"),
    )


def _money(value: float) -> str:
    return f"{value:+,.2f}".replace("-", "−")
