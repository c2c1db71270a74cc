"""The range queries of a policy's history: the load of the service, its pulled-out pods and its replicas. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from adapter.commands.replay.model import TITLE
from adapter.load.spec import Metric, Policy, Query, ResourceMetric
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.settings import NamedQuery, PrometheusServer, Settings
from adapter.usage.promql import PromqlError, substitute
from adapter.usage.query_catalog import QueryCatalog, WorkloadQuery

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
_KUBE_STATE = {
    "Deployment": ("kube_deployment_spec_replicas", "deployment"),
    "StatefulSet": ("kube_statefulset_replicas", "statefulset"),
    "ReplicaSet": ("kube_replicaset_spec_replicas", "replicaset"),
}
"""The series and label of kube-state-metrics, by kind."""


class RangeSeries(NamedTuple):
    """One series of a range: its labels, and its points (epoch seconds, value as text) in order of time."""

    labels: Mapping[str, str]
    points: list[tuple[float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where histories are read: the settings' servers and named queries, and the server for all else.

    `server` is None where the settings have several: then it is the one that the policy's queries are asked of. With
    `is_only` the server answers the named queries as well, whatever server the settings name for them.
    """

    server: PrometheusServer | None
    servers: Mapping[str, PrometheusServer] = field(default_factory=dict)
    queries: Sequence[NamedQuery] = ()
    is_only: bool = False


def choose_servers(settings: Settings | None, url: str) -> Servers:
    """The servers of `--settings` and `--prometheus` (empty: not given). Raises FaultyDocument."""
    servers = {server.name: server for server in settings.prometheus.servers} if settings else {}
    queries = settings.prometheus.queries if settings else ()
    if url:
        if not re.match(r"https?://[^/\s]", url):
            advice = "write the address where its API begins, such as http://prometheus:9090"
            raise FaultyDocument([Fault("--prometheus", url, advice)], TITLE)
        return Servers(server=PrometheusServer(name=url, url=url), queries=queries, is_only=True)
    if not servers:
        advice = "name the server with --prometheus URL, or give the settings that have it with --settings FILE"
        raise FaultyDocument([Fault("--prometheus", None, advice)], TITLE)
    only = next(iter(servers.values())) if len(servers) == 1 else None
    return Servers(server=only, servers=servers, queries=queries)


