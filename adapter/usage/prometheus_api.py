"""Clients of one Prometheus server: instant queries, whose results are decoded in slices, and range queries."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec
from prometheus_client import Histogram

from adapter.runtime.answer_budget import MIB, Body, Limit
from adapter.runtime.backoff import Backoff, ProbeTurns
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, Uncut, array, pieces
from adapter.runtime.outbound import AT_ONCE, Client
from adapter.runtime.source_errors import (
    QueryRejected,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongAnswer,
)
from adapter.settings import PrometheusServer

CONCURRENT_SLOW_QUERIES = AT_ONCE - 2
"""Slow queries in progress at a time; the other slots stay free for fast queries."""

MOST_POINTS = 11_000
"""Points of a series that Prometheus answers to one range query."""
SHORTEST_RANGE_TIMEOUT = 60.0
"""Seconds. A range query reads much more than the instant queries that the settings' timeout is for."""
RANGE_ATTEMPTS = 5

_SHOWN = 200
_SERVER_ERRORS = {"timeout", "canceled", "internal", "unavailable", "not_found"}
"""Error types that are faults of the server, not of the query."""

_ERROR_TYPES = _SERVER_ERRORS | {"bad_data", "execution", "not_acceptable"}
"""All error types of Prometheus. They disclose nothing about the server, so anyone may see them."""

_ERROR_BODY_BYTES = 64 * 1024
_OK = range(200, 300)
_CLIENT_ERRORS = range(400, 500)
_TOO_MANY_REQUESTS = 429


class Sample(msgspec.Struct, frozen=True, gc=False):
    """An element of an instant vector: its labels as JSON, the time of the evaluation (epoch seconds), value as text.

    An element of a matrix has `values` in its place. The labels are not decoded: a series has the same text in each
    answer, so its reader recognizes it by that.
    """

    metric: msgspec.Raw
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] | None = None


OnSamples = Callable[[list[Sample]], None]
"""Receives the samples of an answer in several parts; raises msgspec.MsgspecError for labels that are none."""


class RangeSeries(NamedTuple):
    """One series of a range: its labels, and its points (epoch seconds, value as text) in order of time."""

    labels: Mapping[str, str]
    points: list[tuple[float, str]]


