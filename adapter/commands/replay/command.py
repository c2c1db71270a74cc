"""`effective-load replay`: what the arguments say, made into a comparison, replayed and reported."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.comparison import Comparison, aimed_fairly, compare, first_count, probed, replay, within
from adapter.commands.replay.csv_history import CsvHistory
from adapter.commands.replay.history.prometheus import PrometheusHistory, read_source
from adapter.commands.replay.history.span import read_moment
from adapter.commands.replay.hpas import hpa_following, judge_of, resource_of, shared_amount, throttles_of
from adapter.commands.replay.manifests import Manifests, Workload, read_manifests
from adapter.commands.replay.page.markup import write_text
from adapter.commands.replay.page.report import page
from adapter.commands.replay.report import Report
from adapter.commands.replay.service import Autoscaler, History, Setup, Tick, open_spool, spooled
from adapter.commands.terminal.command import FAILED, OK
from adapter.load.quantity import QuantityError, parse_nano, parse_quantity
from adapter.load.spec import Metric, Policy, ResourceMetric
from adapter.policy.hpa import DESIRED_REPLICAS, CrossVersionReference, Hpa
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.settings import load_settings
from adapter.usage.resource_metrics import parse_go_duration

_TITLE = "this cannot be replayed"
_MANY = ("--namespace", "--kubeconfig", "--shard")
_LONGEST = 7 * 86_400.0

Print = Callable[[str], None]


def _fault(argument: str, value: object, advice: str) -> FaultyDocument:
    return FaultyDocument([Fault(argument, value, advice)], _TITLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service to replay: its policy, its HPA, what else the files say, and what the arguments say of its pods."""

    policy: Policy
    hpa: Hpa | None
    stock: Hpa | None
    against: tuple[Policy, Hpa | None] | None
    setup: Setup
    totals: frozenset[str]
    price: Fraction | None

    @property
    def policies(self) -> list[Policy]:
        """The policy, and the other one that it is compared with."""
        return [self.policy, self.against[0]] if self.against else [self.policy]


def run(parsed: argparse.Namespace, show: Print) -> int:
    """Run the command. Returns the exit status.

    Raises FaultyDocument for arguments and files that cannot be used, and HistoryUnavailable.
    """
    service = read_service(parsed)
    try:
        with open_history(parsed, service) as history:
            declared = history.queries.totals if isinstance(history, PrometheusHistory) else None
            service = replace(service, totals=declared_totals(parsed, service) if declared is None else declared)
            first, ticks = probed(within(history, *(span_of(parsed) if parsed.csv else (None, None))))
            if not first:
                show("the history has no data for that time")
                return FAILED
            report = _report(parsed, service, first, ticks)
    except (OSError, UnicodeDecodeError) as error:
        raise _fault("--csv", parsed.csv, f"cannot be read: {error}") from error
    if parsed.html:
        write_text(parsed.html, page(report))
    show(report.as_json() if parsed.output == "json" else "\n".join(report.text()))
    return OK


def _report(parsed: argparse.Namespace, service: Service, first: Sequence[Tick], ticks: Iterator[Tick]) -> Report:
    """The replay. The history is read many times, so from a copy."""
    with tempfile.TemporaryDirectory(prefix="effective-load-") as folder:
        spool = Path(folder) / "ticks"
        result = replay(comparison_of(service, first), spooled(ticks, spool))
        result = aimed_fairly(result, partial(open_spool, spool))
    source = f"history from {Path(parsed.csv).name}" if parsed.csv else "history from Prometheus"
    return Report(result=result, source=source)


def read_service(parsed: argparse.Namespace) -> Service:
    """The service that the arguments describe. Raises FaultyDocument."""
    many = {option: getattr(parsed, option.removeprefix("--")) for option in _MANY}
    if faults := [Fault(option, value, "goes with --all") for option, value in many.items() if value]:
        raise FaultyDocument(faults, _TITLE)
    if not parsed.policy:
        raise _fault("POLICY", None, "name the policy's file, or say --all")
    manifests = _manifests("POLICY", parsed.policy)
    policy = _only_policy(manifests, parsed.policy)
    hpa = manifests.hpa_of(policy)
    if parsed.hpa:
        hpas = _manifests("--hpa", parsed.hpa).hpas
        if len(hpas) != 1:
            raise _fault("--hpa", parsed.hpa, f"has {len(hpas)} HPAs; give a file with one")
        hpa = hpas[0]
    return service_of(parsed, manifests, policy, hpa)


