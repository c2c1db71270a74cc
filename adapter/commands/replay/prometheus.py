"""A service's history from Prometheus, Thanos or Mimir: the range queries for its columns, read in parts."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.commands.replay.history import PULLED_OUT, Tick
from adapter.commands.replay.model import fault
from adapter.load.quantity import NANO, QuantityError, parse_number
from adapter.load.spec import Metric, Policy
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
_CHOSEN, _OF = "effective_load_chosen", "effective_load_of"
_PODS, _TOTAL = "pods", "total"
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes makes random names of: no name of another workload is made of these alone."""
_POD = f"((-{_HASH}{{1,10}})?-{_HASH}{{5}}|-[0-9]+)"
"""What follows the name of a Deployment, ReplicaSet or StatefulSet in the names of its pods."""
_RESOURCES = {
    "cpu": ("rate(container_cpu_usage_seconds_total", "[2m])"),
    "memory": ("container_memory_working_set_bytes", ""),
}
"""The usual series of the kubelet's cAdvisor."""


class HistoryUnavailable(Exception):  # noqa: N818  named after what happened
    """The history cannot be read; the message names the query and what the server said."""


class Source(NamedTuple):
    """Where and how a history is read.

    `named` are the queries of the settings. `own` are queries of the user's (PromQL) instead of derived ones, by the
    column that a CSV file would have; they may contain `$namespace` and `$workload`. `moments` are in milliseconds
    since the epoch, each a multiple of their step.
    """

    server: PrometheusServer
    named: Sequence[NamedQuery]
    own: Mapping[str, str]
    moments: range


def read_source(settings: Settings | None, server: str, own: Mapping[str, str], moments: range) -> Source:
    """The source of `--settings` and `--prometheus`, an address or a server of the settings; empty: their only one.

    Raises FaultyDocument.
    """
    servers = {one.name: one for one in (settings.prometheus.servers if settings else ())}
    if re.match(r"https?://[^/\s]", server):
        servers[server] = PrometheusServer(name=server, url=server)
    elif not server and len(servers) == 1:
        server = next(iter(servers))
    if server not in servers:
        listed = f", one of its {', '.join(servers)}" if servers else " that have it"
        advice = "name the server by its address, such as http://prometheus:9090, or give --settings FILE"
        raise fault("--prometheus", server or None, f"{advice}{listed}")
    return Source(servers[server], settings.prometheus.queries if settings else (), own, moments)


def derive_queries(policy: Policy, workload: str, source: Source) -> dict[str, str]:
    """The queries for a policy and its workload, by column. Raises FaultyDocument for a metric without a series."""
    names = [metric.name for metric in policy.metrics]
    for name in source.own.keys() - {*names, PULLED_OUT}:
        raise fault("--query", name, f"the policy has no such metric{closest(name, names)}; it has {', '.join(names)}")
    columns = {}
    for name, text in source.own.items():
        try:
            columns[name] = f"sum({substitute(text, policy.namespace, workload)}\n)"
        except PromqlError as error:
            raise fault("--query", f"{name}={text}", str(error)) from error
    for metric in policy.metrics:
        if metric.name not in columns:
            columns[metric.name] = _load(metric, policy.namespace, workload, source)
    # The adapter's own metric of the policy, whether or not Prometheus renamed its label `namespace`.
    series, namespace = "effective_load_policy_pods", _quoted(policy.namespace)
    labels = f'policy={_quoted(policy.name)}, state="pulledOut"'
    plain = f'{series}{{namespace={namespace}, exported_namespace="", {labels}}}'
    columns.setdefault(PULLED_OUT, f"max({plain} or {series}{{exported_namespace={namespace}, {labels}}})")
    return columns


