"""A Prometheus whose answers a test writes, and a session with the API server that says what it is told."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.settings import NamedQuery, PrometheusServer
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import COUNT_LABEL, INPUT_LABEL

NOW = 1_767_268_800.0
SCRAPE_SECONDS = 15.0

Handler = Callable[[web.Request, dict[str, str]], Awaitable[web.StreamResponse]]


def vector(*rows: tuple[dict[str, str], str], at: float = NOW, **more: Any) -> web.Response:
    """A successful answer."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in rows]
    return raw({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def matrix(*rows: tuple[dict[str, str], list[float]]) -> web.Response:
    """A successful answer to a range selector: the times of its samples."""
    result = [{"metric": labels, "values": [[at, "1"] for at in times]} for labels, times in rows]
    return raw({"status": "success", "data": {"resultType": "matrix", "result": result}})


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


def asks_times(query: str) -> bool:
    """Whether a query is the adapter's own one for the times of samples."""
    return "timestamp(" in query


def values_of(query: str) -> str:
    """The part of a question that asks for values, without that for windows."""
    values, asks_windows, _ = query.partition("\n)\nor label_replace(")
    return values.removeprefix("(") if asks_windows else query


def full_windows(query: str, places: Iterable[Iterable[tuple[str, str]]]) -> Iterator[tuple[dict[str, str], str]]:
    """What a server answers of these windows, if the samples in them are SCRAPE_SECONDS apart."""
    windows = query.partition("\n)\nor ")[2].split("label_replace(")[1:]
    for number, window in enumerate(windows):
        found = re.search(r"\[([0-9]+)ms\]", window)
        full = int(found[1]) // int(1000 * SCRAPE_SECONDS) if found else 0
        for place in [[(COUNT_LABEL, str(full))]] if "count_values(" in window else places:
            yield {**dict(place), INPUT_LABEL: str(number)}, str(full)


def asks_scrapes(query: str) -> bool:
    """Whether a query is the adapter's own one for the distances between samples."""
    return query.endswith("ms]") and "\n" not in query


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
        self.arrived = asyncio.Event()
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
        """What was asked, the queries for sample times left out, and those for windows."""
        asked = (form["query"] for form in self.asked)
        return [values_of(query) for query in asked if not asks_times(query) and not asks_scrapes(query)]

    def settings(self, name: str = "main", **more: Any) -> PrometheusServer:
        return PrometheusServer(name=name, url=self.url, **more)

    async def by_rows(self, _request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        query = form["query"]
        if asks_scrapes(query):
            times = [self.sampled_at - SCRAPE_SECONDS * number for number in reversed(range(20))]
            return matrix(*(({**row, "instance": "x"}, times) for rows in self.rows.values() for row, _ in rows))
        labels = {
            tuple(sorted((k, v) for k, v in row.items() if k in {"namespace", "pod"}))
            for rows in self.rows.values()
            for row, _ in rows
        }
        if not asks_times(query):
            return vector(*self.rows.get(values_of(query), []), *full_windows(query, labels))
        count = query.count(INPUT_LABEL)
        numbers = [{INPUT_LABEL: str(number)} for number in range(count)] or [{}]
        return vector(*(({**dict(one), **number}, str(self.sampled_at)) for one in labels for number in numbers))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append(form)
        self.requests.append(request)
        self.arrived.set()
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
        async with asyncio.timeout(20):
            while not holds():
                self._news.clear()
                await self._news.wait()