def service_of(parsed: argparse.Namespace, manifests: Manifests, policy: Policy, hpa: Hpa | None) -> Service:
    """The service of a policy and its HPA, as the arguments describe it. Raises FaultyDocument."""
    stock = None
    if hpa is not None and any(metric.name != DESIRED_REPLICAS for metric in hpa.metrics):
        stock = replace(hpa, metrics=tuple(metric for metric in hpa.metrics if metric.name != DESIRED_REPLICAS))
    workload = manifests.workload_of(policy, hpa) or Workload(namespace=policy.namespace, name=policy.hpa)
    setup = Setup(
        replicas=0,
        starts=_duration("--starts", parsed.starts),
        delay=_duration("--delay", parsed.delay),
        window=_duration("--window", parsed.window) or None,
        capacity=_amounts("--capacity", parsed.capacity),
        requests={**workload.requests, **_amounts("--request", parsed.request)},
        limits={**workload.limits, **_amounts("--limit", parsed.limit)},
    )
    try:
        price = None if parsed.price is None else parse_quantity(parsed.price)
    except QuantityError as error:
        raise _fault("--price", parsed.price, str(error)) from error
    if price is not None and price < 0:
        raise _fault("--price", parsed.price, "must not be negative")
    service = Service(
        policy=policy,
        hpa=hpa,
        stock=stock,
        against=_against(parsed, hpa),
        setup=setup,
        totals=frozenset(),
        price=price,
    )
    faults = [
        Fault(
            argument := f"--{metric.relative_to.lower()}",
            None,
            f"metric {metric.name} is a share of it; say {argument} {resource_of(metric)}=QUANTITY, "
            "or add the workload to the policy's file",
        )
        for one in service.policies
        for metric in one.metrics
        if metric.relative_to is not None and not shared_amount(metric, setup)
    ]
    if faults:
        raise FaultyDocument(faults, _TITLE)
    return service


@contextmanager
def open_history(parsed: argparse.Namespace, service: Service) -> Iterator[History]:
    """The history that the arguments name, with every metric that the service needs. Raises FaultyDocument, OSError."""
    if not parsed.csv:
        source = read_source(parsed, time.time())
        history = source.history(service.policy, target_of(service), further_metrics(service))
        _require_known("--capacity", service.setup.capacity, history.queries.loads)
        yield history
        return
    if parsed.prometheus or parsed.query or parsed.pulled_out_query:
        raise _fault("--csv", parsed.csv, "give either a CSV file or a Prometheus")
    is_input = parsed.csv == "-"
    with nullcontext(sys.stdin) if is_input else Path(parsed.csv).open(encoding="utf-8", newline="") as lines:
        recorded = CsvHistory(lines, "standard input" if is_input else parsed.csv)
        recorded.require(needed_metrics(service))
        yield recorded


def target_of(service: Service) -> CrossVersionReference:
    """What the policy's HPA scales; without an HPA, a Deployment of the name that the HPA should have."""
    if service.hpa is not None:
        return service.hpa.target
    return CrossVersionReference("apps/v1", "Deployment", service.policy.hpa)


def further_metrics(service: Service) -> list[Metric]:
    """The metrics that the other autoscalers of the comparison need beside the policy's."""
    others = list(service.against[0].metrics) if service.against else []
    stock = service.stock.metrics if service.stock else ()
    return others + [Metric(name=metric.name, resource=ResourceMetric(name=metric.name)) for metric in stock]


