"""A service's history from Prometheus, Thanos or Mimir: read in parts, kept on disk, given out moment by moment."""

import argparse
import asyncio
import hashlib
import io
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from adapter.commands.replay.history.queries import (
    HistoryQueries,
    Overrides,
    RangeQuery,
    Sources,
    choose_sources,
    derive_queries,
)
from adapter.commands.replay.history.span import Span, read_span
from adapter.commands.replay.service import Tick
from adapter.commands.terminal.waiting import Progress
from adapter.load.quantity import QuantityError
from adapter.load.spec import Metric, Policy
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.source_errors import SourceError
from adapter.settings import load_settings
from adapter.usage.prometheus_api import RangeClient, RangeSeries
from adapter.usage.series import sample_nano

SETTLED = 300_000
"""Milliseconds. What is younger may still change (late samples, recording rules), so it is read again each time."""
Values = list[str | None]
"""Values as Prometheus writes them, one for each moment of a span; None where there is none."""
_TITLE = "the history cannot be read"
_VERSION = 1
_LEVEL = 6


class HistoryUnavailable(Exception):  # noqa: N818  named after what happened
    """The history cannot be read; the message names the query and what the server or the disk said."""


class _Part(NamedTuple):
    query: RangeQuery
    span: Span


class PrometheusHistory:
    """The ticks of a service, one for each moment of a span; it can be read more than once, and from disk alone.

    A tick lacks a metric that nobody recorded then: a gap, no zero. Moments before the first and after the last record
    are left out. A missing number of pulled-out pods is that of the moment before (at first 0). Raises
    HistoryUnavailable.
    """

    def __init__(self, queries: HistoryQueries, span: Span, cache: Path, *, now: float) -> None:
        """`cache` is the folder of finished parts; `now` in seconds since the epoch."""
        self.queries, self.span = queries, span
        try:
            self._cache = ChunkCache(cache)
        except OSError as error:
            raise HistoryUnavailable(f"--cache {cache}: {error.strerror or error}") from error
        self._settled = now * 1000 - SETTLED
        self._downloaded = False

    def __iter__(self) -> Iterator[Tick]:
        if not self._downloaded:
            self.download()
        pulled_out = 0
        held: list[Tick] | None = None  # ticks of a gap, which is left out at both ends
        for span in self.span.parts():
            loads = {name: [*map(_nano, self._values(one, span))] for name, one in self.queries.loads.items()}
            out = map(_count, self._values(self.queries.pulled_out, span))
            replicas = map(_count, self._values(self.queries.replicas, span))
            for at, *values, number, count in zip(span.moments(), *loads.values(), out, replicas, strict=True):
                pulled_out = pulled_out if number is None else number
                load = {name: value for name, value in zip(loads, values, strict=True) if value is not None}
                tick = Tick(at, load, pulled_out, count)
                if load:
                    yield from held or ()
                    yield tick
                    held = []
                elif held is not None:
                    held.append(tick)

    def download(self, *, quiet: bool = False) -> None:
        """Read all parts that are not on disk yet. An interrupted download goes on where it stopped.

        A load without any value is an error: a replay would show a service without load.
        """
        parts = [_Part(query, span) for span in self.span.parts() for query in self.queries]
        # On disk for good is what cannot change and has values: a backfill may bring some.
        missing = [
            part
            for part in parts
            if part.span.last >= self._settled
            or all(value is None for value in self._cache.load(part.query, part.span) or ())
        ]
        with closing(
            Progress("parts of the history:", len(parts), stream=io.StringIO() if quiet else None)
        ) as progress:
            progress.advance(len(parts) - len(missing))
            try:
                asyncio.run(self._download(missing, progress))
            except OSError as error:
                raise HistoryUnavailable(f"the cache cannot be written: {error}") from error
        self._downloaded = True
        for query in self.queries.loads.values():
            if not any(value is not None for span in self.span.parts() for value in self._values(query, span)):
                raise HistoryUnavailable(
                    f"{query.name}: Prometheus {query.server.name} has no value of it, {self.span}; look at the query "
                    f"there, and give another with --query {query.name}='PROMQL' where needed: {query.text}"
                )

    async def _download(self, parts: Sequence[_Part], progress: Progress) -> None:
        """All queries of one span at a time."""
        async with AsyncExitStack() as stack:
            clients: dict[str, RangeClient] = {}
            for query, _ in parts:
                if query.server.name not in clients:
                    clients[query.server.name] = client = RangeClient(query.server)
                    stack.push_async_callback(client.close)

            async def fetch(query: RangeQuery, span: Span) -> None:
                try:
                    client = clients[query.server.name]
                    answer = await client.query(query.text, span.first / 1000, span.last / 1000, span.step / 1000)
                    self._cache.store(query, span, _values(query.chosen(answer), span))
                except (SourceError, ValueError) as error:
                    raise HistoryUnavailable(f"{query.name}, {span}: {error}; the query is {query.text}") from error
                progress.advance()

            rest = iter(parts)
            while together := list(islice(rest, len(list(self.queries)))):
                await asyncio.gather(*(fetch(*part) for part in together))

    def _values(self, query: RangeQuery, span: Span) -> Values:
        values = self._cache.load(query, span)
        if values is None:
            raise HistoryUnavailable(
                f"{query.name}, {span}: its file in the cache was removed or changed; run it again"
            )
        return values


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


