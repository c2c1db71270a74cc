"""`effective-load replay --all` and `--merge`: many services, in one run or in shards, and their ranked report."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from adapter.commands.replay.comparison import RAW, SUBJECT
from adapter.commands.replay.fleet.parts import FleetPart, RunRow, ServiceRow, Shard, merge, read_part, to_json
from adapter.commands.replay.fleet.runner import FromPrometheus, Source, Task, run_tasks
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
    minutes,
    share_text,
    signed_text,
    tag,
    write_text,
)
from adapter.commands.terminal.output import aligned
from adapter.commands.terminal.waiting import Progress
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
        part = replay_all(parsed, services, shard, FromPrometheus(source), run_identity(parsed, source))
        if parsed.annotate:
            asyncio.run(annotate(parsed.kubeconfig, part.services, format_time(source.span.last / 1000)))
    if parsed.shard is None:
        return _report(parsed, part, show)
    return _write(parsed, part, show)


def replay_all(
    parsed: argparse.Namespace, services: list[FleetService], shard: Shard, source: Source, identity: dict[str, Any]
) -> FleetPart:
    """Replay these services on all cores. A part of a run; its services are in order of their names."""
    arguments = argparse.Namespace(**vars(parsed) | {"run": None})  # a function is not sent to other processes
    tasks = [Task(service, arguments, source) for service in services]
    progress = Progress("services replayed:", len(tasks))
    rows = []
    try:
        for row in run_tasks(tasks, parsed.workers):
            rows.append(row)
            progress.advance()
    finally:
        progress.close()
    rows.sort(key=lambda row: (row.policy.namespace, row.policy.name))
    return FleetPart(shard, identity, tuple(rows))


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


def rank(part: FleetPart) -> Ranking:
    """Rank all services of a run. Equal ones are in order of their names."""
    services = [Ranked(row, row.runs[0], row.runs[SUBJECT]) for row in part.services if row.error is None]
    return Ranking(
        saves=sorted((one for one in services if one.saved > 0), key=lambda one: -one.saved),
        avoids=sorted((one for one in services if one.avoided > 0), key=lambda one: -one.avoided),
        at_risk=sorted((one for one in services if one.risks), key=lambda one: (one.avoided, -_shortfall(one.policy))),
        failed=[row for row in part.services if row.error is not None],
        all=services,
    )


def _shortfall(run: RunRow) -> float:
    return run.shortfall_ratio or 0.0


def data(part: FleetPart) -> dict[str, Any]:
    """The ranked report as JSON data. The three rankings name services; their figures are in `services`."""
    ranking = rank(part)
    costs = [one.saved_cost for one in ranking.all if one.saved_cost is not None]
    return {
        "run": dict(part.run),
        "serviceCount": len(part.services),
        "savedPodHours": round(sum(one.saved for one in ranking.all), 3),
        "savedCost": round(sum(costs), 4) if costs else None,
        "avoidedOverHighSeconds": sum(one.avoided for one in ranking.all),
        "mostSaved": [str(one.row.policy) for one in ranking.saves],
        "mostAvoided": [str(one.row.policy) for one in ranking.avoids],
        "atRisk": [{"policy": str(one.row.policy), "risks": list(one.risks)} for one in ranking.at_risk],
        "failed": [{"policy": str(row.policy), "error": row.error} for row in ranking.failed],
        "services": [_service(one) for one in ranking.all],
    }


def _service(one: Ranked) -> dict[str, Any]:
    return {
        "policy": {"namespace": one.row.policy.namespace, "name": one.row.policy.name},
        "savedPodHours": round(one.saved, 3),
        "savedCost": None if one.saved_cost is None else round(one.saved_cost, 4),
        "avoidedOverHighSeconds": one.avoided,
        "risks": list(one.risks),
        "podHours": {"stock": one.stock.pod_hours, "policy": one.policy.pod_hours},
        "overHighSeconds": {"stock": one.stock.over_high_seconds, "policy": one.policy.over_high_seconds},
        "shortfallRatio": {"stock": one.stock.shortfall_ratio, "policy": one.policy.shortfall_ratio},
    }


def lines(part: FleetPart, top: int) -> Iterator[str]:
    """The ranked report as text: up to `top` services in each ranking."""
    ranking, count = rank(part), len(part.services)
    yield f"Replay of {count} service{'s' * (count != 1)}, {part.run.get('from')} to {part.run.get('to')}: each policy"
    yield f"against the {RAW}: the one of today, else one that is as safe."
    yield f"{len(ranking.at_risk)} at risk, {len(ranking.failed)} not replayed."
    saved = sum(one.saved for one in ranking.all)
    avoided = sum(one.avoided for one in ranking.all)
    yield f"Together: {saved:+.1f} pod-hours saved, {avoided / 60:+.1f} minutes over a high watermark avoided."
    for title, services in (
        ("MOST POD-HOURS SAVED", ranking.saves),
        ("MOST TIME OVER A HIGH WATERMARK AVOIDED", ranking.avoids),
        ("AT RISK", ranking.at_risk),
    ):
        yield from _table(title, services, top)
    if ranking.failed:
        yield ""
        yield "NOT REPLAYED"
        yield from (f"{row.policy}: {row.error}" for row in ranking.failed[:top])
        yield from _more(len(ranking.failed), top)
    yield ""
    yield "Each pair: stock HPA → policy. OVER HIGH: minutes with more than a high watermark on a serving pod."


def _table(title: str, services: Sequence[Ranked], top: int) -> Iterator[str]:
    if not services:
        return
    yield ""
    yield title
    yield from aligned([_COLUMNS, *(_cells(one) for one in services[:top])])
    yield from _more(len(services), top)


def _cells(one: Ranked) -> list[str]:
    stock, policy = one.stock, one.policy
    return [
        str(one.row.policy),
        f"{stock.pod_hours:.1f} → {policy.pod_hours:.1f}",
        f"{one.saved:+.1f}",
        "" if one.saved_cost is None else f"{one.saved_cost:+.2f}",
        f"{stock.over_high_seconds / 60:.1f} → {policy.over_high_seconds / 60:.1f}",
        f"{one.avoided / 60:+.1f}",
        ""
        if policy.shortfall_ratio is None
        else f"{100 * _shortfall(stock):.3f} → {100 * policy.shortfall_ratio:.3f} %",
    ]


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"… and {count - top} more (--top)"


def fleet_page(part: FleetPart) -> str:
    """The page of a whole run."""
    ranking = rank(part)
    span = f"{part.run.get('from', '')} to {part.run.get('to', '')}"
    title = f"Replay of {len(part.services):,} services"
    body = join(
        [
            tag(
                "header",
                tag("p", "Replay", class_="kind"),
                tag("h1", title),
                tag("p", f"{span} · each policy against the {RAW}", class_="facts"),
            ),
            tag("main", _cards(part, ranking), _service_rows(ranking), _failed(ranking)),
            tag("footer", "This page loads nothing and sends nothing."),
        ]
    )
    return document(title, body, {})


def _cards(part: FleetPart, ranking: Ranking) -> Html:
    costs = [one.saved_cost for one in ranking.all if one.saved_cost is not None]
    figures = [
        (signed_text(sum(one.saved for one in ranking.all)), "pod-hours saved"),
        *([(_money(sum(costs)), "cost saved")] if costs else []),
        (signed_text(minutes(sum(one.avoided for one in ranking.all))), "minutes over a high watermark avoided"),
        (count_text(len(ranking.at_risk)), f"of {len(part.services):,} services at risk with their policy"),
    ]
    cards = (
        tag("article", tag("p", tag("strong", text), name, class_="main"), class_="card") for text, name in figures
    )
    return tag("section", cards, class_="cards", aria_label="All services together")


def _service_rows(ranking: Ranking) -> Html:
    has_cost = any(one.saved_cost is not None for one in ranking.all)
    has_capacity = any(one.policy.shortfall_ratio is not None for one in ranking.all)
    head = (
        tag("th", tag("button", title, type="button"), scope="col", aria_sort=direction)
        for title, direction in _titles(has_cost=has_cost, has_capacity=has_capacity)
    )
    ordered = sorted(ranking.all, key=lambda one: -one.saved)
    rows = (tag("tr", _row(one, has_cost=has_cost, has_capacity=has_capacity)) for one in ordered)
    search = tag("label", "Search ", tag("input", type="search", data_search="services"))
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="sortable", id="services")
    return tag(
        "section",
        tag("h2", "Services"),
        tag("p", search, class_="search"),
        tag("div", table, class_="scroll wide", tabindex="0"),
        tag("p", f"Saved and avoided: by the policy, against the {RAW}. Negative: the policy has more.", class_="hint"),
    )


def _titles(*, has_cost: bool, has_capacity: bool) -> Iterator[tuple[str, str]]:
    yield "Service", "none"
    yield "Pod-hours saved", "descending"
    if has_cost:
        yield "Cost saved", "none"
    yield from ((title, "none") for title in ("Pod-hours, stock", "policy"))
    yield from ((title, "none") for title in ("Minutes over avoided", "stock", "policy"))
    if has_capacity:
        yield from (("Shortfall, stock", "none"), ("policy", "none"))
    yield "Risks", "none"


def _row(one: Ranked, *, has_cost: bool, has_capacity: bool) -> Iterable[Html]:
    stock, policy = one.stock, one.policy
    yield tag("th", tag("bdi", str(one.row.policy)), scope="row")
    yield _number(one.saved, signed_text(one.saved))
    if has_cost:
        saved = one.saved_cost
        yield _number(saved, "" if saved is None else _money(saved))
    yield from (_number(run.pod_hours, count_text(run.pod_hours)) for run in (stock, policy))
    yield _number(one.avoided, signed_text(minutes(one.avoided)))
    yield from (_number(run.over_high_seconds, count_text(minutes(run.over_high_seconds))) for run in (stock, policy))
    if has_capacity:
        yield from (_number(run.shortfall_ratio, share_text(run.shortfall_ratio)) for run in (stock, policy))
    risks = ", ".join(_RISKS[risk] for risk in one.risks)
    yield tag("td", risks, class_="warning" if risks else None, data_value=str(len(one.risks)))


def _number(value: float | None, text: str) -> Html:
    return tag("td", text, data_value="" if value is None else repr(float(value)))


def _money(value: float) -> str:
    return f"{value:+,.2f}".replace("-", "−")


def _failed(ranking: Ranking) -> Html:
    if not ranking.failed:
        return Html()
    rows = (tag("li", tag("bdi", str(row.policy)), ": ", row.error or "") for row in ranking.failed)
    return tag("section", tag("h2", "Not replayed"), tag("ul", rows))