class _RangeSeries(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None


_RESPONSE = Decoder(_Response)
_MANY = Decoder(list[Sample])
_SCALAR = Decoder(tuple[float, str])
_MATRIX = Decoder(list[_RangeSeries])
_RESULT = array("result")


async def read_samples(body: Body, on_samples: OnSamples, slices: Slices, *, matrix: bool = False) -> None:
    """Decode a successful response and pass on its samples; a scalar is one sample without labels.

    `matrix`: it is that of a range selector. It consumes the body. Raises QueryRejected for a fault of the query,
    SourceFailing for a fault of the server and for warnings (the result may be partial), and WrongAnswer for a body
    that is nothing of these; the caller drops the samples that it received before.
    """
    beginning = _beginning(body.start(_SHOWN))
    try:
        for piece in pieces(body, _RESULT):
            if not piece.is_last:
                samples = _MANY.decode(piece.text)
            else:
                data = _decode_envelope(piece.text, {"matrix"} if matrix else {"vector", "scalar"})
                if data.result_type == "scalar":
                    samples = [Sample(msgspec.Raw(b"{}"), _SCALAR.decode(data.result))]
                else:
                    samples = _MANY.decode(data.result)
            if None in [sample.values if matrix else sample.value for sample in samples]:
                histogram = "the query answers a native histogram; take a number from it, as histogram_quantile does"
                raise QueryRejected(histogram, public=histogram)
            on_samples(samples)
            del samples
            await slices.breathe()
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(f"the answer is not what Prometheus answers: {error}: {beginning}") from error


def _decode_envelope(text: bytes | bytearray, kinds: Collection[str]) -> _Data:
    """The data of a response of one of these kinds.

    Raises msgspec.MsgspecError, QueryRejected for a fault of the query, and SourceFailing for one of the server.
    """
    response = _RESPONSE.decode(text)
    if response.status != "success" or response.data is None:
        raise _api_error(response)
    if response.warnings:
        raise SourceFailing(
            f"answers with a warning: {response.warnings[0][:_SHOWN]}",
            public="answers with a warning, so a part of the answer may be missing",
        )
    if response.data.result_type not in kinds:
        kind = response.data.result_type[:_SHOWN]
        raise QueryRejected(
            f"the query answers a {kind}; write one that answers an instant vector",
            public="the query does not answer an instant vector; write one that does",
        )
    return response.data


def _api_error(response: _Response) -> SourceError:
    kind = SourceFailing if response.error_type in _SERVER_ERRORS else QueryRejected
    named = response.error_type if response.error_type in _ERROR_TYPES else ""
    return kind(
        f"{response.error_type[:_SHOWN] or 'error'}: {response.error[:_SHOWN] or 'no message'}",
        public=f"{kind.summary} ({named})" if named else "",
    )


def error_from_response(status: int, body: bytes) -> SourceError:
    """The error for a response with a status outside 2xx, with the server's message if it has one."""
    try:
        error: SourceError = _api_error(_RESPONSE.decode(body))
    except msgspec.MsgspecError:
        error = QueryRejected(_beginning(body) or "no message")
    if status in _CLIENT_ERRORS and status != _TOO_MANY_REQUESTS:
        return QueryRejected(f"HTTP {status}: {error}", public=f"HTTP {status}: {error.public}")
    if status >= _CLIENT_ERRORS.start:
        return SourceFailing(f"HTTP {status}: {error}", public=f"HTTP {status}")
    return QueryRejected(
        f"HTTP {status}: a redirect or an empty answer; name the address that answers itself",
        public=f"HTTP {status}: a redirect or an empty answer",
    )


def _beginning(body: bytes) -> str:
    """The beginning of a body on one line, for the message of an error."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())


class _ApiClient:
    """Sends queries to one path of a server."""

    def __init__(self, settings: PrometheusServer, path: str, timeout: float) -> None:
        self._url = f"{settings.url.rstrip('/')}/api/v1/{path}"
        limit = Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of Prometheus server {settings.name}")
        self._client = Client(settings.access, timeout=timeout, source=f"prometheus/{settings.name}", limit=limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class PrometheusClient(_ApiClient):
    """Sends instant queries to one server. Create it in a running event loop."""

    def __init__(self, settings: PrometheusServer) -> None:
        super().__init__(settings, "query", settings.timeout_seconds)
        self.settings = settings
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.slow_slots = asyncio.Semaphore(CONCURRENT_SLOW_QUERIES)
        self.probe_turns = ProbeTurns()

    async def query(
        self,
        text: str,
        on_samples: OnSamples,
        slices: Slices,
        *,
        max_age: float,
        at: float | None = None,
        duration: Histogram | None = None,
        matrix: bool = False,
    ) -> None:
        """Send an instant query and pass its samples to `on_samples`; `at` is its time (default: the server's now).

        Instant selectors find no sample older than `max_age` seconds. `duration` observes the seconds until the
        response or the failure. `matrix`: it is a range selector. Raises SourceError; the caller drops the samples that
        it received before.
        """
        form = {"query": text, "lookback_delta": f"{max_age:.3f}", "timeout": f"{self.settings.timeout_seconds:.3f}"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            async with contextlib.AsyncExitStack() as stack:
                with duration.time() if duration is not None else contextlib.nullcontext():
                    response = await stack.enter_async_context(self._client.answer("POST", self._url, data=form))
                if response.status not in _OK:
                    raise error_from_response(response.status, response.body.start(_ERROR_BODY_BYTES))
                await read_samples(response.body, on_samples, slices, matrix=matrix)
        except SourceError as error:
            raise error.with_context(self._url) from error


class RangeClient(_ApiClient):
    """Sends range queries to one server (Thanos and Mimir answer them too), and repeats those that the server fails.

    Create it in a running event loop.
    """

    def __init__(self, settings: PrometheusServer) -> None:
        self._timeout = max(settings.timeout_seconds, SHORTEST_RANGE_TIMEOUT)
        self._backoff = Backoff()
        super().__init__(settings, "query_range", self._timeout + 5)

    async def query(self, text: str, start: float, end: float, step: float) -> list[RangeSeries]:
        """The series of a query at start, start + step, … end (epoch seconds; at most MOST_POINTS of them).

        Raises SourceError: at once where the query is refused, after several attempts where the server fails.
        """
        form = {
            "query": text,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:.3f}",
            "timeout": f"{self._timeout:.0f}s",
        }
        for left in reversed(range(RANGE_ATTEMPTS)):
            try:
                async with self._client.answer("POST", self._url, data=form) as response:
                    if response.status not in _OK:
                        raise error_from_response(response.status, response.body.start(_ERROR_BODY_BYTES))
                    body = response.body.whole()
                    try:
                        matrix = _MATRIX.decode(_decode_envelope(body, {"matrix"}).result)
                    except msgspec.MsgspecError as error:
                        fault = f"the answer is not what Prometheus answers: {error}: {_beginning(body)}"
                        raise WrongAnswer(fault) from error
            except (SourceUnreachable, SourceFailing) as error:
                if not left:
                    raise error.with_context(self._url, f"{RANGE_ATTEMPTS} attempts failed") from error
                await asyncio.sleep(self._backoff.next())
            except SourceError as error:
                raise error.with_context(self._url) from error
            else:
                self._backoff.reset()
                return [RangeSeries(series.metric, series.values or []) for series in matrix]
        raise AssertionError("the last attempt returns or raises")
