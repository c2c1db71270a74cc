"""Range queries to one Prometheus server; Thanos and Mimir answer them too."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from adapter.runtime.backoff import Backoff
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import ApiClient, decode_result

MOST_POINTS = 11_000
"""Points of a series that Prometheus answers to one range query."""
SHORTEST_TIMEOUT = 60.0
"""Seconds. A range query reads much more than the instant queries that the settings' timeout is for."""
ATTEMPTS = 5


class RangeSeries(NamedTuple):
    """One series of a range: its labels, and its points (epoch seconds, value as text) in order of time."""

    labels: Mapping[str, str]
    points: list[tuple[float, str]]


class _Series(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None


_MATRIX = Decoder(list[_Series])


class RangeClient(ApiClient):
    """Sends range queries to one server, and repeats those that the server fails."""

    def __init__(self, settings: PrometheusServer) -> None:
        self._timeout = max(settings.timeout_seconds, SHORTEST_TIMEOUT)
        self._backoff = Backoff()
        super().__init__(settings, "query_range", self._timeout + 5)

    async def query(self, text: str, start: float, end: float, step: float) -> list[RangeSeries]:
        """The series of a query at start, start + step, … end (epoch seconds; at most MOST_POINTS of them).

        Raises SourceError: at once where the query is refused, after several attempts where the server fails.
        """
        form = {"query": text, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        form["timeout"] = f"{self._timeout:.0f}s"
        for left in reversed(range(ATTEMPTS)):
            try:
                series = decode_result(await self.body(form), "matrix", _MATRIX)
            except (SourceUnreachable, SourceFailing) as error:
                if not left:
                    raise error.with_context(self.url, f"{ATTEMPTS} attempts failed") from error
                await asyncio.sleep(self._backoff.next())
            except SourceError as error:
                raise error.with_context(self.url) from error
            else:
                self._backoff.reset()
                return [RangeSeries(each.metric, each.values or []) for each in series]
        raise AssertionError("the last attempt returns or raises")
