"""Usage from Prometheus: polls each distinct query once per interval, and dates its samples by the query's inputs."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from adapter.load.samples import QuerySamples
from adapter.load.spec import Query
from adapter.runtime.source_errors import QueryRejected
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.polling import AheadDates, Polled, Poller
from adapter.usage.prometheus_api import PrometheusClient, Sample
from adapter.usage.promql import ended_question, question
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from adapter.usage.query_results import Answer, NamedQueryResult, QueryResult, build_result


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
        self._clock, self._metrics = clock, metrics
        self._settings: dict[str, PrometheusServer] = {}
        self._clients: dict[str, PrometheusClient] = {}
        self._replaced = asyncio.Queue[PrometheusClient]()
        """Clients of servers whose settings changed, until they are closed."""
        self._wanted: frozenset[WorkloadQuery] = frozenset()
        self._resolved: dict[WorkloadQuery, InstantQuery | str] = {}
        self._users: dict[InstantQuery, set[WorkloadQuery]] = {}
        self._poller = Poller[InstantQuery, QueryResult](
            lambda: self._users, self._fetch, lambda query: on_change(frozenset(self._users.get(query, ()))),
            source=lambda query: f"prometheus/{query.server}", interval=lambda query: query.interval, metrics=metrics,
        )  # fmt: skip
        self.reload(servers, queries, inline_allowed=inline_allowed)

    # --- queries ---

    def reload(
        self, servers: Iterable[PrometheusServer], queries: Iterable[NamedQuery], *, inline_allowed: bool
    ) -> None:
        """Apply changed settings, those of servers with the next poll. Unchanged queries keep their results."""
        named = {server.name: server for server in servers}
        for name in [name for name, client in self._clients.items() if client.settings != named.get(name)]:
            self._replaced.put_nowait(self._clients.pop(name))
        self._settings |= named  # a query of a server that is gone may be about to be asked
        self._catalog = QueryCatalog(named, queries, inline_allowed=inline_allowed)
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
        self._users = {query: set() for _, query in self._shared if isinstance(query, InstantQuery)}
        for wanted, query in self._resolved.items():
            if isinstance(query, InstantQuery):
                self._users.setdefault(query, set()).add(wanted)
        self._poller.refresh()

    # --- results ---

    def samples(self, query: Query, namespace: str, workload: str) -> QuerySamples:
        """The samples of a workload from the last result; they keep their times, however old they get."""
        wanted = WorkloadQuery(query, namespace, workload)
        resolved = self._resolved.get(wanted) or self._catalog.resolve(wanted)
        if isinstance(resolved, str):
            return QuerySamples(error=resolved, undefined=True)
        state, result = self._poller.state(resolved), self._poller.state(resolved).result
        samples = result.of(namespace) if result else QuerySamples()
        return replace(
            samples,
            max_age=resolved.max_age,
            fetched_at=state.fetched_at,
            window=resolved.window,
            shortest=resolved.inputs.shortest,
            behind=resolved.inputs.behind,
            interval=resolved.interval,
            by_pod=result.by_pod if result else resolved.by_pod,
            error=_error(resolved, state) or samples.error,
        )

    def named_results(self) -> Iterator[NamedQueryResult]:
        """The last results of all named queries without variables."""
        for named, query in self._shared:
            state = self._poller.state(query) if isinstance(query, InstantQuery) else Polled()
            error, result = query if isinstance(query, str) else _error(query, state), state.result
            yield NamedQueryResult(
                name=named.name,
                by_pod=named.scope == "Pods",
                pod_label=named.pod_label,
                namespace_label=named.namespace_label,
                max_age=named.max_age_seconds,
                series=result.series if result else {},
                fetched_at=state.fetched_at,
                error=error or (result.faults.get("") if result else None),
            )

    # --- polling ---

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._poller.run())
                while True:  # polls in progress end at the client that they began with
                    tasks.create_task((await self._replaced.get()).close())
        finally:
            for client in self._clients.values():
                await client.close()
            while not self._replaced.empty():
                await self._replaced.get_nowait().close()
            self._clients = {}

    async def _fetch(self, query: InstantQuery, last: QueryResult | None, ahead: AheadDates) -> QueryResult:
        """Ask for the values with the times and numbers of their samples, and then for times of ended series.

        Answers are read in threads: 20,000 series take a tenth of a second.
        """
        if (client := self._clients.get(query.server)) is None:
            client = self._clients[query.server] = PrometheusClient(self._settings[query.server])
        async with client.slots:
            try:
                samples = await self._ask(client, query, question(query.text, query.inputs, query.labels))
            except QueryRejected as error:
                await self._ask(client, query, query.text)  # where the query itself is refused, its own words
                fault = "the times and numbers of its samples cannot be had (name one metric in each selector)"
                raise QueryRejected(f"{fault}: {error}", public=f"{fault}: {error.public}") from error
            now = self._clock()
            answer = await asyncio.to_thread(Answer, query, samples, now)
            if answer.ended:
                more = ended_question(query.inputs, query.labels, query.max_age, answer.ended)
                found = await client.query(more, max_age=query.max_age, at=answer.evaluated_at)
                await asyncio.to_thread(answer.add, found, are_live=False)
            ahead.begin(now)  # a poll that failed by now leaves the dates as they are
            return await asyncio.to_thread(build_result, answer, ahead, agreed=last is not None and last.agreed)

    async def _ask(self, client: PrometheusClient, query: InstantQuery, text: str) -> list[Sample]:
        with self._metrics.source_duration.labels(f"prometheus/{query.server}").time():
            return await client.query(text, max_age=query.max_age)


def _error(query: InstantQuery, state: Polled[QueryResult]) -> str | None:
    return f"Prometheus {query.server}: {state.error}" if state.error else None
