"""What the arguments of a replay say: files, amounts, durations and times, made into a service and its history."""

import argparse
import functools
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import msgspec

from adapter.commands.files import ManifestObject, read_files
from adapter.commands.replay.autoscalers import capacity_of, throttles_of
from adapter.commands.replay.compare import Contender, Service
from adapter.commands.replay.history import Tick, read_csv, seconds_of
from adapter.commands.replay.model import TITLE, Amounts, Setup, fault
from adapter.commands.replay.prometheus import Source, read_history, read_source
from adapter.kube.pods import PodDecoder
from adapter.load.quantity import QuantityError, parse_nano
from adapter.load.spec import Metric
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import DESIRED_REPLICAS, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import Settings, load_settings
from adapter.usage.resource_metrics import parse_go_duration

_HPA = "HorizontalPodAutoscaler"
_LONGEST = 7 * 86_400.0
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@functools.cache
def settings_of(file: str | None) -> Settings | None:
    """The settings of `--settings`, None without them."""
    return load_settings(file) if file else None


def read_objects(files: Sequence[str], history: str | None = None) -> list[ManifestObject]:
    """The objects of these files, which have a policy. Raises FaultyDocument."""
    if [*files, history].count("-") > 1:
        raise fault("-", None, "standard input has one document: give the policy or the history as a file")
    objects, faults = read_files(files)
    if faults:
        raise FaultyDocument([Fault(str(one.place), None, one.text) for one in faults], TITLE)
    if not any(one.kind == KIND for one in objects):
        raise fault(", ".join(files), None, "has no WatermarkPolicy; give the file of one")
    return objects


def read_service(parsed: argparse.Namespace, written: ManifestObject, objects: Sequence[ManifestObject]) -> Service:
    """The service of a policy, with its HPAs and its workload among the objects. Raises FaultyDocument.

    An HPA that has other metrics than `desired_replicas` is the stock HPA of today.
    """
    policy = parse_policy(written.data)
    hpas = _hpas_of(written, policy.hpa, objects)
    hpa = next((one for one in hpas if one.desired_metrics), hpas[0] if hpas else None)
    others = ((one, tuple(metric for metric in one.metrics if metric.name != DESIRED_REPLICAS)) for one in hpas)
    contenders = [Contender(f"policy {policy.name}", policy, hpa)]
    if parsed.against:
        of_second = read_objects([parsed.against])
        for one in (one for one in of_second if one.kind == KIND):
            second = parse_policy(one.data)
            its_hpas = _hpas_of(one, second.hpa, of_second)
            contenders.append(Contender(f"policy {second.name}, --against", second, its_hpas[0] if its_hpas else hpa))
    workload = policy.hpa if hpa is None else hpa.target.name
    requests, limits = _pod_amounts(_named(written, workload, objects))
    setup = Setup(
        pod_startup=_duration("--pod-startup", parsed.pod_startup),
        sample_age=_duration("--sample-age", parsed.sample_age),
        window=_duration("--window", parsed.window),
        capacity=_capacity(parsed.capacity),
        requests=requests,
        limits=limits,
    )
    settings = settings_of(parsed.settings)
    named = {query.name for query in (settings.prometheus.queries if settings else ()) if query.scope == "Service"}
    metrics = [metric for contender in contenders for metric in contender.policy.metrics]
    service = Service(
        contenders=contenders,
        setup=setup,
        stock=next((replace(one, metrics=own) for one, own in others if own), None),
        totals=frozenset(metric.name for metric in metrics if metric.query and metric.query.name in named),
    )
    if faults := [
        Fault(
            f"metric {metric.name}",
            None,
            f"is a share of the pods' {metric.relative_to.lower()} of {metric.resource}, which no file has; "
            "add the file of the workload (kubectl get deployment NAME -o yaml)",
        )
        for metric in metrics
        if metric.relative_to is not None and not capacity_of(metric, setup)
    ]:
        raise FaultyDocument(faults, TITLE)
    throttles = throttles_of([metric for metric, _ in _needed(service).values()], setup)
    return replace(service, setup=replace(setup, throttles=throttles))


def _named(by: ManifestObject, name: str, objects: Iterable[ManifestObject]) -> list[ManifestObject]:
    """The objects of this name in the namespace of the one that names them."""
    return [one for one in objects if (one.namespace, one.name) == (by.namespace, name)]


def _hpas_of(policy: ManifestObject, name: str, objects: Sequence[ManifestObject]) -> list[Hpa]:
    """The HPAs that a policy names, else the only one beside the only policy."""
    hpas = [one for one in objects if one.kind == _HPA]
    is_only = len(hpas) == 1 and sum(one.kind == KIND for one in objects) == 1
    return [parse_hpa(one.data) for one in _named(policy, name, hpas) or (hpas if is_only else [])]