class _Chunk(msgspec.Struct, array_like=True):
    """`key` is the file's own: a file under a wrong name does not count."""

    key: Annotated[str, msgspec.Meta(max_length=64)]
    values: Values


_DECODER = msgspec.msgpack.Decoder(_Chunk)


class ChunkCache:
    """A folder of chunks; it is made where it does not exist. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def load(self, query: RangeQuery, span: Span) -> Values | None:
        """The values of a finished part; None where there is no whole file of it."""
        key = _key(query, span)
        try:
            content = (self._folder / f"{key}.chunk").read_bytes()
            chunk = _DECODER.decode(zlib.decompress(content))
        except (FileNotFoundError, zlib.error, msgspec.MsgspecError):
            return None
        return chunk.values if chunk.key == key and len(chunk.values) == len(span) else None

    def store(self, query: RangeQuery, span: Span, values: Values) -> None:
        """Keeps a finished part: the file gets its name only when it is whole."""
        key = _key(query, span)
        content = zlib.compress(msgspec.msgpack.encode(_Chunk(key, values)), _LEVEL)
        part = self._folder / f"{key}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            part.replace(self._folder / f"{key}.chunk")
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _key(query: RangeQuery, span: Span) -> str:
    """A digest of all that the values depend on; secrets of the address do not show."""
    server = query.server
    source = [server.url, sorted(server.headers.items()), sorted(server.header_files.items()), query.text]
    text = json.dumps([_VERSION, *source, query.pick, query.namespace, query.namespace_label, *span])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource:
    """Where and how histories of any number of services are read. `now` in seconds since the epoch."""

    sources: Sources
    overrides: Overrides
    span: Span
    cache: Path
    now: float

    def history(
        self, policy: Policy, target: CrossVersionReference, metrics: Sequence[Metric] = (), *, strict: bool = True
    ) -> PrometheusHistory:
        """The history of a policy's metrics, and of further ones. Raises FaultyDocument, HistoryUnavailable.

        Where not `strict`, queries for metrics that the policy has not are passed over: they are another policy's.
        """
        names = {metric.name for metric in policy.metrics}
        further = [metric for metric in metrics if metric.name not in names]
        policy = replace(policy, metrics=(*policy.metrics, *further))
        overrides = self.overrides
        if not strict:
            names |= {metric.name for metric in further}
            overrides = replace(overrides, loads={name: q for name, q in overrides.loads.items() if name in names})
        queries = derive_queries(policy, target, self.sources, overrides)
        return PrometheusHistory(queries, self.span, self.cache, now=self.now)


@contextmanager
def open_source(parsed: argparse.Namespace, now: float) -> Iterator[PrometheusSource]:
    """The source that the arguments name; without `--cache` the parts are in a folder for the time being.

    Raises FaultyDocument.
    """
    settings = load_settings(parsed.settings) if parsed.settings else None
    sources = choose_sources(settings, parsed.server or "", parsed.prometheus or "")
    if parsed.begin is None:
        raise FaultyDocument([Fault("--from", None, "say where the history begins, such as 7d")], _TITLE)
    span = read_span(parsed.begin, parsed.end or "now", parsed.step, now)
    loads = {}
    for text in parsed.query:
        name, query = (part.strip() for part in text.partition("=")[::2])
        if not name or not query:
            raise FaultyDocument([Fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")], _TITLE)
        loads[name] = query
    overrides = Overrides(loads=loads, pulled_out=parsed.pulled_out_query or "", replicas=parsed.replicas_query or "")
    with ExitStack() as stack:
        folder = parsed.cache or stack.enter_context(tempfile.TemporaryDirectory(prefix="effective-load-replay-"))
        yield PrometheusSource(sources=sources, overrides=overrides, span=span, cache=Path(folder), now=now)
