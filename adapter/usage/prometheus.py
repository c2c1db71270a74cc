"""Usage from Prometheus: every distinct query is asked once a cycle, whoever needs it, and dated by its inputs."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import structlog

from adapter.load.samples import QuerySamples
from adapter.load.spec import Query
from adapter.runtime.log_once import LogOnce
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import QueryRejected, SourceError
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.circuit_breaker import pause
from adapter.usage.promql import Inputs, dating, inputs
from adapter.usage.query_catalog import Catalog, Question, Wanted
from adapter.usage.query_results import Answer, Dates, answer, release
from adapter.usage.series import SeriesList
from adapter.usage.server import Server
from adapter.usage.wire import Sample

SLOW_SECONDS = 1.0
"""A question that took longer the last time is among those that cannot take every turn of their server."""

_JITTER = 0.1

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQueryResult:
    """A named query that needs no policy, as last answered: its series by namespace (empty: those without the label).

    `error` says why there is no answer, or why the last one is still the one before, which counts until it is too old;
    ages and times in seconds.
    """

    name: str
    by_pod: bool
    pod_label: str
    namespace_label: str
    max_age: float
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    fetched_at: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a question. `cause`: why the last poll gave no answer, as policies may say it."""

    answer: Answer | None = None
    cause: str = ""
    unanswered: bool = False
    slow: bool = False


_NOTHING = _Known()


