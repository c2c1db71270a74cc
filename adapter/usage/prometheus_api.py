"""Clients of one Prometheus server: what it answers, and the sentences of its errors."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from adapter.runtime.decoding import Decoder
from adapter.runtime.http import AT_ONCE, MIB, Client
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer
from adapter.settings import PrometheusServer

T = TypeVar("T")

_SHOWN = 200
_SERVER_ERRORS = {"timeout", "canceled", "internal", "unavailable", "not_found"}
"""Error types that are faults of the server, not of the query."""
_ERROR_TYPES = _SERVER_ERRORS | {"bad_data", "execution", "not_acceptable"}
"""All error types of Prometheus. They disclose nothing about the server, so anyone may see them."""
_OK = range(200, 300)
_OWN_TROUBLE, _TOO_MANY_REQUESTS = 500, 429


class Sample(msgspec.Struct, frozen=True, gc=False):
    """An element of an instant vector: its labels as JSON, the time of the evaluation (epoch seconds), value as text.

    `value` is None for a native histogram.
    """

    metric: msgspec.Raw
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = False
    """Of VictoriaMetrics: one of its storage nodes does not answer."""


_RESPONSE = Decoder(_Response)
VECTOR = Decoder(list[Sample])


def decode_result(body: bytes, kind: str, decoder: Decoder[T]) -> T:
    """The result of a successful response, of this kind.

    Raises QueryRejected for a fault of the query, SourceFailing for one of the server and for a partial answer, and
    WrongAnswer for a body that is none of these.
    """
    try:
        response = _RESPONSE.decode(body)
        if response.status != "success" or response.data is None:
            raise _api_error(response)
        if response.warnings or response.is_partial:
            what = "a warning" if response.warnings else "isPartial"
            said = f": {response.warnings[0][:_SHOWN]}" if response.warnings else ""
            public = f"answers with {what}, so a part of the answer may be missing"
            raise SourceFailing(f"answers with {what}{said}", public=public)
        if response.data.result_type != kind:
            kinds = f"the query does not answer a {kind} but another type; write one that does"
            raise QueryRejected(kinds, public=kinds)
        return decoder.decode(response.data.result)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"the answer is not that of Prometheus: {error}: {_beginning(body)}") from error


def _api_error(response: _Response) -> SourceError:
    kind = SourceFailing if response.error_type in _SERVER_ERRORS else QueryRejected
    named = response.error_type if response.error_type in _ERROR_TYPES else ""
    return kind(
        f"{response.error_type[:_SHOWN] or 'error'}: {response.error[:_SHOWN] or 'no message'}",
        public=f"{kind.summary} ({named})" if named else "",
    )


def _beginning(body: bytes) -> str:
    """The beginning of a body on one line, for the message of an error."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())


class ApiClient:
    """Sends queries to one path of a server. Create it in a running event loop."""

    def __init__(self, settings: PrometheusServer, path: str, timeout: float) -> None:
        self.settings, self.url = settings, f"{settings.url.rstrip('/')}/api/v1/{path}"
        limit = f"maxAnswerMiB of Prometheus server {settings.name}"
        most = int(settings.max_answer_mib * MIB)
        self._client = Client(settings.access, timeout=timeout, max_bytes=most, limit_name=limit)

    async def result(self, form: Mapping[str, Any], kind: str, decoder: Decoder[T]) -> T:
        """The result of an answer, read in a thread. Raises SourceError."""
        reply = await self._client.send("POST", self.url, data=form)
        if reply.status not in _OK:
            try:
                error = _api_error(_RESPONSE.decode(reply.body))
            except msgspec.MsgspecError:
                error = QueryRejected(_beginning(reply.body) or "no message")
            if reply.status >= _OWN_TROUBLE or reply.status == _TOO_MANY_REQUESTS:
                raise SourceFailing(f"HTTP {reply.status}: {error}", public=f"HTTP {reply.status}")
            raise QueryRejected(f"HTTP {reply.status}: {error}", public=f"HTTP {reply.status}: {error.public}")
        return await asyncio.to_thread(decode_result, reply.body, kind, decoder)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class PrometheusClient(ApiClient):
    """Sends instant queries to one server. `slots` bound the polls of it at a time."""

    def __init__(self, settings: PrometheusServer) -> None:
        super().__init__(settings, "query", settings.timeout_seconds)
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Close the connections, once the polls in progress have ended."""
        try:
            for _ in range(AT_ONCE):
                await self.slots.acquire()
        finally:
            await super().close()

    async def query(self, text: str, *, max_age: float, at: float | None = None) -> list[Sample]:
        """The samples of an instant query; `at` is its time (default: the server's now).

        Instant selectors find no sample older than `max_age` seconds. Raises SourceError.
        """
        form = {"query": text, "lookback_delta": f"{max_age:.3f}", "timeout": f"{self.settings.timeout_seconds:.3f}"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            return await self.result(form, "vector", VECTOR)
        except SourceError as error:
            raise error.with_context(self.url) from error
