"""A service's history from Prometheus, Thanos or Mimir: range queries by day, repeated where the server fails."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec

from adapter.commands.replay.history_queries import HistoryQueries, Overrides, RangeQuery, RangeSeries, Servers
from adapter.commands.replay.model import TITLE, Tick
from adapter.load.quantity import QuantityError, parse_number
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable
from adapter.runtime.times import format_time
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import ApiClient

MOST_POINTS = 11_000
"""Points of a series that Prometheus answers to one range query."""
MOST_MOMENTS = 2_000_000
"""Moments of one history, which is kept in memory: nearly a year at 15 s."""
PAUSES = (1.0, 4.0)
"""Seconds before a query that failed is sent again."""
_TIMEOUT = 60.0
"""Seconds. A range query reads much more than the instant queries that the settings' timeout is for."""
_DAY = 86_400_000


class HistoryUnavailable(Exception):  # noqa: N818  named after what happened
    """The history cannot be read; the message names the query and what the server said."""


class Span(NamedTuple):
    """The moments first, first + step, … last, in milliseconds since the epoch; all are multiples of the step."""

    first: int
    last: int
    step: int

    def __len__(self) -> int:
        """The number of moments."""
        return (self.last - self.first) // self.step + 1

    def moments(self) -> range:
        """The moments in milliseconds."""
        return range(self.first, self.last + 1, self.step)

    def parts(self) -> Iterator["Span"]:
        """Consecutive spans of at most a day, and of at most as many moments as a range query may have."""
        length = max(1, min(_DAY // self.step, MOST_POINTS)) * self.step
        for first in range(self.first, self.last + 1, length):
            yield Span(first, min(first + length - self.step, self.last), self.step)

    def __str__(self) -> str:
        """The first and the last moment, to the second."""
        return f"{format_time(self.first / 1000)} to {format_time(self.last / 1000)}"


class Source(NamedTuple):
    """Where and how histories of any number of services are read."""

    servers: Servers
    overrides: Overrides
    span: Span


def read_span(begin: float, end: float, step: float) -> Span:
    """The span from `begin` to `end` in steps (seconds). Raises FaultyDocument."""
    every = round(step * 1000)
    if every <= 0:
        raise FaultyDocument([Fault("--step", f"{step:g}s", "must be above 0s, such as 15s")], TITLE)
    span = Span(-(-round(begin * 1000) // every) * every, round(end * 1000) // every * every, every)
    if span.last <= span.first:
        times = f"{format_time(begin)} to {format_time(end)}"
        raise FaultyDocument([Fault("--from", times, "must be earlier than --to by a step or more")], TITLE)
    if len(span) > MOST_MOMENTS:
        advice = f"makes {len(span):,} moments, and at most {MOST_MOMENTS:,} are replayed; take a longer step"
        raise FaultyDocument([Fault("--step", f"{step:g}s", advice)], TITLE)
    return span


def read_history(queries: HistoryQueries, span: Span, pauses: Sequence[float] = PAUSES) -> list[Tick]:
    """A tick for each moment of the span.

    A tick lacks a metric that was not recorded then: a gap, no zero. A missing number of pulled-out pods is that of the
    moment before (at first 0). Raises HistoryUnavailable, also for a load without any value.
    """
    *loads, out, replicas = asyncio.run(_read(queries, span, pauses))
    for query, values in zip(queries.loads.values(), loads, strict=True):
        if not values:
            raise HistoryUnavailable(
                f"{query.name}: Prometheus {query.server.name} has no value of it, {span}; test the query there, and "
                f"give another one with --query {query.name}='PROMQL' where needed: {query.text}"
            )
    ticks, pulled_out = [], 0
    for at in span.moments():
        pulled_out = int(out.get(at, pulled_out))
        load = {name: values[at] for name, values in zip(queries.loads, loads, strict=True) if at in values}
        count = replicas.get(at)
        ticks.append(Tick(at / 1000, load, pulled_out, None if count is None else int(count)))
    while not ticks[-1].load:
        ticks.pop()
    return ticks


Values = dict[int, float]
"""By moment (milliseconds): nano-units of a load, a number of pods of a count."""


async def _read(queries: HistoryQueries, span: Span, pauses: Sequence[float]) -> list[Values]:
    """The values of every query."""
    async with AsyncExitStack() as stack:
        clients: dict[str, RangeClient] = {}
        for query in queries:
            if query.server.name not in clients:
                clients[query.server.name] = client = RangeClient(query.server, pauses)
                stack.push_async_callback(client.close)

        async def ask(query: RangeQuery) -> Values:
            values: Values = {}
            unit = 1 if query.name in queries.loads else 1e9
            for part in span.parts():
                try:
                    series = query.chosen(await clients[query.server.name].query(query.text, part))
                except (SourceError, ValueError) as error:
                    raise HistoryUnavailable(f"{query.name}, {part}: {error}; the query is {query.text}") from error
                for at, text in series.points if series else ():
                    try:
                        values[round(at * 1000)] = parse_number(text) / unit
                    except QuantityError:  # NaN, an infinity, a negative value: no load
                        continue
            return values

        return await asyncio.gather(*map(ask, queries))


class _Series(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None


_MATRIX = Decoder(list[_Series])


class RangeClient(ApiClient):
    """Sends range queries to one server, and repeats those that the server fails after each of `pauses` (seconds)."""

    def __init__(self, settings: PrometheusServer, pauses: Sequence[float]) -> None:
        self._pauses = pauses
        self._timeout = max(settings.timeout_seconds, _TIMEOUT)
        super().__init__(settings, "query_range", self._timeout + 5)

    async def query(self, text: str, span: Span) -> list[RangeSeries]:
        """The series of a query at the moments of a span, of which there are at most MOST_POINTS.

        Raises SourceError: at once where the query is refused, after the last attempt where the server fails.
        """
        start, end, step = (f"{milliseconds / 1000:.3f}" for milliseconds in span)
        form = {"query": text, "start": start, "end": end, "step": step, "timeout": f"{self._timeout:.0f}s"}
        for pause in (*self._pauses, None):
            try:
                series = await self.result(form, "matrix", _MATRIX)
            except (SourceUnreachable, SourceFailing) as error:
                if pause is None:
                    raise error.with_context(self.url, f"{len(self._pauses) + 1} attempts failed") from error
                await asyncio.sleep(pause)
            except SourceError as error:
                raise error.with_context(self.url) from error
            else:
                return [RangeSeries(each.metric, each.values or []) for each in series]
        raise AssertionError("the last attempt returns or raises")
