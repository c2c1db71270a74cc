"""What the arguments of a replay say: files, amounts, durations and times, made into services and histories."""

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adapter.commands.files import ManifestObject, read_files
from adapter.commands.replay.compare import Service, within
from adapter.commands.replay.csv_history import read_csv
from adapter.commands.replay.history_queries import Overrides, choose_servers, derive_queries
from adapter.commands.replay.model import TITLE, Setup, Tick
from adapter.commands.replay.prometheus_history import Source, read_history, read_span
from adapter.commands.replay.stock import capacity_of, throttles_of
from adapter.load.quantity import QuantityError, parse_nano, parse_quantity
from adapter.load.spec import Metric, Policy, ResourceMetric
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import DESIRED_REPLICAS, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.runtime.times import parse_time
from adapter.settings import load_settings
from adapter.usage.resource_metrics import parse_go_duration

_HPA = "HorizontalPodAutoscaler"
_LONGEST = 7 * 86_400.0
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SECONDS = re.compile(r"\d{1,12}(\.\d*)?", re.ASCII)

Amounts = Mapping[str, int]


def fault(argument: str, value: object, advice: str) -> FaultyDocument:
    """The error of one argument."""
    return FaultyDocument([Fault(argument, value, advice)], TITLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a pod requests and may use (nano-units by resource), all containers together."""

    requests: Amounts
    limits: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The objects of a file that a replay can use."""

    file: str
    policies: Sequence[Policy]
    hpas: Sequence[Hpa]
    templates: Sequence[ManifestObject]

    def only_policy(self) -> Policy:
        if len(self.policies) != 1:
            raise fault(self.file, None, f"has {len(self.policies)} WatermarkPolicies; give a file with one")
        return self.policies[0]

    def hpa_of(self, policy: Policy) -> Hpa | None:
        """The HPA that the policy names, else the only one of the file."""
        named = [hpa for hpa in self.hpas if (hpa.namespace, hpa.name) == (policy.namespace, policy.hpa)]
        return named[0] if named else self.hpas[0] if len(self.hpas) == 1 else None

    def workload_of(self, policy: Policy, hpa: Hpa | None) -> Workload:
        """What the pods of the policy's target request; nothing where the file does not have the target."""
        name = policy.hpa if hpa is None else hpa.target.name
        for one in self.templates:
            if (one.namespace, one.name) == (policy.namespace, name):
                return _workload(mapping_at(one.data, "spec", "template", "spec"))
        return Workload(requests={}, limits={})


def read_service(parsed: argparse.Namespace) -> Service:
    """The service that the arguments describe. Raises FaultyDocument."""
    for option, value in (("--namespace", parsed.namespace), ("--kubeconfig", parsed.kubeconfig)):
        if value:
            raise fault(option, value, "is valid with --all only")
    if not parsed.policy:
        raise fault("POLICY", None, "name the file of the policy, or use --all")
    if [parsed.policy, parsed.hpa, parsed.against, parsed.csv].count("-") > 1:
        raise fault("-", None, "standard input has one document: give the policy or the history as a file")
    files = _read("POLICY", parsed.policy)
    policy = files.only_policy()
    hpa = files.hpa_of(policy)
    if parsed.hpa:
        hpas = _read("--hpa", parsed.hpa).hpas
        if len(hpas) != 1:
            raise fault("--hpa", parsed.hpa, f"has {len(hpas)} HPAs; give a file with one")
        hpa = hpas[0]
    against = None
    if parsed.against:
        others = _read("--against", parsed.against)
        other = others.only_policy()
        against = other, others.hpa_of(other) or hpa
    service = service_of(parsed, policy, hpa, files.workload_of(policy, hpa))
    return _checked(replace(service, against=against))


def service_of(parsed: argparse.Namespace, policy: Policy, hpa: Hpa | None, workload: Workload) -> Service:
    """The service of a policy and its HPA, with what the arguments say of its pods. Raises FaultyDocument."""
    stock = None
    if hpa is not None and (own := tuple(metric for metric in hpa.metrics if metric.name != DESIRED_REPLICAS)):
        stock = replace(hpa, metrics=own)
    setup = Setup(
        pod_startup=_duration("--pod-startup", parsed.pod_startup),
        sample_age=_duration("--sample-age", parsed.sample_age),
        window=_duration("--window", parsed.window),
        capacity=_amounts("--capacity", parsed.capacity),
        requests={**workload.requests, **_amounts("--request", parsed.request)},
        limits={**workload.limits, **_amounts("--limit", parsed.limit)},
    )
    try:
        price = None if parsed.price is None else parse_quantity(parsed.price)
    except QuantityError as error:
        raise fault("--price", parsed.price, str(error)) from error
    if price is not None and price < 0:
        raise fault("--price", parsed.price, "must not be negative")
    totals = _totals(parsed, policy)
    service = Service(policy=policy, setup=setup, hpa=hpa, stock=stock, totals=totals, price=price)
    metrics = (*policy.metrics, *further_metrics(service))
    return _checked(replace(service, setup=replace(setup, throttles=throttles_of(metrics, setup))))


def _checked(service: Service) -> Service:
    """The service. Raises FaultyDocument for a metric whose request or limit is unknown."""
    faults = [
        Fault(
            argument := f"--{metric.relative_to.lower()}",
            None,
            f"metric {metric.name} is a share of it; give {argument} {metric.resource_name}=QUANTITY, "
            "or add the workload to the file of the policy",
        )
        for one in _policies(service)
        for metric in one.metrics
        if metric.relative_to is not None and not capacity_of(metric, service.setup)
    ]
    if faults:
        raise FaultyDocument(faults, TITLE)
    return service


def further_metrics(service: Service) -> list[Metric]:
    """The metrics that the other autoscalers of the comparison need."""
    others = list(service.against[0].metrics) if service.against else []
    stock = service.stock.metrics if service.stock else ()
    return others + [Metric(name=metric.name, resource=ResourceMetric(name=metric.name)) for metric in stock]


def read_ticks(parsed: argparse.Namespace, service: Service) -> tuple[Service, list[Tick]]:
    """The service with its totals, and the history that the arguments name. Raises FaultyDocument."""
    if not parsed.csv:
        return read_from_prometheus(service, read_source(parsed))
    for option, value in (
        ("--prometheus", parsed.prometheus),
        ("--query", parsed.query),
        ("--pulled-out-query", parsed.pulled_out_query),
    ):
        if value:
            raise fault(option, value, "is not valid with --csv; give either a CSV file or a Prometheus")
    begin, end = (None if text is None else _moment(option, text) for option, text in _span(parsed))
    if begin is not None and end is not None and begin >= end:
        raise fault("--to", parsed.end, "must be later than --from")
    needed = dict.fromkeys(service.setup.capacity, "--capacity")
    needed |= {metric.name: f"policy {one.name}" for one in _policies(service) for metric in one.metrics}
    if service.stock:
        needed = {metric.name: f"HPA {service.stock.name}" for metric in service.stock.metrics} | needed
    return service, within(read_csv(parsed.csv, needed), begin, end)


def read_source(parsed: argparse.Namespace) -> Source:
    """Where the arguments have histories read from. Raises FaultyDocument."""
    settings = load_settings(parsed.settings) if parsed.settings else None
    servers = choose_servers(settings, parsed.prometheus or "")
    if parsed.begin is None:
        raise fault("--from", None, "name the beginning of the history, such as 7d")
    begin, end = (_moment(*given) for given in _span(parsed))
    loads = {}
    for text in parsed.query:
        name, query = (part.strip() for part in text.partition("=")[::2])
        if not name or not query:
            raise fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")
        loads[name] = query
    span = read_span(begin, end, _duration("--step", parsed.step))
    return Source(servers, Overrides(loads=loads, pulled_out=parsed.pulled_out_query or ""), span)


def read_from_prometheus(service: Service, source: Source, *, is_one: bool = True) -> tuple[Service, list[Tick]]:
    """The service with its totals, and its history from Prometheus. Raises FaultyDocument, HistoryUnavailable.

    Unless it `is_one` alone, a capacity or query of a metric that the service does not have is passed over.
    """
    policy, known = service.policy, {metric.name for metric in service.policy.metrics}
    further = [metric for metric in further_metrics(service) if metric.name not in known]
    policy = replace(policy, metrics=(*policy.metrics, *further))
    names = {metric.name for metric in policy.metrics}
    overrides, capacity = source.overrides, service.setup.capacity
    if not is_one:
        overrides = replace(overrides, loads={name: text for name, text in overrides.loads.items() if name in names})
        capacity = {name: amount for name, amount in capacity.items() if name in names}
    for name in capacity.keys() - names:
        advice = f"the policy has no such metric{closest(name, names)}; it has {', '.join(sorted(names))}"
        raise fault("--capacity", name, advice)
    target = service.hpa.target if service.hpa else CrossVersionReference("apps/v1", "Deployment", service.policy.hpa)
    queries = derive_queries(policy, target, source.servers, overrides)
    service = replace(service, totals=queries.totals, setup=replace(service.setup, capacity=capacity))
    return service, within(read_history(queries, source.span), None, None)


def _policies(service: Service) -> list[Policy]:
    return [service.policy, service.against[0]] if service.against else [service.policy]


def _totals(parsed: argparse.Namespace, policy: Policy) -> frozenset[str]:
    """The metrics whose named query is one number for the service, by --settings; none without settings."""
    queries = load_settings(parsed.settings).prometheus.queries if parsed.settings else ()
    names = {query.name for query in queries if query.scope == "Service"}
    return frozenset(metric.name for metric in policy.metrics if metric.query and metric.query.name in names)


def _read(argument: str, file: str) -> _Files:
    if file != "-" and not Path(file).is_file():
        raise fault(argument, file, "does not exist; name a YAML or JSON file")
    objects, faults = read_files([file])
    if faults:
        raise FaultyDocument([Fault(f"{argument} {one.place}", None, one.text) for one in faults], TITLE)
    policies = [parse_policy(one.data) for one in objects if one.kind == KIND]
    hpas = [parse_hpa(one.data) for one in objects if one.kind == _HPA]
    templates = [one for one in objects if mapping_at(one.data, "spec", "template", "spec")]
    return _Files(file=file, policies=policies, hpas=hpas, templates=templates)


def _workload(template: Mapping[str, Any]) -> Workload:
    """The amounts of a pod template: the pod's own, else the sums of its containers and sidecars."""
    containers = list(template.get("containers") or [])
    inits = template.get("initContainers") or []
    containers += [one for one in inits if mapping_at(one).get("restartPolicy") == "Always"]
    return Workload(requests=_of_pod(template, containers, "requests"), limits=_of_pod(template, containers, "limits"))


def _of_pod(template: Mapping[str, Any], containers: Sequence[object], key: str) -> Amounts:
    return sums([_readable(one, key) for one in containers]) | _readable(template, key)


def _readable(holder: object, key: str) -> dict[str, int]:
    readable = {}
    for name, text in mapping_at(holder, "resources", key).items():
        try:
            readable[name] = parse_nano(str(text))
        except QuantityError as error:
            raise fault(f"resources.{key}.{name}", text, str(error)) from error
    return readable


def sums(amounts: Sequence[Amounts]) -> dict[str, int]:
    """The sums by resource that every container has; a container without one makes it unknown."""
    names = set.intersection(*(set(amount) for amount in amounts)) if amounts else set()
    return {name: sum(amount[name] for amount in amounts) for name in sorted(names)}


def _amounts(argument: str, given: Sequence[str]) -> dict[str, int]:
    amounts = {}
    for text in given:
        name, equals, quantity = text.partition("=")
        try:
            amounts[name] = parse_nano(quantity)
        except QuantityError as error:
            raise fault(argument, text, str(error)) from error
        if not equals or not name or not amounts[name]:
            raise fault(argument, text, "write a name and an amount above 0, such as cpu=1500m")
    return amounts


def _duration(argument: str, text: str) -> float:
    seconds = parse_go_duration(text)
    if (not seconds and text.strip("0") != "s") or not 0.0 <= seconds <= _LONGEST:
        raise fault(argument, text, f"must be a duration such as 30s or 2m, from 0s to {_LONGEST:g}s")
    return seconds


def _span(parsed: argparse.Namespace) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    return ("--from", parsed.begin), ("--to", parsed.end)


def _moment(option: str, text: str | None) -> float:
    """A time in seconds since the epoch: RFC 3339, such seconds, `now`, or a duration ago. Raises FaultyDocument."""
    if text is None or text == "now":
        return time.time()
    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    at = float(text) if _SECONDS.fullmatch(text) else parse_time(text)
    if at is None:
        advice = "write a time such as 2026-01-31T08:00:00Z, seconds since the epoch, now, or 7d for 7 days ago"
        raise fault(option, text, advice)
    return at
