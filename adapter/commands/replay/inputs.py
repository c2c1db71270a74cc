"""What the arguments of a replay say: files, amounts, durations and times, made into a service and its history."""

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import msgspec

from adapter.commands.files import ManifestObject, read_files
from adapter.commands.replay.autoscalers import capacity_of, throttles_of
from adapter.commands.replay.compare import Service
from adapter.commands.replay.history import Tick, read_csv, seconds_of
from adapter.commands.replay.model import TITLE, Amounts, Setup, fault
from adapter.commands.replay.prometheus import HistoryUnavailable, read_history, read_source
from adapter.kube.pods import PodDecoder
from adapter.load.quantity import QuantityError, parse_nano
from adapter.load.spec import Metric
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import DESIRED_REPLICAS, parse_hpa
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import load_settings
from adapter.usage.resource_metrics import parse_go_duration

_LONGEST = 7 * 86_400.0
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_service(parsed: argparse.Namespace) -> tuple[Service, list[Tick]]:
    """The service that the files and arguments describe, and its history. Raises FaultyDocument, HistoryUnavailable.

    An HPA that has other metrics than `desired_replicas` is the stock HPA of today.
    """
    if [*parsed.files, parsed.csv].count("-") > 1:
        raise fault("-", None, "standard input has one document: give the policy or the history as a file")
    settings = load_settings(parsed.settings) if parsed.settings else None
    objects, faults = read_files(parsed.files)
    if faults:
        raise FaultyDocument([Fault(str(one.place), None, one.text) for one in faults], TITLE)
    policies = [one for one in objects if one.kind == KIND]
    if len(policies) != 1:
        has = f"has the policies {', '.join(one.name for one in policies)}" if policies else "has no WatermarkPolicy"
        raise fault(", ".join(parsed.files), None, f"{has}; give the file of one")
    policy = parse_policy(policies[0].data)
    found = [one for one in objects if one.kind == "HorizontalPodAutoscaler"]
    of_policy = [one for one in found if (one.namespace, one.name) == (policy.namespace, policy.hpa)]
    hpas = [parse_hpa(one.data) for one in of_policy or (found if len(found) == 1 else [])]
    hpa = next((one for one in hpas if one.desired_metrics), hpas[0] if hpas else None)
    others = ((one, tuple(metric for metric in one.metrics if metric.name != DESIRED_REPLICAS)) for one in hpas)
    stock = next((replace(one, metrics=own) for one, own in others if own), None)
    workload = policy.hpa if hpa is None else hpa.target.name
    requests, limits = _pod_amounts(objects, policy.namespace, workload)
    setup = Setup(
        pod_startup=_duration("--pod-startup", parsed.pod_startup),
        sample_age=_duration("--sample-age", parsed.sample_age),
        window=_duration("--window", parsed.window),
        capacity=_capacity(parsed.capacity),
        requests=requests,
        limits=limits,
    )
    for metric in policy.metrics:
        if metric.relative_to is not None and not capacity_of(metric, setup):
            what = f"is a share of the pods' {metric.relative_to.lower()} of {metric.resource}, which no file has"
            advice = f"{what}; add the file of the workload (kubectl get deployment NAME -o yaml)"
            raise fault(f"metric {metric.name}", None, advice)
    # The metrics whose load the replay needs, with what needs each.
    named = dict.fromkeys(setup.capacity, "--capacity")
    named |= {metric.name: f"HPA {stock.name}" for metric in stock.metrics} if stock else {}
    needed = {name: (Metric(name=name, resource=name), why) for name, why in named.items()}
    needed |= {one.name: (one, f"policy {policy.name}") for one in policy.metrics}
    loads = [metric for metric, _ in needed.values()]
    queries = settings.prometheus.queries if settings else ()
    for_service = {query.name for query in queries if query.scope == "Service"}
    service = Service(
        policy=policy,
        hpa=hpa,
        setup=replace(setup, throttles=throttles_of(loads, setup)),
        stock=stock,
        totals=frozenset(metric.name for metric in policy.metrics if metric.query and metric.query.name in for_service),
    )
    if parsed.csv:
        for option, value in (("--prometheus", parsed.prometheus), ("--query", parsed.query)):
            if value:
                raise fault(option, value, "is not valid with --csv; give either a CSV file or a Prometheus")
        begin = -inf if parsed.begin is None else _moment("--from", parsed.begin)
        end = inf if parsed.end is None else _moment("--to", parsed.end)
        ticks = read_csv(parsed.csv, {name: why for name, (_, why) in needed.items()}, begin, end)
        if not ticks:
            raise HistoryUnavailable("the history has no data for that time; change --from and --to")
        return service, ticks
    own, moments = _queries(parsed.query), _moments(parsed)
    source = read_source(settings, parsed.prometheus or "", own, moments)
    return service, read_history(replace(policy, metrics=tuple(loads)), workload, source)


def _pod_amounts(objects: Sequence[ManifestObject], namespace: str, workload: str) -> tuple[Amounts, Amounts]:
    """The requests and the limits of a workload's pods: the pod's own, else the sums of its containers and sidecars."""
    of_workload = [one for one in objects if (one.namespace, one.name) == (namespace, workload)]
    specs = (mapping_at(one.data, "spec", "template", "spec") for one in of_workload)
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


def _queries(given: Sequence[str]) -> dict[str, str]:
    own = {}
    for text in given:
        name, query = (part.strip() for part in text.partition("=")[::2])
        if not name or not query:
            raise fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")
        own[name] = query
    return own


def _moments(parsed: argparse.Namespace) -> range:
    """The moments that Prometheus is asked for, in milliseconds since the epoch. Raises FaultyDocument."""
    if parsed.begin is None:
        raise fault("--from", None, "name the beginning of the history, such as 7d")
    step = max(1000, round(_duration("--step", parsed.step) * 1000))
    begin, end = (round(_moment(*one) * 1000) for one in (("--from", parsed.begin), ("--to", parsed.end or "now")))
    moments = range(-(-begin // step) * step, end + 1, step)
    if len(moments) < 2:
        raise fault("--from", parsed.begin, "must be earlier than --to by a step or more")
    return moments


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