def declared_totals(parsed: argparse.Namespace, service: Service) -> frozenset[str]:
    """The metrics whose named query is one number for the service, by --settings; none without settings."""
    queries = load_settings(parsed.settings).prometheus.queries if parsed.settings else ()
    names = {query.name for query in queries if query.scope == "Service"}
    metrics = (metric for policy in service.policies for metric in policy.metrics)
    return frozenset(metric.name for metric in metrics if metric.query and metric.query.name in names)


def needed_metrics(service: Service) -> Mapping[str, str]:
    """The metrics that a history of the service must have: name → what needs it."""
    needed = dict.fromkeys(service.setup.capacity, "--capacity")
    needed |= {metric.name: f"policy {one.name}" for one in service.policies for metric in one.metrics}
    stock = {metric.name: f"HPA {service.stock.name}" for metric in service.stock.metrics} if service.stock else {}
    return stock | needed


def span_of(parsed: argparse.Namespace) -> tuple[float | None, float | None]:
    """The time to replay (seconds since the epoch). Raises FaultyDocument."""
    now = time.time()
    given = ("--from", parsed.begin), ("--to", parsed.end)
    begin, end = (None if text is None else read_moment(option, text, now) for option, text in given)
    if begin is not None and end is not None and begin >= end:
        raise _fault("--to", parsed.end, "must be later than --from")
    return begin, end


def comparison_of(service: Service, first: Sequence[Tick]) -> Comparison:
    """The comparison, with what the first ticks of the history tell: the count."""
    metrics = (*further_metrics(service), *service.policy.metrics)
    setup = replace(service.setup, throttles=throttles_of(metrics, service.setup))
    if not setup.replicas:
        native = hpa_following(service.policy, service.hpa)
        count = first_count(first, native, judge_of(service.policy, setup, native.bounds.minimum))
        setup = replace(setup, replicas=count)
    others: list[Autoscaler] = []
    if service.against is not None:
        policy, hpa = service.against
        others.append(PolicyAutoscaler(policy, hpa, f"policy {policy.name}, --against", service.totals))
    return compare(
        service.policy,
        service.hpa,
        setup,
        totals=service.totals,
        stock=service.stock,
        others=others,
        price=service.price,
    )


def _against(parsed: argparse.Namespace, hpa: Hpa | None) -> tuple[Policy, Hpa | None] | None:
    """The policy in the file of --against, with its HPA or else this one."""
    if not parsed.against:
        return None
    manifests = _manifests("--against", parsed.against)
    other = _only_policy(manifests, parsed.against)
    return other, manifests.hpa_of(other) or hpa


def _manifests(argument: str, file: str) -> Manifests:
    try:
        path = Path(file)
        if path.stat().st_size > document_text.LARGEST_BYTES:
            raise _fault(argument, file, str(document_text.too_large_fault()))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _fault(argument, file, f"cannot be read: {error}") from error
    return read_manifests(text, file)


def _only_policy(manifests: Manifests, file: str) -> Policy:
    if len(manifests.policies) != 1:
        count = len(manifests.policies)
        raise _fault(file, None, f"has {count} WatermarkPolicies; give a file with one")
    return manifests.policies[0]


def _require_known(argument: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raise for a metric that an argument names and nothing has: it would be passed over in silence."""
    faults = [
        Fault(argument, name, f"there is no such metric{closest(name, names)}; there are {', '.join(sorted(names))}")
        for name in given
        if name not in names
    ]
    if faults:
        raise FaultyDocument(faults, _TITLE)


def _amounts(argument: str, given: Sequence[str]) -> dict[str, int]:
    amounts = {}
    for text in given:
        name, equals, quantity = text.partition("=")
        try:
            amounts[name] = parse_nano(quantity)
        except QuantityError as error:
            raise _fault(argument, text, str(error)) from error
        if not equals or not name or not amounts[name]:
            raise _fault(argument, text, "write a name and an amount above 0, such as cpu=1500m")
    return amounts


def _duration(argument: str, text: str) -> float:
    seconds = parse_go_duration(text)
    if (not seconds and text.strip("0") != "s") or not 0.0 <= seconds <= _LONGEST:
        advice = f"must be a duration such as 30s or 2m, from 0s to {_LONGEST:g}s"
        raise _fault(argument, text, advice)
    return seconds
