"""Client of one Prometheus server: sends instant queries to `/api/v1/query`, and decodes the results in slices."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
from prometheus_client import Histogram

from adapter.runtime.answer_budget import MIB, Body, Limit
from adapter.runtime.backoff import ProbeTurns
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, Uncut, array, pieces
from adapter.runtime.outbound import AT_ONCE, Client
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer
from adapter.settings import PrometheusServer

CONCURRENT_SLOW_QUERIES = AT_ONCE - 2
"""Slow queries in progress at a time; the other slots stay free for fast queries."""

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
_RESULT = array("result")


async def read_samples(body: Body, on_samples: OnSamples, slices: Slices, *, matrix: bool = False) -> None:
    """Decode a successful response and pass on its samples; a scalar is one sample without labels.

    `matrix`: it is that of a range selector. It consumes the body. Raises QueryRejected for a fault of the query,
    SourceFailing for a fault of the server and for warnings (the result may be partial), and WrongAnswer for a body
    that is nothing of these; the caller drops the samples that it received before.
    """
    beginning = response_beginning(body.start(_SHOWN))
    try:
        for piece in pieces(body, _RESULT):
            samples = _last(piece.text, matrix) if piece.is_last else _MANY.decode(piece.text)
            if None in [sample.values if matrix else sample.value for sample in samples]:
                histogram = "the query answers a native histogram; take a number from it, as histogram_quantile does"
                raise QueryRejected(histogram, public=histogram)
            on_samples(samples)
            del samples
            await slices.breathe()
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongAnswer(f"the answer is not what Prometheus answers: {error}: {beginning}") from error


def _last(text: bytes | bytearray, matrix: bool) -> list[Sample]:
    """Decode the last piece of a response, with the envelope, or a whole response."""
    data = decode_envelope(text, *(("matrix",) if matrix else ("vector", "scalar")))
    if data.result_type == "scalar":
        return [Sample(msgspec.Raw(b"{}"), _SCALAR.decode(data.result))]
    return _MANY.decode(data.result)


def decode_envelope(text: bytes | bytearray, *kinds: str) -> _Data:
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
    except (msgspec.MsgspecError, UnicodeDecodeError):
        error = QueryRejected(response_beginning(body) or "no message")
    if status in _CLIENT_ERRORS and status != _TOO_MANY_REQUESTS:
        return QueryRejected(f"HTTP {status}: {error}", public=f"HTTP {status}: {error.public}")
    if status >= _CLIENT_ERRORS.start:
        return SourceFailing(f"HTTP {status}: {error}", public=f"HTTP {status}")
    return QueryRejected(
        f"HTTP {status}: a redirect or an empty answer; name the address that answers itself",
        public=f"HTTP {status}: a redirect or an empty answer",
    )


def response_beginning(body: bytes) -> str:
    """The beginning of a body on one line, for the message of an error."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())


class PrometheusClient:
    """Sends instant queries to one server. Create it in a running event loop."""

    def __init__(self, settings: PrometheusServer) -> None:
        self.settings = settings
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.slow_slots = asyncio.Semaphore(CONCURRENT_SLOW_QUERIES)
        self.probe_turns = ProbeTurns()
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            source=f"prometheus/{settings.name}",
            limit=Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of Prometheus server {settings.name}"),
        )

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

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
