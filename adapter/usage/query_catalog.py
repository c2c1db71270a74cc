"""What is asked of which server: a policy's query with its names put in. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapter.load.spec import Query
from adapter.settings import NamedQuery
from adapter.usage.promql import PromqlError, inputs, substitute, uses_variables

INLINE_MAX_AGE_SECONDS = 90.0
INLINE_INTERVAL_SECONDS = 15.0


class Wanted(NamedTuple):
    """A query as one policy needs it: for its namespace and its workload's name."""

    query: Query
    namespace: str
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query to one server, shared by all who ask the same.

    `by_pod`: one series a pod, or one number for a service; None: the answer's labels show it. Ages and intervals in
    seconds, and so is `window`: how far back values reach from their time.
    """

    server: str
    text: str
    by_pod: bool | None
    namespace_label: str = "namespace"
    pod_label: str = "pod"
    max_age: float = INLINE_MAX_AGE_SECONDS
    interval: float = INLINE_INTERVAL_SECONDS
    window: float = 0.0

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that an answer is sorted by."""
        return (self.namespace_label,) if self.by_pod is False else (self.namespace_label, self.pod_label)


class Catalog:
    """The settings' queries by name, and whether policies may bring their own."""

    def __init__(self, servers: Iterable[str], queries: Iterable[NamedQuery], *, inline_allowed: bool) -> None:
        self._servers = frozenset(servers)
        self._queries: Mapping[str, NamedQuery] = {query.name: query for query in queries}
        self._inline_allowed = inline_allowed

    def shared(self) -> dict[str, Question | str]:
        """The questions of all named queries that need no policy; a sentence where one cannot be asked."""
        return {
            name: self._question(query, query.query)
            for name, query in self._queries.items()
            if not uses_variables(query.query)
        }

    def named(self, name: str) -> NamedQuery | None:
        """A named query's settings."""
        return self._queries.get(name)

    def max_age(self, query: Query) -> float:
        """How old a sample of this query may be, in seconds."""
        named = self._queries.get(query.name)
        return named.max_age_seconds if named else INLINE_MAX_AGE_SECONDS

    def question(self, wanted: Wanted) -> Question | str:
        """What to ask for a policy; a sentence where it cannot be asked."""
        query, named = wanted.query, self._queries.get(wanted.query.name)
        if query.prom_ql:
            return self._inline(wanted)
        if named is None:
            known = ", ".join(sorted(self._queries)) or "none yet"
            return f"the settings define no such query (they have {known})"
        return self._filled(named, wanted)

    def _filled(self, named: NamedQuery, wanted: Wanted) -> Question | str:
        try:
            text = substitute(named.query, wanted.namespace, wanted.workload)
        except PromqlError as error:
            return str(error)
        return self._question(named, text)

    def _question(self, named: NamedQuery, text: str) -> Question | str:
        return self._checked(
            Question(
                server=named.server,
                text=text,
                by_pod=named.scope == "Pods",
                namespace_label=named.namespace_label,
                pod_label=named.pod_label,
                max_age=named.max_age_seconds,
                interval=named.interval_seconds,
            ),
            named.window_seconds,
        )

    def _inline(self, wanted: Wanted) -> Question | str:
        if not self._inline_allowed:
            return (
                "PromQL in a policy is not allowed here; name a query of the settings, or set prometheus.inlineQueries"
            )
        try:
            text = substitute(wanted.query.prom_ql, wanted.namespace, wanted.workload)
        except PromqlError as error:
            return str(error)
        return self._checked(Question(server=wanted.query.server, text=text, by_pod=None))

    def _checked(self, question: Question, window: float | None = None) -> Question | str:
        """The question with its window (None: as its text says); a sentence where it cannot be asked."""
        if question.server not in self._servers:
            known = ", ".join(sorted(self._servers)) or "none yet"
            return f"the settings define no Prometheus server {question.server!r} (they have {known})"
        try:
            read = inputs(question.text)
        except PromqlError as error:
            return str(error)
        return replace(question, window=read.window if window is None else window)