def _pod_amounts(workloads: Iterable[ManifestObject]) -> tuple[Amounts, Amounts]:
    """The requests and the limits of a workload's pods: the pod's own, else the sums of its containers and sidecars."""
    specs = (mapping_at(one.data, "spec", "template", "spec") for one in workloads)
    try:
        pod = PodDecoder()(msgspec.json.encode({"metadata": {"name": "replay"}, "spec": next(filter(None, specs), {})}))
    except msgspec.MsgspecError as error:
        raise fault("spec.template", None, f"is not that of a pod: {error}") from error
    requests, limits = _sums([one.requests for one in pod.containers]), _sums([one.limits for one in pod.containers])
    return requests | dict(pod.pod_requests), limits | dict(pod.pod_limits)


def _sums(amounts: Sequence[Amounts]) -> dict[str, int]:
    """The sums by resource that every container has; a container without one makes it unknown."""
    names = set.intersection(*(set(amount) for amount in amounts)) if amounts else set()
    return {name: sum(amount[name] for amount in amounts) for name in sorted(names)}


def _needed(service: Service) -> dict[str, tuple[Metric, str]]:
    """The metrics whose load the replay needs, with what needs each."""
    stock = service.stock
    named = dict.fromkeys(service.setup.capacity, "--capacity")
    named |= {metric.name: f"HPA {stock.name}" for metric in stock.metrics} if stock else {}
    found = {name: (Metric(name=name, resource=name), why) for name, why in named.items()}
    for _, policy, _ in service.contenders:
        found |= {metric.name: (metric, f"policy {policy.name}") for metric in policy.metrics}
    return found


def read_ticks(parsed: argparse.Namespace, service: Service) -> list[Tick]:
    """The history that the arguments name. Raises FaultyDocument, HistoryUnavailable."""
    if not parsed.csv:
        return read_from_prometheus(service, source_of(parsed))
    for option, value in (("--prometheus", parsed.prometheus), ("--query", parsed.query)):
        if value:
            raise fault(option, value, "is not valid with --csv; give either a CSV file or a Prometheus")
    begin = -inf if parsed.begin is None else _moment("--from", parsed.begin)
    end = inf if parsed.end is None else _moment("--to", parsed.end)
    if begin >= end:
        raise fault("--to", parsed.end, "must be later than --from")
    return read_csv(parsed.csv, {name: why for name, (_, why) in _needed(service).items()}, begin, end)


def read_from_prometheus(service: Service, source: Source) -> list[Tick]:
    """The history of a service from Prometheus. Raises FaultyDocument, HistoryUnavailable."""
    policy, hpa = service.policy, service.hpa
    target = hpa.target if hpa else CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    metrics = tuple(metric for metric, _ in _needed(service).values())
    return read_history(replace(policy, metrics=metrics), target, source)


def source_of(parsed: argparse.Namespace) -> Source:
    """Where the arguments have histories read from. Raises FaultyDocument."""
    own = {}
    for text in parsed.query:
        name, query = (part.strip() for part in text.partition("=")[::2])
        if not name or not query:
            raise fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")
        own[name] = query
    if parsed.begin is None:
        raise fault("--from", None, "name the beginning of the history, such as 7d")
    step = round(_duration("--step", parsed.step) * 1000)
    if not step:
        raise fault("--step", parsed.step, "must be above 0s, such as 15s")
    begin, end = (round(_moment(*one) * 1000) for one in (("--from", parsed.begin), ("--to", parsed.end or "now")))
    moments = range(-(-begin // step) * step, end + 1, step)
    if len(moments) < 2:
        raise fault("--from", parsed.begin, "must be earlier than --to by a step or more")
    return read_source(settings_of(parsed.settings), parsed.prometheus or "", own, moments)


def _capacity(given: Sequence[str]) -> dict[str, int]:
    amounts = {}
    for text in given:
        name, _, quantity = text.partition("=")
        try:
            amounts[name] = parse_nano(quantity)
        except QuantityError as error:
            raise fault("--capacity", text, str(error)) from error
        if not name or not amounts[name]:
            raise fault("--capacity", text, "write a name and an amount above 0, such as cpu=1500m")
    return amounts


def _duration(argument: str, text: str) -> float:
    seconds = parse_go_duration(text)
    if (not seconds and text.strip("0") != "s") or not 0.0 <= seconds <= _LONGEST:
        raise fault(argument, text, f"must be a duration such as 30s or 2m, from 0s to {_LONGEST:g}s")
    return seconds


def _moment(option: str, text: str) -> float:
    """A time in seconds since the epoch: RFC 3339, such seconds, `now`, or a duration ago. Raises FaultyDocument."""
    ago = _AGO.fullmatch(text)
    if ago or text == "now":
        return time.time() - (int(ago[1]) * _UNITS[ago[2]] if ago else 0)
    at = seconds_of(text)
    if at is None:
        advice = "write a time such as 2026-01-31T08:00:00Z, seconds since the epoch, now, or 7d for 7 days ago"
        raise fault(option, text, advice)
    return at
