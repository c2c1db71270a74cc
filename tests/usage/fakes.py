"""A Prometheus whose answers a test writes, and a session with the API server that says what it is told."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.load.samples import QuerySamples
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import INPUT_LABEL
from adapter.usage.query_catalog import WorkloadQuery
from adapter.usage.query_results import NamedQueryResult

NOW = 1_767_268_800.0
SCRAPE_SECONDS = 15.0

Handler = Callable[[web.Request, dict[str, str]], Awaitable[web.StreamResponse]]


def vector(*rows: tuple[dict[str, str], str], at: float = NOW, **more: Any) -> web.Response:
    """A successful answer."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in rows]
    return raw({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def raw(document: Any, status: int = 200) -> web.Response:
    """JSON as Go writes it: no spaces."""
    return web.Response(
        body=json.dumps(document, separators=(",", ":")).encode(), status=status, content_type="application/json"
    )


def always(answer: Callable[[], web.Response]) -> Handler:
    """A handler that answers the same whatever it is asked."""

    async def handler(_request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
        return answer()

    return handler


def values_of(query: str) -> str:
    """The expression of a question, without what is asked of its inputs; empty where it asks for nothing else."""
    if query.startswith("label_replace(max by"):
        return ""
    expression, closed, _ = query.rpartition("\n)")
    while (more := f"\n)\nor on ({INPUT_LABEL}) label_replace(") in expression:
        expression, closed, _ = expression.rpartition(more)
    return expression.removeprefix("vector").removeprefix("(") if closed else query


def inputs_of(query: str, places: Iterable[Mapping[str, str]], at: float) -> Iterator[tuple[dict[str, str], str]]:
    """What a server answers of the samples of these places, the newest from `at`, SCRAPE_SECONDS apart."""
    for mark in re.findall(r'"(time[0-9]+|count[0-9]+)", "", ""', query):
        window = re.search(rf"\[([0-9]+)ms\][^\n]*{mark}", query)
        full = int(window[1]) // int(1000 * SCRAPE_SECONDS) if window else 0
        for place in places:
            yield {**place, INPUT_LABEL: mark}, str(at if mark.startswith("time") else full)


class PlainSample(NamedTuple):
    """A sample with decoded labels, the time of its evaluation, and its value as text."""

    labels: dict[str, str]
    at: float
    value: str


def plain(samples: Iterable[Sample]) -> list[PlainSample]:
    """Samples as they were read, in a form to compare."""
    return [PlainSample(json.loads(bytes(each.metric)), *each.value) for each in samples if each.value]


def raw_sample(labels: Mapping[str, str], at: float, value: str) -> Sample:
    """A sample as it is read from an answer."""
    return Sample(msgspec.Raw(json.dumps(dict(labels)).encode()), (at, value))


class FakePrometheus:
    """Answers /api/v1/query by what stands in `rows` (labels and value by expression), dated `sampled_at`.

    `asked` are the forms that arrived. `handler` takes the place of all that.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[dict[str, str], str]]] = {}
        self.sampled_at = NOW - 5
        self.asked: list[dict[str, str]] = []
        self.requests: list[web.Request] = []
        self.handler: Handler = self.by_rows
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self.server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self.server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    @property
    def questions(self) -> list[str]:
        """The expressions that were asked."""
        return [values_of(form["query"]) for form in self.asked]

    def settings(self, name: str = "main", **more: Any) -> PrometheusServer:
        return PrometheusServer(name=name, url=self.url, **more)

    async def by_rows(self, _request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        rows = self.rows.get(values_of(form["query"]), [])
        places = [{k: v for k, v in row.items() if k in {"namespace", "pod"}} for row, _ in rows]
        return vector(*rows, *inputs_of(form["query"], places, self.sampled_at), at=max(NOW, self.sampled_at))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append(form)
        self.requests.append(request)
        return await self.handler(request, form)


def named(name: str, query: str, **more: Any) -> NamedQuery:
    """A named query of the server `main`."""
    return NamedQuery(**{"name": name, "server": "main", "query": query, **more})


class Changes:
    """Collects calls, and lets a test wait for one that it is after."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._news = asyncio.Event()

    def __call__(self, *what: Any) -> None:
        self.seen.append(what[0] if len(what) == 1 else what)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once it holds; looked at after each call."""
        async with asyncio.timeout(40):
            while not holds():
                self._news.clear()
                await self._news.wait()


T = TypeVar("T")


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], given: T) -> AsyncIterator[T]:
    """Gives the block this, and runs the work beside it."""
    task = asyncio.create_task(work)
    try:
        yield given
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class Source:
    """A `Prometheus`; its clock is `now`, by default the `time` that a test sets. `news` is called with each change and
    each answer, also where nothing has changed.
    """

    def __init__(
        self,
        *servers: PrometheusServer,
        queries: Iterable[NamedQuery] = (),
        inline: bool = False,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.time = NOW
        self._now = now or (lambda: self.time)
        self.changes, self.news = Changes(), Changes()
        self.metrics = Metrics()
        self.source = Prometheus(
            servers,
            queries,
            inline_allowed=inline,
            on_change=self._changed,
            clock=self._clock,
            metrics=self.metrics,
        )

    def _changed(self, users: frozenset[WorkloadQuery]) -> None:
        self.changes(users)
        self.news()

    def _clock(self) -> float:
        self.news()
        return self._now()

    def running(self) -> AbstractAsyncContextManager[Self]:
        return beside(self.source.run(), self)

    def of(self, wanted: WorkloadQuery) -> QuerySamples:
        return self.source.samples(*wanted)

    def named(self, name: str) -> NamedQueryResult:
        return {found.name: found for found in self.source.named_results()}[name]

    async def change(self, number: int = 1) -> None:
        await self.changes.until(lambda: len(self.changes.seen) >= number)

    def value(self, name: str, **labels: str) -> float | None:
        labels = {"source": "prometheus/main", **labels}
        return self.metrics.registry.get_sample_value(f"effective_load_{name}", labels)