class Prometheus:
    """Asks any number of Prometheus servers what policies and named queries need, and keeps the last answers.

    `on_change` is called with those who wanted a query whose answer, or the cause of its failure, is not what it was
    (nobody may want it: named queries without variables are asked all the same). `clock` gives epoch seconds by the
    API server's time; sample times are the Prometheus servers' own.
    """

    def __init__(
        self,
        servers: Iterable[PrometheusServer],
        queries: Iterable[NamedQuery],
        *,
        inline_allowed: bool,
        on_change: Callable[[frozenset[Wanted]], None],
        clock: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._servers: dict[str, Server] = {}
        self._known: dict[Question, _Known] = {}
        self._log_once = LogOnce()
        """What was logged of the questions that fail, with the servers' own words."""
        self._pollers: dict[Question, asyncio.Task[None]] = {}
        self._wanted: frozenset[Wanted] = frozenset()
        self._questions: dict[Wanted, Question | str] = {}
        self._users: dict[Question, set[Wanted]] = {}
        self._shared: dict[str, Question | str] = {}
        self._look = asyncio.Event()
        self.reload(servers, queries, inline_allowed=inline_allowed)

    # --- what is asked ---

    def reload(
        self, servers: Iterable[PrometheusServer], queries: Iterable[NamedQuery], *, inline_allowed: bool
    ) -> None:
        """Take over changed settings. Answers to questions that stay the same are kept."""
        self._settings = {server.name: server for server in servers}
        self._catalog = Catalog(self._settings, queries, inline_allowed=inline_allowed)
        self._shared = self._catalog.shared()
        self._resolve()

    def want(self, wanted: Iterable[Wanted | tuple[Query, str, str]]) -> None:
        """What the policies need from now on: query, namespace, and the workload's name, of each."""
        found = frozenset(Wanted(*one) for one in wanted)
        if found != self._wanted:
            self._wanted = found
            self._resolve()

    def _resolve(self) -> None:
        self._questions = {wanted: self._catalog.question(wanted) for wanted in self._wanted}
        self._users = {question: set() for question in self._shared.values() if isinstance(question, Question)}
        for wanted, question in self._questions.items():
            if isinstance(question, Question):
                self._users.setdefault(question, set()).add(wanted)
        self._look.set()

    # --- what is known ---

    def samples(self, query: Query, namespace: str, workload: str) -> QuerySamples:
        """The last answer as far as it concerns this service; samples keep their true times, however old they get."""
        wanted = Wanted(query, namespace, workload)
        question = self._questions.get(wanted) or self._catalog.question(wanted)
        if isinstance(question, str):
            return QuerySamples(max_age=self._catalog.max_age(query), error=question)
        known = self._known.get(question, _NOTHING)
        nothing = QuerySamples(max_age=question.max_age)
        found = known.answer.of(namespace, question.max_age) if known.answer else nothing
        found = replace(found, window=question.window, by_pod=_answers_pods(question, known))
        return replace(found, error=self._sentence(question, known)) if known.cause else found

    def series(self, name: str) -> NamedQueryResult | None:
        """The last answer to a named query without variables; None where there is no such query."""
        question, named = self._shared.get(name), self._catalog.named(name)
        if question is None or named is None:
            return None
        known = self._known.get(question, _NOTHING) if isinstance(question, Question) else _Known(cause=question)
        found = known.answer
        fault = found.faults.get("") if found else None
        return NamedQueryResult(
            name=name,
            by_pod=named.scope == "Pods",
            pod_label=named.pod_label,
            namespace_label=named.namespace_label,
            max_age=named.max_age_seconds,
            series=found.series if found else {},
            fetched_at=found.fetched_at if found else None,
            error=_cause(question, known) or fault,
        )

    def named(self) -> tuple[str, ...]:
        """The names of the queries that `series` knows."""
        return tuple(self._shared)

    def _sentence(self, question: Question | str, known: _Known) -> str | None:
        cause = _cause(question, known)
        if isinstance(question, str) or cause is None:
            return cause
        when = "no answer so far"
        if known.answer is not None:
            when = f"last answer {max(0.0, self._clock() - known.answer.fetched_at):.0f} s ago"
        return f"{cause} ({when})"

    # --- asking ---

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._tend_servers()
                    self._tend_pollers(group)
                    await self._look.wait()
                    self._look.clear()
        finally:
            for name in list(self._servers):
                await self._retire(name)

    async def _tend_servers(self) -> None:
        """Make clients for new and changed servers; who waited for a changed one asks anew."""
        for name in [name for name, server in self._servers.items() if self._settings.get(name) != server.settings]:
            await self._retire(name)
        for name, settings in self._settings.items():
            if name not in self._servers:
                self._servers[name] = Server(settings)

    async def _retire(self, name: str) -> None:
        tasks = [self._pollers.pop(question) for question in list(self._pollers) if question.server == name]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._servers.pop(name).close()

    def _tend_pollers(self, group: asyncio.TaskGroup) -> None:
        for question in self._users.keys() - self._pollers.keys():
            if question.server in self._servers:  # settings that came meanwhile have their turn next
                self._pollers[question] = group.create_task(self._poll(question, group))
        for question in self._pollers.keys() - self._users.keys():
            self._pollers.pop(question).cancel()
        for question in self._known.keys() - self._users.keys():
            del self._known[question]
            self._log_once.clear(question)

    async def _poll(self, question: Question, group: asyncio.TaskGroup) -> None:
        """Ask at once, then after a random part of the interval, then in the rhythm that this gave.

        A question that its server left unanswered keeps the interval, and then waits for its turn to probe.
        """
        share = random.random()  # noqa: S311  spreads load, guards nothing
        loop, outage = asyncio.get_running_loop(), self._servers[question.server].outage
        while True:
            began = loop.time()
            known = await self._asked(question)
            answers, unanswered = outage.answers, known.unanswered
            before = self._known.get(question, _NOTHING).answer
            if before is not None and before is not known.answer and (large := before.large()):
                group.create_task(release(large))
                del large
            del before
            self._keep(question, known)
            del known
            if unanswered:
                await asyncio.sleep(pause(question.interval * min(share, 1.0), loop.time() - began))
                await outage.turn(answers, question.interval)
            else:
                await asyncio.sleep(question.interval * share)
            share = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  as above

    async def _asked(self, question: Question) -> _Known:
        last = self._known.get(question, _NOTHING)
        source, server = f"prometheus/{question.server}", self._servers[question.server]
        loop = asyncio.get_running_loop()
        async with server.slow_turn if last.slow else nullcontext(), server.turn:
            began = loop.time()
            try:
                found = await self._answer(question, source)
            except SourceError as error:
                self._failed(source, question, error)
                if rejected := isinstance(error, QueryRejected):
                    server.outage.answered()
                slow = loop.time() - began > SLOW_SECONDS
                return replace(last, cause=error.public, unanswered=not rejected, slow=slow)
        server.outage.answered()
        self._log_once.clear(question)
        self._metrics.source_up.labels(source).set(1)
        self._metrics.source_success.labels(source).set(found.fetched_at)
        return _Known(found, slow=loop.time() - began > SLOW_SECONDS)

    async def _answer(self, question: Question, source: str) -> Answer:
        server = self._servers[question.server]
        slices = Slices()
        read = inputs(question.text)
        duration = self._metrics.source_duration.labels(source)
        found: list[Sample] = []
        await server.read(question.text, found.append, slices, max_age=question.max_age, duration=duration)
        dates = Dates(read, question, found[0].at if found else self._clock())
        if found and read.selectors:
            await self._date(dates, server, question, read, found[0].at, slices)
        before = self._known.get(question, _NOTHING).answer
        made = await answer(question, found, dates, self._clock(), slices, before=before)
        await dates.clear(slices)
        return made

    async def _date(
        self, dates: Dates, server: Server, question: Question, read: Inputs, evaluated_at: float, slices: Slices
    ) -> None:
        """Learn when the inputs were sampled, as they stood at the moment of the evaluation."""
        asked = dating(read.selectors, question.labels, question.max_age)
        try:
            await server.read(asked, dates.add, slices, max_age=question.max_age, at=evaluated_at)
        except QueryRejected as error:
            times = "the times of its samples cannot be had (name one metric in each selector)"
            raise QueryRejected(f"{times}: {error}", public=f"{times}: {error.public}") from error

    def _failed(self, source: str, question: Question, error: SourceError) -> None:
        self._metrics.source_up.labels(source).set(0)
        self._metrics.source_errors.labels(source, error.reason).inc()
        if self._log_once.is_new(str(error), question):
            _log.warning("query failed", source=source, query=question.text, error=str(error))

    def _keep(self, question: Question, known: _Known) -> None:
        last = self._known.get(question)
        self._known[question] = known
        same = last is not None and last.cause == known.cause
        if not same or (known.answer is not None and not known.answer.same(last.answer if last else None)):
            self._on_change(frozenset(self._users.get(question, ())))


def _cause(question: Question | str, known: _Known) -> str | None:
    """Why the last poll gave no answer, None where it did."""
    if isinstance(question, str) or not known.cause:
        return known.cause or None
    return f"Prometheus {question.server}: {known.cause}"


def _answers_pods(question: Question, known: _Known) -> bool | None:
    """Whether it answers a value for each pod, by its settings or else by its last answer."""
    if question.by_pod is not None or known.answer is None or not known.answer.counts:
        return question.by_pod
    return known.answer.by_pod
