"""A service's history from Prometheus, Thanos or Mimir: the range queries for its columns, read by day."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapter.commands.replay.history import PULLED_OUT, Tick
from adapter.commands.replay.model import fault
from adapter.load.quantity import NANO, QuantityError, parse_number
from adapter.load.spec import Metric, Policy
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import closest
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable
from adapter.runtime.times import format_time
from adapter.settings import NamedQuery, PrometheusServer, Settings
from adapter.usage.prometheus_api import ApiClient
from adapter.usage.promql import PromqlError, substitute
from adapter.usage.query_catalog import QueryCatalog, WorkloadQuery

MOST_POINTS = 11_000
"""Points of a series that Prometheus answers to one range query."""
PAUSES = (1.0, 4.0)
"""Seconds before a query that failed is sent again."""
_TIMEOUT = 60.0
"""Seconds. A range query reads much more than the instant queries that the settings' timeout is for."""
_DAY = 86_400_000
_CHOSEN, _OF = "effective_load_chosen", "effective_load_of"
_PODS, _TOTAL = "pods", "total"
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes makes random names of: no name of another workload is made of these alone."""
_POD_NAMES = {
    "Deployment": f"-{_HASH}{{1,10}}-{_HASH}{{5}}",
    "Rollout": f"-{_HASH}{{1,10}}-{_HASH}{{5}}",
    "ReplicaSet": f"-{_HASH}{{5}}",
    "ReplicationController": f"-{_HASH}{{5}}",
    "StatefulSet": "-[0-9]+",
}
_ANY_POD = "-[a-z0-9-]+"
_RESOURCES = {
    "cpu": ("rate(container_cpu_usage_seconds_total", "[2m])"),
    "memory": ("container_memory_working_set_bytes", ""),
}
"""The usual series of the kubelet's cAdvisor."""


class HistoryUnavailable(Exception):  # noqa: N818  named after what happened
    """The history cannot be read; the message names the query and what the server said."""


class Source(NamedTuple):
    """Where and how the histories of any number of services are read.

    `servers` are those to choose from, `named` the queries of the settings. `own` are queries of the user's (PromQL)
    instead of derived ones, by the column that a CSV file would have; they may contain `$namespace` and `$workload`.
    `moments` are in milliseconds since the epoch, each a multiple of their step.
    """

    servers: Sequence[PrometheusServer]
    named: Sequence[NamedQuery]
    own: Mapping[str, str]
    moments: range


def read_source(settings: Settings | None, url: str, own: Mapping[str, str], moments: range) -> Source:
    """The source of `--settings` and `--prometheus` (empty: not given). Raises FaultyDocument."""
    servers = settings.prometheus.servers if settings else ()
    if url:
        if not re.match(r"https?://[^/\s]", url):
            raise fault("--prometheus", url, "write the address where its API begins, such as http://prometheus:9090")
        servers = (PrometheusServer(name=url, url=url),)
    if not servers:
        advice = "name the server with --prometheus URL, or give the settings that have it with --settings FILE"
        raise fault("--prometheus", None, advice)
    return Source(servers, settings.prometheus.queries if settings else (), own, moments)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """One query for a number over time.

    `by_pod`: it sums what belongs to the policy's pods, and what belongs to the service alone, into one series each.
    """

    text: str
    by_pod: bool = False
    namespace_label: str = "namespace"


def derive_queries(policy: Policy, target: CrossVersionReference, source: Source) -> dict[str, RangeQuery]:
    """The queries for a policy and the target of its HPA, by column. Raises FaultyDocument for one without a series."""
    names = [metric.name for metric in policy.metrics]
    for name in source.own.keys() - {*names, PULLED_OUT}:
        raise fault("--query", name, f"the policy has no such metric{closest(name, names)}; it has {', '.join(names)}")
    columns = {}
    for name, text in source.own.items():
        try:
            columns[name] = RangeQuery(text=substitute(text, policy.namespace, target.name))
        except PromqlError as error:
            raise fault("--query", f"{name}={text}", str(error)) from error
    for metric in policy.metrics:
        if metric.name not in columns:
            columns[metric.name] = _load(metric, policy, target, source.named)
    columns.setdefault(PULLED_OUT, RangeQuery(text=_pulled_out(policy)))
    return columns


