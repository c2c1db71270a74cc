"""Usage from Prometheus: polls each distinct query once per interval, and dates its samples by the query's inputs."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from adapter.load.samples import QuerySamples
from adapter.load.spec import Query
from adapter.runtime.backoff import LogOnce
from adapter.runtime.source_errors import QueryRejected, SourceError
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.polling import AheadDates, interval_shares, retry_delay, with_last_answer
from adapter.usage.prometheus_api import PrometheusClient, Sample
from adapter.usage.promql import ended_question, question
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from adapter.usage.query_results import Answer, QueryResult, build_result
from adapter.usage.series import NamedQueryResult

UNCOUNTED_SECONDS = 3600.0
"""Where a server refuses the question for the numbers of samples, it is asked again after so long."""
LARGE_SAMPLES = 2000
"""An answer with more samples is read in a thread."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _QueryState:
    """The last result of a query. `cause`: why the last poll failed, in words that policies may show.

    `failures` in a row. `refused_at` (monotonic seconds), `refusal`: when and why the server last refused to count
    samples. `agreed`: windows of several selectors have held equally many samples.
    """

    result: QueryResult | None = None
    cause: str = ""
    failures: int = 0
    refused_at: float = float("-inf")
    refusal: str = ""
    agreed: bool = False


_NOTHING = _QueryState()


