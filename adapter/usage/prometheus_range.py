"""Client of one Prometheus server for range queries (`/api/v1/query_range`), which Thanos and Mimir answer too."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.backoff import Backoff
from adapter.runtime.decoding import Decoder
from adapter.runtime.outbound import Client
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable, WrongAnswer
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import decode_envelope, error_from_response, response_beginning

MOST_POINTS = 11_000
"""Points of a series that Prometheus answers to one range query."""
SHORTEST_TIMEOUT = 60.0
"""Seconds. A range query reads much more than the instant queries that the settings' timeout is for."""
ATTEMPTS = 5

_ERROR_BODY_BYTES = 64 * 1024
_SHOWN = 200
_OK = range(200, 300)


class RangeSeries(NamedTuple):
    """One series of an answer: its labels, and its points (epoch seconds, value as text) in order of time."""

    labels: Mapping[str, str]
    points: list[tuple[float, str]]


class _Series(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None


_MATRIX = Decoder(list[_Series])


class RangeClient:
    """Sends range queries to one server, and repeats those that the server fails. Create it in a running event loop."""

    def __init__(self, settings: PrometheusServer) -> None:
        self._url = settings.url.rstrip("/") + "/api/v1/query_range"
        self._timeout = max(settings.timeout_seconds, SHORTEST_TIMEOUT)
        self._backoff = Backoff()
        self._client = Client(
            settings.access,
            timeout=self._timeout + 5,
            source=f"prometheus/{settings.name}",
            limit=Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of Prometheus server {settings.name}"),
        )

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
        for left in reversed(range(ATTEMPTS)):
            try:
                async with self._client.answer("POST", self._url, data=form) as response:
                    if response.status not in _OK:
                        raise error_from_response(response.status, response.body.start(_ERROR_BODY_BYTES))
                    body = response.body.whole()
                series = list(_decode(body))
            except (SourceUnreachable, SourceFailing) as error:
                if not left:
                    raise error.with_context(self._url, f"{ATTEMPTS} attempts failed") from error
                await asyncio.sleep(self._backoff.next())
            except SourceError as error:
                raise error.with_context(self._url) from error
            else:
                self._backoff.reset()
                return series
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _decode(body: bytes) -> Iterator[RangeSeries]:
    try:
        for series in _MATRIX.decode(decode_envelope(body, "matrix").result):
            yield RangeSeries(series.metric, series.values or [])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        shown = response_beginning(body[:_SHOWN])
        raise WrongAnswer(f"the answer is not what Prometheus answers: {error}: {shown}") from error