def server_of(policy: Policy, source: Source) -> PrometheusServer:
    """The only server, or the only one that the policy's queries name. Raises FaultyDocument."""
    of_named = {query.name: query.server for query in source.named}
    wanted = {query.server or of_named.get(query.name, "") for one in policy.metrics if (query := one.query)}
    found = [one for one in source.servers if one.name in wanted or len(source.servers) == 1]
    if len(found) != 1:
        listed = ", ".join(server.name for server in source.servers)
        advice = f"name one with --prometheus URL: the settings have {listed}, and the policy's queries name not one"
        raise fault("--prometheus", None, advice)
    return found[0]


def _load(metric: Metric, policy: Policy, target: CrossVersionReference, named: Sequence[NamedQuery]) -> RangeQuery:
    """The query for the load of the service. Raises FaultyDocument where there is none."""
    advice = f"give --query {metric.name}='PROMQL'"
    namespace, pods = policy.namespace, _pattern(target.name) + _POD_NAMES.get(target.kind, _ANY_POD)
    if metric.query is None:
        if metric.resource not in _RESOURCES:
            raise fault(f"metric {metric.name}", None, f"no usual series is known for it; {advice}")
        before, after = _RESOURCES[metric.resource]
        chosen = f"container=~{_quoted('|'.join(map(_pattern, metric.containers)))}"
        if not metric.containers:
            chosen = 'container!="", container!="POD"'
        return RangeQuery(
            text=f"sum({before}{{namespace={_quoted(namespace)}, pod=~{_quoted(pods)}, {chosen}}}{after})"
        )
    catalog = QueryCatalog([metric.query.server, *(one.server for one in named)], named, inline_allowed=True)
    query = catalog.resolve(WorkloadQuery(metric.query, namespace, target.name))
    if isinstance(query, str):
        advice = f"{query}; name the settings with --settings FILE, or {advice}"
        raise fault(f"metric {metric.name}", metric.query.name or None, advice)
    if query.by_pod is False:
        return RangeQuery(text=query.text, namespace_label=query.labels[0])
    # The sum over the policy's pods, beside it what has no pod; NaN and negative values do not count.
    labels = f"{_quoted(query.labels[0])}, {_quoted(query.labels[1])}"
    text = f'label_join(({query.text}\n) >= 0, "{_OF}", "/", {labels})'
    for kind, pattern in ((_PODS, f"{_pattern(namespace)}/{pods}"), (_TOTAL, f"({_pattern(namespace)})?/")):
        text = f'label_replace({text}, "{_CHOSEN}", "{kind}", "{_OF}", {_quoted(pattern)})'
    return RangeQuery(text=f"sum by ({_CHOSEN}) ({text})", by_pod=True)


def _pulled_out(policy: Policy) -> str:
    """The adapter's own metric of the policy, whether or not Prometheus renamed its label `namespace`."""
    series, namespace = "effective_load_policy_pods", _quoted(policy.namespace)
    labels = f'policy={_quoted(policy.name)}, state="pulledOut"'
    plain = f'{series}{{namespace={namespace}, exported_namespace="", {labels}}}'
    return f"max({plain} or {series}{{exported_namespace={namespace}, {labels}}})"


def _quoted(text: str) -> str:
    """A PromQL string."""
    return json.dumps(text, ensure_ascii=False)


def _pattern(name: str) -> str:
    """A regular expression for a name of a Kubernetes object."""
    return name.replace(".", r"\.")