class Pick(StrEnum):
    """Which series of an answer counts."""

    ONLY = "only"
    """The only one."""
    NAMESPACE = "namespace"
    """That of the policy's namespace, or one without a namespace."""
    CHOSEN = "chosen"
    """The sum over the policy's pods, or the number of the service where the query has none by pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """One query for a number over time. `name` is what it stands for in errors.

    `is_total`: the adapter, too, has but one number for the service.
    """

    name: str
    server: PrometheusServer
    text: str
    pick: Pick = Pick.ONLY
    namespace: str = ""
    namespace_label: str = "namespace"
    is_total: bool = False

    def chosen(self, answer: Sequence[RangeSeries]) -> RangeSeries | None:
        """The series that counts, None where there is none. Raises ValueError where several might be meant."""
        if self.pick is Pick.CHOSEN:
            by_kind = {series.labels.get(_CHOSEN): series for series in answer}
            return by_kind.get(_PODS) or by_kind.get(_TOTAL)
        if self.pick is Pick.NAMESPACE:
            ours = {self.namespace, ""}
            answer = [series for series in answer if series.labels.get(self.namespace_label, "") in ours]
        if len(answer) > 1:
            raise ValueError(f"answers {len(answer)} series where one number is wanted; put sum(…) around it")
        return answer[0] if answer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQueries:
    """All queries of one history: the load by the policy's metric, and two that may have no answer."""

    loads: Mapping[str, RangeQuery]
    pulled_out: RangeQuery
    replicas: RangeQuery

    @property
    def totals(self) -> frozenset[str]:
        """The metrics whose query is one number for the service, so that no pod has a sample of its own."""
        return frozenset(name for name, query in self.loads.items() if query.is_total)

    def __iter__(self) -> Iterator[RangeQuery]:
        """All of them, the loads first."""
        yield from self.loads.values()
        yield self.pulled_out
        yield self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Queries of the user's own (PromQL), instead of derived ones: of loads by metric, and of pulled-out pods.

    They may contain `$namespace` and `$workload`, as those of the settings.
    """

    loads: Mapping[str, str] = field(default_factory=dict)
    pulled_out: str = ""


def derive_queries(
    policy: Policy, target: CrossVersionReference, servers: Servers, overrides: Overrides | None = None
) -> HistoryQueries:
    """The queries for a policy and the target of its HPA. Raises FaultyDocument for all that cannot be derived."""
    return _Derivation(policy, target, servers, overrides or Overrides()).queries()


class _Derivation:
    def __init__(self, policy: Policy, target: CrossVersionReference, servers: Servers, overrides: Overrides) -> None:
        self._policy, self._target, self._servers, self._overrides = policy, target, servers, overrides
        inline = [metric.query.server for metric in policy.metrics if metric.query]
        named = [query.server for query in servers.queries]
        known = [*inline, *named] if servers.is_only else servers.servers
        self._catalog = QueryCatalog(known, servers.queries, inline_allowed=True)
        self._faults: list[Fault] = []
        self._server = servers.server or self._server_of_queries()

    def queries(self) -> HistoryQueries:
        names = [metric.name for metric in self._policy.metrics]
        for name in self._overrides.loads.keys() - set(names):
            advice = f"the policy has no such metric{closest(name, names)}; it has {', '.join(names)}"
            self._faults.append(Fault("--query", name, advice))
        loads = {metric.name: self._load(metric) for metric in self._policy.metrics}
        if self._faults:
            raise FaultyDocument(self._faults, f"{TITLE}: {self._policy.namespace}/{self._policy.name}")
        pulled_out = f"max({self._own('effective_load_policy_pods', state='pulledOut')})"
        replicas = f"max({self._own('effective_load_policy_current_replicas')})"
        if self._target.kind in _KUBE_STATE:
            series, label = _KUBE_STATE[self._target.kind]
            labels = f"namespace={_quoted(self._policy.namespace)}, {label}={_quoted(self._target.name)}"
            replicas = f"{replicas} or max({series}{{{labels}}})"
        return HistoryQueries(
            loads={name: query for name, query in loads.items() if query is not None},
            pulled_out=self._query("pulled-out pods", self._overrides.pulled_out or pulled_out),
            replicas=self._query("replicas", replicas),
        )

    def _server_of_queries(self) -> PrometheusServer:
        """The server of the policy's queries, for all else too. Raises FaultyDocument unless it is one."""
        queries = [metric.query for metric in self._policy.metrics if metric.query]
        by_name = {query.name: query.server for query in self._servers.queries}
        names = {query.server or by_name.get(query.name, "") for query in queries} & self._servers.servers.keys()
        if len(names) != 1:
            listed = ", ".join(self._servers.servers)
            advice = (
                f"name one with --prometheus URL: the settings have {listed}, and the policy's queries name not one"
            )
            raise FaultyDocument([Fault("--prometheus", None, advice)], TITLE)
        return self._servers.servers[names.pop()]

    def _query(self, name: str, text: str) -> RangeQuery:
        try:
            text = substitute(text, self._policy.namespace, self._target.name)
        except PromqlError as error:
            self._faults.append(Fault(f"the query of {name}", text, str(error)))
        return RangeQuery(name=name, server=self._server, text=text)

    def _load(self, metric: Metric) -> RangeQuery | None:
        if text := self._overrides.loads.get(metric.name):
            named = next(
                (query for query in self._servers.queries if metric.query and query.name == metric.query.name), None
            )
            return replace(self._query(metric.name, text), is_total=named is not None and named.scope == "Service")
        if metric.query is not None:
            return self._of_settings(metric.name, metric.query)
        assert metric.resource is not None
        return self._of_kubelet(metric.name, metric.resource)

    def _of_settings(self, name: str, query: Query) -> RangeQuery | None:
        resolved = self._catalog.resolve(WorkloadQuery(query, self._policy.namespace, self._target.name))
        if isinstance(resolved, str):
            advice = f"{resolved}; name the settings with --settings FILE, or give --query {name}='PROMQL'"
            self._faults.append(Fault(f"metric {name}", query.name or None, advice))
            return None
        text, is_total = resolved.text, resolved.by_pod is False
        if not is_total:  # the sum over the policy's pods, beside it what has no pod; NaN and negative values count not
            joined = f'label_join(({text}\n) >= 0, "{_OF}", "/", {_quoted(resolved.labels[0])}, '
            joined += f"{_quoted(resolved.labels[1])})"
            ours = _quoted(f"{_pattern(self._policy.namespace)}/{self._pod_names()}")
            pods = f'label_replace({joined}, "{_CHOSEN}", "{_PODS}", "{_OF}", {ours})'
            total = _quoted(f"({_pattern(self._policy.namespace)})?/")
            text = f'sum by ({_CHOSEN}) (label_replace({pods}, "{_CHOSEN}", "{_TOTAL}", "{_OF}", {total}))'
        return RangeQuery(
            name=name,
            server=self._server if self._servers.is_only else self._servers.servers[resolved.server],
            text=text,
            pick=Pick.NAMESPACE if is_total else Pick.CHOSEN,
            namespace=self._policy.namespace,
            namespace_label=resolved.labels[0],
            is_total=is_total,
        )

    def _of_kubelet(self, name: str, resource: ResourceMetric) -> RangeQuery | None:
        if resource.name not in _RESOURCES:
            advice = f"no usual series is known for it; give --query {name}='PROMQL'"
            self._faults.append(Fault(f"metric {name}", resource.name, advice))
            return None
        before, after = _RESOURCES[resource.name]
        containers = f"container=~{_quoted('|'.join(map(_pattern, resource.containers)))}"
        chosen = containers if resource.containers else 'container!="", container!="POD"'
        ours = f"namespace={_quoted(self._policy.namespace)}, pod=~{_quoted(self._pod_names())}"
        return self._query(name, f"sum({before}{{{ours}, {chosen}}}{after})")

    def _pod_names(self) -> str:
        """A pattern of the names of the target's pods, then and now."""
        return _pattern(self._target.name) + _POD_NAMES.get(self._target.kind, _ANY_POD)

    def _own(self, series: str, **labels: str) -> str:
        """A metric of the adapter about the policy, whether or not Prometheus renamed its label `namespace`."""
        matchers = "".join(f", {name}={_quoted(value)}" for name, value in labels.items())
        namespace, policy = _quoted(self._policy.namespace), f"policy={_quoted(self._policy.name)}{matchers}"
        plain = f'{series}{{namespace={namespace}, exported_namespace="", {policy}}}'
        return f"{plain} or {series}{{exported_namespace={namespace}, {policy}}}"


def _quoted(text: str) -> str:
    """A PromQL string."""
    return json.dumps(text, ensure_ascii=False)


def _pattern(name: str) -> str:
    """A regular expression for a name of a Kubernetes object."""
    return name.replace(".", r"\.")