def _load(metric: Metric, namespace: str, workload: str, source: Source) -> str:
    """The query for the load of the service. Raises FaultyDocument where there is none."""
    advice, pods = f"give --query {metric.name}='PROMQL'", _pattern(workload) + _POD
    if metric.query is None:
        if metric.resource not in _RESOURCES:
            raise fault(f"metric {metric.name}", None, f"no usual series is known for it; {advice}")
        before, after = _RESOURCES[metric.resource]
        chosen = f"container=~{_quoted('|'.join(map(_pattern, metric.containers)))}"
        if not metric.containers:
            chosen = 'container!="", container!="POD"'
        return f"sum({before}{{namespace={_quoted(namespace)}, pod=~{_quoted(pods)}, {chosen}}}{after})"
    servers = [metric.query.server, *(one.server for one in source.named)]
    catalog = QueryCatalog(servers, source.named, inline_allowed=True)
    query = catalog.resolve(WorkloadQuery(metric.query, namespace, workload))
    if isinstance(query, str):
        advice = f"{query}; name the settings with --settings FILE, or {advice}"
        raise fault(f"metric {metric.name}", metric.query.name or None, advice)
    # The sum over the workload's pods, beside it what has no pod; NaN and negative values do not count.
    labels = ", ".join(map(_quoted, query.labels))
    text = f'label_join(({query.text}\n) >= 0, "{_OF}", "/", {labels})'
    for kind, pattern in ((_PODS, f"{_pattern(namespace)}/{pods}"), (_TOTAL, f"({_pattern(namespace)})?/")):
        text = f'label_replace({text}, "{_CHOSEN}", "{kind}", "{_OF}", {_quoted(pattern)})'
    return f"sum by ({_CHOSEN}) ({text})"


def _quoted(text: str) -> str:
    """A PromQL string."""
    return json.dumps(text, ensure_ascii=False)


def _pattern(name: str) -> str:
    """A regular expression for a name of a Kubernetes object."""
    return name.replace(".", r"\.")


def read_history(policy: Policy, workload: str, source: Source, pauses: Sequence[float] = PAUSES) -> list[Tick]:
    """A tick for each moment of the source from the first load to the last.

    A tick lacks a metric that was not recorded then: a gap, no zero. A missing number of pulled-out pods is that of the
    moment before (at first 0). Raises FaultyDocument, and HistoryUnavailable, also for a load without any value.
    """
    queries, moments = derive_queries(policy, workload, source), source.moments
    read = asyncio.run(_read(queries, source, pauses))
    out, pulled_out, ticks = read.pop(PULLED_OUT), 0, list[Tick]()
    for name, values in read.items():
        if not values:
            raise HistoryUnavailable(
                f"{name}: Prometheus {source.server.name} has no value of it, {_span(moments)}; test the query there, "
                f"and give another one with --query {name}='PROMQL' where needed: {queries[name]}"
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


class _Series(msgspec.Struct, frozen=True, gc=False):
    """One series of a range: its labels, and its points (epoch seconds, value as text) in order of time."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []


_MATRIX = Decoder(list[_Series])


async def _read(queries: Mapping[str, str], source: Source, pauses: Sequence[float]) -> dict[str, dict[int, int]]:
    """The values of every query by moment (milliseconds), in nano-units.

    A query is sent again after each of `pauses` (seconds) where the server fails.
    """
    moments, timeout = source.moments, max(source.server.timeout_seconds, _TIMEOUT)
    client = ApiClient(source.server, "query_range", timeout + 5)

    async def read(query: str, part: range) -> list[_Series]:
        start, end, step = (f"{one / 1000:.3f}" for one in (part[0], part[-1], part.step))
        form = {"query": query, "start": start, "end": end, "step": step, "timeout": f"{timeout:.0f}s"}
        for pause in pauses:
            with contextlib.suppress(SourceUnreachable, SourceFailing):
                return await client.result(form, "matrix", _MATRIX)
            await asyncio.sleep(pause)
        return await client.result(form, "matrix", _MATRIX)

    async def values(name: str, query: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for part in (moments[first : first + MOST_POINTS] for first in range(0, len(moments), MOST_POINTS)):
            try:
                series = {one.metric.get(_CHOSEN): one.values for one in await read(query, part)}
            except SourceError as error:
                why = f"{error.with_context(client.url)}; the query is {query}"
                raise HistoryUnavailable(f"{name}, {_span(part)}: {why}") from error
            points = series.get(_PODS) or series.get(_TOTAL) if _CHOSEN in query else series.get(None)
            for at, text in points or ():
                with contextlib.suppress(QuantityError):  # NaN, an infinity, a negative value: no load
                    found[round(at * 1000)] = parse_number(text)
        return found

    try:
        found = await asyncio.gather(*(values(name, query) for name, query in queries.items()))
    finally:
        await client.close()
    return dict(zip(queries, found, strict=True))
