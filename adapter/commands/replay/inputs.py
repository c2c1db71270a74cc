"""What the arguments of a replay say: files, amounts, durations and times, made into a service and its history."""

import argparse
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from adapter.commands.files import ManifestObject, read_files, template_pod
from adapter.commands.replay.autoscalers import capacity_of, hpa_following, throttles_of
from adapter.commands.replay.compare import Service
from adapter.commands.replay.history import Tick, read_csv, seconds_of
from adapter.commands.replay.model import TITLE, Amounts, Setup, fault
from adapter.commands.replay.prometheus import HistoryUnavailable, read_history, read_source
from adapter.load.quantity import QuantityError, parse_nano
from adapter.load.spec import Metric, Policy
from adapter.policy.hpa import DESIRED_REPLICAS, Hpa, parse_hpa
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import load_settings
from adapter.usage.resource_metrics import parse_go_duration

T = TypeVar("T")
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_service(parsed: argparse.Namespace) -> tuple[Service, list[Tick]]:
    """The service that the files and arguments describe, and its history. Raises FaultyDocument, HistoryUnavailable."""
    if [*parsed.files, parsed.csv].count("-") > 1:
        raise fault("-", None, "standard input has one document: give the policy or the history as a file")
    settings = load_settings(parsed.settings) if parsed.settings else None
    objects, policy = _read_policy(parsed.files)
    hpa, stock = _hpas(objects, policy)
    requests, limits = _pod_amounts(objects, policy.namespace, hpa.target.name)
    setup = Setup(
        pod_startup=_duration("--pod-startup", parsed.pod_startup),
        sample_age=_duration("--sample-age", parsed.sample_age),
        window=_duration("--window", parsed.window),
        capacity=_pairs("--capacity", parsed.capacity, parse_nano, "an amount above 0, such as cpu=1500m"),
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
    own = _pairs("--query", parsed.query, str, "its PromQL, such as cpu='sum(…)'")
    source = read_source(settings, parsed.prometheus or "", own, _moments(parsed))
    return service, read_history(replace(policy, metrics=tuple(loads)), hpa.target.name, source)


def _read_policy(files: Sequence[str]) -> tuple[Sequence[ManifestObject], Policy]:
    """All objects of the files, and the one policy among them. Raises FaultyDocument."""
    objects, faults = read_files(files)
    if faults:
        raise FaultyDocument([Fault(str(one.place), None, one.text) for one in faults], TITLE)
    policies = [one for one in objects if one.kind == KIND]
    if len(policies) != 1:
        has = f"has the policies {', '.join(one.name for one in policies)}" if policies else "has no WatermarkPolicy"
        raise fault(", ".join(files), None, f"{has}; give the file of one")
    return objects, parse_policy(policies[0].data)


def _hpas(objects: Sequence[ManifestObject], policy: Policy) -> tuple[Hpa, Hpa | None]:
    """The HPA that follows the policy, and the stock HPA of today: one that has other metrics than its count."""
    found = [one for one in objects if one.kind == "HorizontalPodAutoscaler"]
    of_policy = [one for one in found if (one.namespace, one.name) == (policy.namespace, policy.hpa)]
    hpas = [parse_hpa(one.data) for one in of_policy or (found if len(found) == 1 else [])]
    hpa = next((one for one in hpas if one.desired_metrics), hpas[0] if hpas else None)
    others = ((one, tuple(metric for metric in one.metrics if metric.name != DESIRED_REPLICAS)) for one in hpas)
    return hpa_following(policy, hpa), next((replace(one, metrics=own) for one, own in others if own), None)


def _pod_amounts(objects: Sequence[ManifestObject], namespace: str, workload: str) -> tuple[Amounts, Amounts]:
    """The requests and the limits of a workload's pods: the pod's own, else the sums of its containers and sidecars."""
    pods = (template_pod(one) for one in objects if (one.namespace, one.name) == (namespace, workload))
    pod = next(filter(None, pods), None)
    if pod is None:
        return {}, {}
    requests, limits = _sums([one.requests for one in pod.containers]), _sums([one.limits for one in pod.containers])
    return requests | dict(pod.pod_requests), limits | dict(pod.pod_limits)


def _sums(amounts: Sequence[Amounts]) -> dict[str, int]:
    """The sums by resource that every container has; a container without one makes it unknown."""
    names = set.intersection(*(set(amount) for amount in amounts)) if amounts else set()
    return {name: sum(amount[name] for amount in amounts) for name in sorted(names)}


def _moments(parsed: argparse.Namespace) -> range:
    """The moments that Prometheus is asked for, in milliseconds since the epoch. Raises FaultyDocument."""
    if parsed.begin is None:
        raise fault("--from", None, "name the beginning of the history, such as 7d")
    step = max(1000, round(_duration("--step", parsed.step) * 1000))
    begin, end = (round(_moment(*one) * 1000) for one in (("--from", parsed.begin), ("--to", parsed.end or "0s")))
    moments = range(-(-begin // step) * step, end + 1, step)
    if len(moments) < 2:
        raise fault("--from", parsed.begin, "must be earlier than --to by a step or more")
    return moments


def _pairs(option: str, given: Sequence[str], parse: Callable[[str], T | None], advice: str) -> dict[str, T]:
    """What an option gives by name, as NAME=VALUE; a value that cannot be read, or is empty, is a fault."""
    pairs = {}
    for text in given:
        name, _, value = text.partition("=")
        with contextlib.suppress(QuantityError):
            if name.strip() and (parsed := parse(value.strip())):
                pairs[name.strip()] = parsed
                continue
        raise fault(option, text, f"write a name and {advice}")
    return pairs


def _duration(argument: str, text: str) -> float:
    seconds = parse_go_duration(text)
    if (not seconds and text.strip("0") != "s") or not 0.0 <= seconds <= _UNITS["w"]:
        raise fault(argument, text, f"must be a duration such as 30s or 2m, from 0s to {_UNITS['w']}s")
    return seconds


def _moment(option: str, text: str) -> float:
    """A time in seconds since the epoch: RFC 3339, such seconds, or a duration ago. Raises FaultyDocument."""
    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    if (at := seconds_of(text)) is None:
        advice = "write a time such as 2026-01-31T08:00:00Z, seconds since the epoch, or 7d for 7 days ago"
        raise fault(option, text, advice)
    return at
