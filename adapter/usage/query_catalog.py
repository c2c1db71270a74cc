"""Resolves the queries of policies and settings to the instant queries that Prometheus servers are sent. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from adapter.load.spec import Query
from adapter.settings import NamedQuery
from adapter.usage.promql import PromqlError, QueryInputs, parse_inputs, substitute, uses_variables

INLINE_MAX_AGE_SECONDS = 90.0
_INLINE_REFUSED = (
    "PromQL in a policy is not allowed here; name a query of the settings, or set prometheus.inlineQueries"
)


class WorkloadQuery(NamedTuple):
    """A query of a policy, with the namespace and the name of the policy's workload."""

    query: Query
    namespace: str
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantQuery:
    """A query as one server is sent it; equal ones are polled once.

    `by_pod`: it returns one series a pod, or one number for a service; None: its labels show which. `labels` hold the
    namespace and the pod, in its result or in the samples behind it. All times are in seconds; `window` is how far back
    its values reach from their time; `inputs` is what its text reads.
    """

    server: str
    text: str
    by_pod: bool | None
    labels: tuple[str, str] = ("namespace", "pod")
    max_age: float = INLINE_MAX_AGE_SECONDS
    interval: float = 15.0
    window: float = 0.0
    inputs: QueryInputs = field(default=QueryInputs(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


class QueryCatalog:
    """The named queries of the settings, and whether policies may have inline PromQL."""

    def __init__(self, servers: Iterable[str], queries: Iterable[NamedQuery], *, inline_allowed: bool) -> None:
        self._servers = frozenset(servers)
        self._queries = {query.name: query for query in queries}
        self._inline_allowed = inline_allowed

    def shared(self) -> list[tuple[NamedQuery, InstantQuery | str]]:
        """The named queries without variables as they are sent; or a sentence why one cannot be."""
        return [(one, self._of_settings(one)) for one in self._queries.values() if not uses_variables(one.query)]

    def resolve(self, wanted: WorkloadQuery) -> InstantQuery | str:
        """The instant query for a workload; or a sentence why it cannot be sent."""
        query, named = wanted.query, self._queries.get(wanted.query.name)
        if query.prom_ql:
            inline = InstantQuery(server=query.server, text=query.prom_ql, by_pod=None)
            return self._checked(inline, None, *wanted[1:]) if self._inline_allowed else _INLINE_REFUSED
        if named is None:
            return f"the settings define no such query (they have {', '.join(sorted(self._queries)) or 'none yet'})"
        return self._of_settings(named, *wanted[1:])

    def _of_settings(self, named: NamedQuery, namespace: str = "", workload: str = "") -> InstantQuery | str:
        query = InstantQuery(
            server=named.server,
            text=named.query,
            by_pod=named.scope == "Pods",
            labels=(named.namespace_label, named.pod_label),
            max_age=named.max_age_seconds,
            interval=named.interval_seconds,
        )
        return self._checked(query, named.window_seconds, namespace, workload)

    def _checked(self, query: InstantQuery, window: float | None, namespace: str, workload: str) -> InstantQuery | str:
        """The query for a workload, with its window (None: that of its text); or a sentence why it cannot be sent."""
        if query.server not in self._servers:
            names = ", ".join(sorted(self._servers)) or "none yet"
            return f"the settings define no Prometheus server {query.server!r} (they have {names})"
        try:
            text = substitute(query.text, namespace, workload)
            inputs = parse_inputs(text, query.labels)
        except PromqlError as error:
            return str(error)
        return replace(query, text=text, window=inputs.window if window is None else window, inputs=inputs)
