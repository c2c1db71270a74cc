"""Usage from Prometheus: polls each distinct query once per interval, and dates its samples by the query's inputs."""

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import structlog
from prometheus_client import Histogram

from adapter.load.samples import QuerySamples
from adapter.load.spec import Query
from adapter.runtime.backoff import LogOnce
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import QueryRejected, SourceError
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.ahead_dates import AheadDates
from adapter.usage.polling import PollGroup, interval_shares, retry_delay, with_last_answer
from adapter.usage.prometheus_api import PrometheusClient
from adapter.usage.promql import parse_inputs
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from adapter.usage.query_results import QueryResult, Vector, build_result, new_table
from adapter.usage.sample_times import SampleTimes
from adapter.usage.series import NamedQueryResult, SeriesTable
from adapter.usage.windows import Windows

SLOW_QUERY_SECONDS = 1.0
"""A query whose last poll took longer is slow; slow queries share fewer slots of their server."""

POLLS_FOR_ALL_TIMES = 20
"""A query whose live series did not date its values asks for all times in so many polls, then tries again."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _QueryState:
    """The last result of a query. `cause`: why the last poll failed, in words that policies may show."""

    result: QueryResult | None = None
    cause: str = ""
    unanswered: bool = False
    slow: bool = False


_NOTHING = _QueryState()


class Prometheus:
    """Polls any number of Prometheus servers for policies and named queries, and keeps the last results.

    `on_change` is called with the users of a query when its result, or the cause of its failure, changed; named queries
    without variables are polled without users as well. `clock` returns epoch seconds; sample
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
        self._groups: dict[tuple[str, float], PollGroup[WorkloadQuery]] = {}
        """The groups of named queries without variables, by server and interval."""
        self._all_times: dict[InstantQuery, int] = {}
        """How often each query will still ask for the times of all series at once."""
        self._windows: dict[InstantQuery, Windows] = {}
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
        self._resolve()

    def set_queries(self, wanted: Iterable[WorkloadQuery]) -> None:
        """Replace the queries that policies need."""
        latest = frozenset(wanted)
        if latest != self._wanted:
            self._wanted = latest
            self._resolve()

    def _resolve(self) -> None:
        self._resolved = {wanted: self._catalog.resolve(wanted) for wanted in self._wanted}
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
        if by_pod is None and state.result is not None and state.result.counts:
            by_pod = state.result.by_pod
        nothing = QuerySamples(max_age=resolved.max_age, interval=resolved.interval)
        samples = state.result.of(namespace, resolved.max_age) if state.result else nothing
        fetched_at = state.result.fetched_at if state.result else None
        return replace(
            samples,
            window=resolved.window,
            behind=resolved.behind,
            interval=resolved.interval,
            by_pod=by_pod,
            error=with_last_answer(state.cause, fetched_at) if state.cause else samples.error,
        )

    def windows(self, query: InstantQuery) -> Windows:
        """What is known of a query's windows."""
        return self._windows.get(query) or Windows(query)

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
                    for by_query in (self._states, self._all_times, self._windows, self._ahead):
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
                    self._states[query] = replace(state, unanswered=True)
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
        """Poll a query at its interval; while its server does not respond, as the circuit breaker allows."""
        loop, probe_turns = asyncio.get_running_loop(), self._clients[query.server].probe_turns
        group = PollGroup(self._on_change)
        if query in self._shared.values():
            # Named queries without variables are few, and policies use several: those of one interval are one group.
            group = self._groups.setdefault((query.server, query.interval), group)
        for share in interval_shares():
            began = loop.time()
            with group.poll():
                state = await self._fetch(query)
                responses = probe_turns.responses
                last, self._states[query] = self._states.get(query), state
                same = last is not None and last.cause == state.cause
                if not same or (state.result is not None and not state.result.same(last.result if last else None)):
                    group.note(self._users.get(query, ()))
            if state.unanswered:
                await asyncio.sleep(retry_delay(query.interval * min(share, 1.0), loop.time() - began))
                await probe_turns.wait(responses, query.interval)
            elif state.slow:
                await asyncio.sleep(query.interval * share)
            else:
                await group.pause(query.interval * share)

    async def _fetch(self, query: InstantQuery) -> _QueryState:
        last = self._states.get(query, _NOTHING)
        source, client = f"prometheus/{query.server}", self._clients[query.server]
        loop = asyncio.get_running_loop()
        async with client.slow_slots if last.slow else nullcontext(), client.slots:
            began = loop.time()
            try:
                result = await self._query(client, query, source)
            except SourceError as error:
                self._metrics.source_up.labels(source).set(0)
                self._metrics.source_errors.labels(source, error.reason).inc()
                if self._log_once.is_new(str(error), query):
                    _log.warning("query_failed", source=source, query=query.text, error=str(error))
                if rejected := isinstance(error, QueryRejected):
                    client.probe_turns.close()
                slow = loop.time() - began > SLOW_QUERY_SECONDS
                return replace(
                    last, cause=f"Prometheus {query.server}: {error.public}", unanswered=not rejected, slow=slow
                )
        client.probe_turns.close()
        self._log_once.clear(query)
        self._metrics.source_up.labels(source).set(1)
        self._metrics.source_success.labels(source).set(result.fetched_at)
        return _QueryState(result, slow=loop.time() - began > SLOW_QUERY_SECONDS)

    async def _query(self, client: PrometheusClient, query: InstantQuery, source: str) -> QueryResult:
        """Send the query, then the query for the times of its inputs at the same moment. Raises SourceError."""
        slices = Slices()
        duration = self._metrics.source_duration.labels(source)
        last = self._states.get(query, _NOTHING).result
        table = last.table if last is not None and not last.is_outgrown else new_table(query)
        windows = self._windows.setdefault(query, Windows(query))
        vector = await self._values(client, query, windows, table, slices, duration)
        inputs = parse_inputs(query.text)
        times = SampleTimes(inputs, table, self._clock() if vector.at is None else vector.at)
        ask_at = functools.partial(client.query, slices=slices, max_age=query.max_age, at=times.evaluated_at)
        if inputs.selectors and vector.sets:
            left = self._all_times.get(query, 0)
            ask = functools.partial(ask_at, on_samples=times.add)
            try:
                named = await times.fetch(ask, query, vector.sets, slices, all_at_once=left > 0)
            except QueryRejected as error:
                fault = "the times of its samples cannot be had (name one metric in each selector)"
                raise QueryRejected(f"{fault}: {error}", public=f"{fault}: {error.public}") from error
            self._all_times[query] = left - 1 if left else 0 if named else POLLS_FOR_ALL_TIMES
        try:
            await windows.learn(functools.partial(ask_at, matrix=True), times.evaluated_at)
        except QueryRejected as error:
            windows.refuse(error)
        if windows.refusal is not None and self._log_once.is_new(str(windows.refusal), windows):
            _log.warning("query_windows_unknown", source=source, query=query.text, error=str(windows.refusal))
        ahead = self._ahead.setdefault(query, AheadDates())
        return await build_result(query, vector, times, self._clock(), slices, windows=windows, last=last, ahead=ahead)

    async def _values(
        self,
        client: PrometheusClient,
        query: InstantQuery,
        windows: Windows,
        table: SeriesTable,
        slices: Slices,
        duration: Histogram,
    ) -> Vector:
        """Ask for the values, and in the same question how full their windows are. Raises SourceError."""
        windows.begin()
        while True:
            vector, text = Vector(table, windows), windows.question()
            try:
                await client.query(text, vector.add, slices, max_age=query.max_age, duration=duration)
            except QueryRejected as error:
                if not windows.refuse(error):
                    raise
            else:
                if windows.is_answered():
                    await vector.separate(slices)
                    return vector