def read_history(
    policy: Policy, target: CrossVersionReference, source: Source, pauses: Sequence[float] = PAUSES
) -> list[Tick]:
    """A tick for each moment of the source from the first load to the last.

    A tick lacks a metric that was not recorded then: a gap, no zero. A missing number of pulled-out pods is that of the
    moment before (at first 0). Raises FaultyDocument, and HistoryUnavailable, also for a load without any value.
    """
    server, queries, moments = server_of(policy, source), derive_queries(policy, target, source), source.moments
    read = asyncio.run(_read(server, policy.namespace, queries, moments, pauses))
    out, pulled_out, ticks = read.pop(PULLED_OUT), 0, list[Tick]()
    for name, values in read.items():
        if not values:
            raise HistoryUnavailable(
                f"{name}: Prometheus {server.name} has no value of it, {_span(moments)}; test the query there, "
                f"and give another one with --query {name}='PROMQL' where needed: {queries[name].text}"
            )
    for at in moments:
        pulled_out = out.get(at, pulled_out)
        load = {name: values[at] for name, values in read.items() if at in values}
        if load or ticks:
            ticks.append(Tick(at / 1000, load, pulled_out // NANO))
    while not ticks[-1].load:
        ticks.pop()
    return ticks


def _span(moments: range) -> str:
    return f"{format_time(moments[0] / 1000)} to {format_time(moments[-1] / 1000)}"


async def _read(
    server: PrometheusServer, namespace: str, queries: Mapping[str, RangeQuery], moments: range, pauses: Sequence[float]
) -> dict[str, dict[int, int]]:
    """The values of every query by moment (milliseconds), in nano-units."""
    timeout = max(server.timeout_seconds, _TIMEOUT)
    client = ApiClient(server, "query_range", timeout + 5)
    length = max(1, min(_DAY // moments.step, MOST_POINTS))

    async def values(name: str, query: RangeQuery) -> dict[int, int]:
        found: dict[int, int] = {}
        for part in (moments[first : first + length] for first in range(0, len(moments), length)):
            start, end, step = (f"{one / 1000:.3f}" for one in (part[0], part[-1], part.step))
            form = {"query": query.text, "start": start, "end": end, "step": step, "timeout": f"{timeout:.0f}s"}
            try:
                series = chosen(query, namespace, await _asked(client, form, pauses))
            except (SourceError, ValueError) as error:
                raise HistoryUnavailable(f"{name}, {_span(part)}: {error}; the query is {query.text}") from error
            for at, text in (series and series.values) or ():
                with contextlib.suppress(QuantityError):  # NaN, an infinity, a negative value: no load
                    found[round(at * 1000)] = parse_number(text)
        return found

    try:
        read = await asyncio.gather(*(values(name, query) for name, query in queries.items()))
    finally:
        await client.close()
    return dict(zip(queries, read, strict=True))


class Series(msgspec.Struct, frozen=True, gc=False):
    """One series of a range: its labels, and its points (epoch seconds, value as text) in order of time."""

    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None


_MATRIX = Decoder(list[Series])


async def _asked(client: ApiClient, form: Mapping[str, str], pauses: Sequence[float]) -> list[Series]:
    """The series of a range query, which is sent again after each of `pauses` (seconds) where the server fails.

    Raises SourceError.
    """
    for pause in (*pauses, None):
        try:
            return await client.result(form, "matrix", _MATRIX)
        except (SourceUnreachable, SourceFailing) as error:
            if pause is None:
                raise error.with_context(client.url, f"{len(pauses) + 1} attempts failed") from error
            await asyncio.sleep(pause)
        except SourceError as error:
            raise error.with_context(client.url) from error
    raise AssertionError("the last attempt returns or raises")


def chosen(query: RangeQuery, namespace: str, answer: Sequence[Series]) -> Series | None:
    """The series that counts, None where there is none. Raises ValueError where several might be meant."""
    if query.by_pod:
        by_kind = {series.metric.get(_CHOSEN): series for series in answer}
        return by_kind.get(_PODS) or by_kind.get(_TOTAL)
    ours = [one for one in answer if one.metric.get(query.namespace_label, "") in {namespace, ""}]
    if len(ours) > 1:
        raise ValueError(f"answers {len(ours)} series where one number is wanted; put sum(…) around it")
    return ours[0] if ours else None