class Prometheus:
    """Polls any number of Prometheus servers for policies and named queries, and keeps the last results.

    `on_change` is called with the users of a query when its result, or the cause of its failure, changed; named queries
    without variables are polled without users as well. `clock` returns epoch seconds of the API server's clock; sample
    times are those of the Prometheus servers.
    """

    def __init__(
        self,
        servers: Iterable[PrometheusServer],
        queries: Iterable[NamedQuery],
        *,
        inline_allowed: bool,
        on_change: Callable[[frozenset[WorkloadQuery]], None],
        clock: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._clients: dict[str, PrometheusClient] = {}
        self._states: dict[InstantQuery, _QueryState] = {}
        self._ahead: dict[InstantQuery, AheadDates] = {}
        self._log_once = LogOnce()
        self._pollers: dict[InstantQuery, asyncio.Task[None]] = {}
        self._wanted: frozenset[WorkloadQuery] = frozenset()
        self._resolved: dict[WorkloadQuery, InstantQuery | str] = {}
        self._users: dict[InstantQuery, set[WorkloadQuery]] = {}
        self._shared: dict[str, InstantQuery | str] = {}
        self._changed = asyncio.Event()
        self.reload(servers, queries, inline_allowed=inline_allowed)

    # --- queries ---

    def reload(
        self, servers: Iterable[PrometheusServer], queries: Iterable[NamedQuery], *, inline_allowed: bool
    ) -> None:
        """Apply changed settings. Unchanged queries keep their results."""
        self._settings = {server.name: server for server in servers}
        self._catalog = QueryCatalog(self._settings, queries, inline_allowed=inline_allowed)
        self._shared = self._catalog.shared()
        self._resolve({})

    def set_queries(self, wanted: Iterable[WorkloadQuery]) -> None:
        """Replace the queries that policies need."""
        latest = frozenset(wanted)
        if latest != self._wanted:
            self._wanted = latest
            self._resolve(self._resolved)

    def _resolve(self, known: Mapping[WorkloadQuery, InstantQuery | str]) -> None:
        self._resolved = {wanted: known.get(wanted) or self._catalog.resolve(wanted) for wanted in self._wanted}
        self._users = {query: set() for query in self._shared.values() if isinstance(query, InstantQuery)}
        for wanted, query in self._resolved.items():
            if isinstance(query, InstantQuery):
                self._users.setdefault(query, set()).add(wanted)
        self._changed.set()

    # --- results ---

    def samples(self, query: Query, namespace: str, workload: str) -> QuerySamples:
        """The samples of a workload from the last result; they keep their times, however old they get."""
        wanted = WorkloadQuery(query, namespace, workload)
        resolved = self._resolved.get(wanted) or self._catalog.resolve(wanted)
        if isinstance(resolved, str):
            return QuerySamples(max_age=self._catalog.max_age(query), error=resolved, undefined=True)
        state = self._states.get(resolved, _NOTHING)
        by_pod = resolved.by_pod
        if by_pod is None and state.result is not None and state.result.counted:
            by_pod = state.result.by_pod
        nothing = QuerySamples(max_age=resolved.max_age, interval=resolved.interval)
        samples = state.result.of(namespace, resolved.max_age) if state.result else nothing
        fetched_at = state.result.fetched_at if state.result else None
        return replace(
            samples,
            window=resolved.window,
            behind=resolved.inputs.behind,
            interval=resolved.interval,
            by_pod=by_pod,
            error=with_last_answer(state.cause, fetched_at) if state.cause else samples.error,
        )

    def count_refusal(self, query: InstantQuery) -> str:
        """Why the numbers of samples in a query's windows are not known; empty where they are, or do not matter."""
        if query.inputs.uncounted:
            return f"it has {'windows of different lengths' if query.inputs.windows else 'subqueries'}"
        state = self._states.get(query, _NOTHING)
        if state.refusal:
            return state.refusal
        if query.inputs.windows and state.result is not None and not state.agreed:
            return "its windows have different scrape intervals"
        return ""

    def named_result(self, name: str) -> NamedQueryResult | None:
        """The last result of a named query without variables; None if there is no such query."""
        query, named = self._shared.get(name), self._catalog.named(name)
        if query is None or named is None:
            return None
        state = self._states.get(query, _NOTHING) if isinstance(query, InstantQuery) else _NOTHING
        cause = query if isinstance(query, str) else state.cause
        result = state.result
        return NamedQueryResult(
            name=name,
            by_pod=named.scope == "Pods",
            pod_label=named.pod_label,
            namespace_label=named.namespace_label,
            max_age=named.max_age_seconds,
            series=result.series if result else {},
            fetched_at=result.fetched_at if result else None,
            error=cause or (result.faults.get("") if result else None),
        )

    def named_results(self) -> Iterator[NamedQueryResult]:
        """The last results of all named queries without variables."""
        return filter(None, map(self.named_result, self._shared))

    # --- polling ---

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._update_clients()
                    for query in self._users.keys() - self._pollers.keys():
                        if query.server in self._clients:  # the next update creates clients of servers added meanwhile
                            self._pollers[query] = tasks.create_task(self._poll(query))
                    for query in self._pollers.keys() - self._users.keys():
                        self._pollers.pop(query).cancel()
                    for query in self._states.keys() - self._users.keys():
                        self._log_once.clear(query)
                    for by_query in (self._states, self._ahead):
                        for query in by_query.keys() - self._users.keys():
                            del by_query[query]
                    await self._changed.wait()
                    self._changed.clear()
        finally:
            for name in list(self._clients):
                await self._close_client(name)

    async def _update_clients(self) -> None:
        """Create clients of new and changed servers; queries of a changed server are polled again."""
        changed = [name for name, client in self._clients.items() if self._settings.get(name) != client.settings]
        for name in changed:
            await self._close_client(name)
            for query, state in self._states.items():
                if query.server == name:  # another server may be there now
                    self._states[query] = replace(state, failures=0, refused_at=float("-inf"))
        for name, settings in self._settings.items():
            if name not in self._clients:
                self._clients[name] = PrometheusClient(settings)

    async def _close_client(self, name: str) -> None:
        pollers = [self._pollers.pop(query) for query in list(self._pollers) if query.server == name]
        for task in pollers:
            task.cancel()
        await asyncio.gather(*pollers, return_exceptions=True)
        await self._clients.pop(name).close()

    async def _poll(self, query: InstantQuery) -> None:
        """Poll a query at its interval; later after failures."""
        loop = asyncio.get_running_loop()
        for share in interval_shares():
            began = loop.time()
            last = self._states.get(query, _NOTHING)
            state = self._states[query] = await self._fetch(query, last)
            is_new = last is _NOTHING or last.cause != state.cause
            if is_new or (state.result is not None and not state.result.same(last.result)):
                self._on_change(frozenset(self._users.get(query, ())))
            elapsed = loop.time() - began
            delay = query.interval * share
            await asyncio.sleep(
                retry_delay(min(delay, query.interval), elapsed, state.failures) if state.failures else delay
            )

    async def _fetch(self, query: InstantQuery, last: _QueryState) -> _QueryState:
        source, client = f"prometheus/{query.server}", self._clients[query.server]
        try:
            async with client.slots:
                state = await self._query(client, query, last)
        except SourceError as error:
            self._metrics.source_up.labels(source).set(0)
            self._metrics.source_errors.labels(source, error.reason).inc()
            if self._log_once.is_new(str(error), query):
                _log.warning("query_failed", source=source, query=query.text, error=str(error))
            cause = f"Prometheus {query.server}: {error.public}"
            return replace(last, cause=cause, failures=last.failures + 1)
        if not state.refusal:
            self._log_once.clear(query)
        elif self._log_once.is_new(state.refusal, query):
            _log.warning("query_windows_unknown", source=source, query=query.text, error=state.refusal)
        assert state.result is not None
        self._metrics.source_up.labels(source).set(1)
        self._metrics.source_success.labels(source).set(state.result.fetched_at)
        return state

    async def _query(self, client: PrometheusClient, query: InstantQuery, last: _QueryState) -> _QueryState:
        """Ask for the values with the times and numbers of their samples, and then for times of ended series.

        Raises SourceError.
        """
        now = asyncio.get_running_loop().time()
        refused_at, refusal = last.refused_at, last.refusal
        if now - refused_at > UNCOUNTED_SECONDS:
            refusal = ""
        try:
            samples = await self._ask(client, query, counted=not refusal)
        except QueryRejected as error:
            samples, counted = await self._ask_for_less(client, query, error)
            refused_at, refusal = (now, str(error)) if not counted else (refused_at, refusal)
        answer = await _read(len(samples), lambda: Answer(query, samples, self._clock()))
        ended = await _read(len(samples), answer.ended)
        if ended:
            more = ended_question(query.inputs, query.labels, query.max_age, ended)
            found = await client.query(more, max_age=query.max_age, at=answer.evaluated_at)
            await _read(len(found), lambda: answer.add(found, are_live=False))
        are_counted = not refusal
        agreed = are_counted and (last.agreed or answer.counts(is_known=True).agree)
        ahead = self._ahead.setdefault(query, AheadDates())
        result = await _read(
            len(samples), lambda: build_result(answer, self._clock(), are_counted=are_counted and agreed, ahead=ahead)
        )
        return _QueryState(result, refused_at=refused_at, refusal=refusal, agreed=agreed)

    async def _ask(
        self, client: PrometheusClient, query: InstantQuery, *, dated: bool = True, counted: bool = True
    ) -> list[Sample]:
        text = question(query.text, query.inputs, query.labels, dated=dated, counted=counted)
        with self._metrics.source_duration.labels(f"prometheus/{query.server}").time():
            return await client.query(text, max_age=query.max_age)

    async def _ask_for_less(
        self, client: PrometheusClient, query: InstantQuery, error: QueryRejected
    ) -> tuple[list[Sample], bool]:
        """After a refusal: the samples without their numbers (False), or the error of the part that is refused."""
        await self._ask(client, query, dated=False, counted=False)  # where the query itself is refused, its own words
        if query.inputs.windows:
            try:
                return await self._ask(client, query, counted=False), False
            except QueryRejected as refusal:
                error = refusal
        fault = "the times of its samples cannot be had (name one metric in each selector)"
        raise QueryRejected(f"{fault}: {error}", public=f"{fault}: {error.public}") from error


async def _read(size: int, read: Callable[[], T]) -> T:
    """What a function makes of an answer of so many samples: in a thread where they are many."""
    return read() if size <= LARGE_SAMPLES else await asyncio.to_thread(read)
