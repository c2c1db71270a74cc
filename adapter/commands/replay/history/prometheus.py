"""A service's history from Prometheus, Thanos or Mimir: read in parts, and given out moment by moment."""

import argparse
import asyncio
import io
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace

from adapter.commands.replay.history.queries import (
    HistoryQueries,
    Overrides,
    RangeQuery,
    Sources,
    choose_sources,
    derive_queries,
)
from adapter.commands.replay.history.range_client import RangeClient, RangeSeries
from adapter.commands.replay.history.span import Span, read_span
from adapter.commands.replay.service import Tick
from adapter.commands.terminal.waiting import Progress
from adapter.load.quantity import QuantityError
from adapter.load.spec import Metric, Policy
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.source_errors import SourceError
from adapter.settings import load_settings
from adapter.usage.series import sample_nano

Values = list[str | None]
"""Values as Prometheus writes them, one for each moment of a span; None where there is none."""
_TITLE = "the history cannot be read"


class HistoryUnavailable(Exception):  # noqa: N818  named after what happened
    """The history cannot be read; the message names the query and what the server said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusHistory:
    """The ticks of a service, one for each moment of a span; they are asked for anew at each iteration.

    A tick lacks a metric that nobody recorded then: a gap, no zero. Moments before the first and after the last record
    are left out. A missing number of pulled-out pods is that of the moment before (at first 0). Raises
    HistoryUnavailable, also for a load without any value: a replay would show a service without load.
    """

    queries: HistoryQueries
    span: Span
    is_quiet: bool = False
    """Whether how far the reading is goes nowhere, as where many services are replayed."""

    def __iter__(self) -> Iterator[Tick]:
        spans, pulled_out = list(self.span.parts()), 0
        held: list[Tick] | None = None  # ticks of a gap, which is left out at both ends
        without_value = dict(self.queries.loads)
        stream = io.StringIO() if self.is_quiet else None
        with closing(Progress("parts of the history:", len(spans), stream=stream)) as progress:
            for span in spans:
                *loads, out, replicas = asyncio.run(self._read(span))
                progress.advance()
                columns = {name: [*map(_nano, texts)] for name, texts in zip(self.queries.loads, loads, strict=True)}
                for name, texts in zip(columns, loads, strict=True):
                    if any(text is not None for text in texts):
                        without_value.pop(name, None)
                rows = zip(span.moments(), *columns.values(), map(_count, out), map(_count, replicas), strict=True)
                for at, *values, number, count in rows:
                    pulled_out = pulled_out if number is None else number
                    load = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
                    tick = Tick(at, load, pulled_out, count)
                    if load:
                        yield from held or ()
                        yield tick
                        held = []
                    elif held is not None:
                        held.append(tick)
        for query in without_value.values():
            raise HistoryUnavailable(
                f"{query.name}: Prometheus {query.server.name} has no value of it, {self.span}; look at the query "
                f"there, and give another with --query {query.name}='PROMQL' where needed: {query.text}"
            )

    async def _read(self, span: Span) -> list[Values]:
        """The values of every query in a part of the time, asked for at once."""
        async with AsyncExitStack() as stack:
            clients: dict[str, RangeClient] = {}
            for query in self.queries:
                if query.server.name not in clients:
                    clients[query.server.name] = client = RangeClient(query.server)
                    stack.push_async_callback(client.close)

            async def ask(query: RangeQuery) -> Values:
                try:
                    client = clients[query.server.name]
                    answer = await client.query(query.text, span.first / 1000, span.last / 1000, span.step / 1000)
                    return _values(query.chosen(answer), span)
                except (SourceError, ValueError) as error:
                    raise HistoryUnavailable(f"{query.name}, {span}: {error}; the query is {query.text}") from error

            return await asyncio.gather(*map(ask, self.queries))


def _values(series: RangeSeries | None, span: Span) -> Values:
    """The values by moment. Raises ValueError for a point at no moment of the span."""
    values: Values = [None] * len(span)
    for at, value in series.points if series else ():
        index, beside = divmod(round(at * 1000) - span.first, span.step)
        if beside or not 0 <= index < len(values):
            raise ValueError(f"answers a point at {at}, which was not asked for")
        values[index] = value
    return values


def _nano(text: str | None) -> int | None:
    """Nano-units; None for what is no load: NaN, an infinity, a negative value."""
    try:
        return None if text is None else sample_nano(text)
    except QuantityError:
        return None


def _count(text: str | None) -> int | None:
    """A number of pods, None where there is none."""
    nano = _nano(text)
    return None if nano is None else nano // 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource:
    """Where and how histories of any number of services are read."""

    sources: Sources
    overrides: Overrides
    span: Span

    def history(
        self, policy: Policy, target: CrossVersionReference, metrics: Sequence[Metric] = (), *, is_one: bool = True
    ) -> PrometheusHistory:
        """The history of a policy's metrics, and of further ones. Raises FaultyDocument.

        Unless it `is_one` alone, queries for metrics that the policy has not are passed over: they are another
        policy's; and nothing is said of how far it is.
        """
        names = {metric.name for metric in policy.metrics}
        further = [metric for metric in metrics if metric.name not in names]
        policy = replace(policy, metrics=(*policy.metrics, *further))
        overrides = self.overrides
        if not is_one:
            names |= {metric.name for metric in further}
            overrides = replace(overrides, loads={name: q for name, q in overrides.loads.items() if name in names})
        queries = derive_queries(policy, target, self.sources, overrides)
        return PrometheusHistory(queries=queries, span=self.span, is_quiet=not is_one)


def read_source(parsed: argparse.Namespace, now: float) -> PrometheusSource:
    """The source that the arguments name; `now` in seconds since the epoch. Raises FaultyDocument."""
    settings = load_settings(parsed.settings) if parsed.settings else None
    sources = choose_sources(settings, parsed.prometheus or "")
    if parsed.begin is None:
        raise FaultyDocument([Fault("--from", None, "say where the history begins, such as 7d")], _TITLE)
    span = read_span(parsed.begin, parsed.end or "now", parsed.step, now)
    loads = {}
    for text in parsed.query:
        name, query = (part.strip() for part in text.partition("=")[::2])
        if not name or not query:
            raise FaultyDocument([Fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")], _TITLE)
        loads[name] = query
    overrides = Overrides(loads=loads, pulled_out=parsed.pulled_out_query or "")
    return PrometheusSource(sources=sources, overrides=overrides, span=span)
