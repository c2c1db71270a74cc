"""A Prometheus in closed loop: it scrapes counters, misses scrapes, loses samples, and answers the adapter's questions.

Its rates are extrapolated as Prometheus does it (`extrapolatedRate`), so that a window with a gap reads too little.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import msgspec

from adapter.load.quantity import NANO
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.runtime.concurrency import Slices
from adapter.usage.prometheus_api import OnSamples, Sample
from adapter.usage.promql import COUNT_LABEL, INPUT_LABEL
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import SeriesTable
from adapter.usage.windows import Windows
from tests.load.kit import NOW
from tests.simulation.sources import Kind, LoadHistory, Measured, Source

LARGE = 10**9 * NANO
"""What the counters of pods from before the loop begin with."""

Missed = Callable[[str, int], bool]
"""Whether the scrape of a pod at a second is missed."""


class Scrape(NamedTuple):
    """A sample of a counter."""

    at: int
    value: float


def extrapolated_rate(within: Sequence[Scrape], now: float, window: float) -> float | None:
    """Prometheus' `rate` of the samples in the window that ends now; None: it has no value."""
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    increase = sum(max(0.0, later.value - earlier.value) for earlier, later in pairwise(within))
    sampled = last.at - first.at
    mean = sampled / (len(within) - 1)
    to_start, to_end = first.at - (now - window), now - last.at
    if to_start >= 1.1 * mean:
        to_start = mean / 2
    if increase > 0 and first.value >= 0:
        to_start = min(to_start, sampled * first.value / increase)
    if to_end >= 1.1 * mean:
        to_end = mean / 2
    return increase * (sampled + to_start + to_end) / sampled / window


class Store:
    """The samples of one server, by pod. It scrapes each pod at a phase of its own."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.samples: dict[str, list[Scrape]] = {}

    def scrape(self, pods: Iterable[Measured], load: LoadHistory, now: int, missed: Missed, phase: int) -> None:
        """Scrape the pods that are due at this second."""
        for index, pod in enumerate(pods):
            if (now - phase - index) % self.interval or missed(pod.name, now) or now <= pod.created:
                continue
            served = load.per_weight(pod.since, now) if now > pod.since else 0.0
            value = pod.weight * served + (LARGE if pod.created < 0 else 0)
            self.samples.setdefault(pod.name, []).append(Scrape(now, value))

    def within(self, pod: str, now: int, seconds: float) -> list[Scrape]:
        """The samples of a pod in a window that ends now."""
        return [scrape for scrape in self.samples.get(pod, ()) if now - seconds < scrape.at <= now]


@dataclass
class ScrapedSource(Source):
    """Asks one of its `stores` each time, in turn, for the rate over `window`; each scrapes every `scrape` seconds.

    `shards`: the stores have some of the pods each, behind a querier, instead of all of them.
    """

    scrape: int = 15
    missed: Missed = lambda _pod, _now: False
    stores: list[Store] = field(default_factory=list)
    shards: bool = False
    _turn: int = 0
    _answer: QuerySamples | None = None

    def __post_init__(self) -> None:
        self.stores = self.stores or [Store(self.scrape)]
        self.restart()

    def restart(self) -> None:
        """The adapter restarts: what it has learned of windows is gone."""
        text = f"sum by (namespace, pod) (rate(load[{self.window}s]))"
        by_pod = self.kind is not Kind.TOTAL
        self._table = SeriesTable("namespace", "pod" if by_pod else "")
        self._windows = Windows(
            InstantQuery(
                server="main", text=text, by_pod=by_pod, interval=float(self.refresh), window=float(self.window)
            )
        )
        self._answer = None

    def advance(self, pods: Iterable[Measured], load: LoadHistory, now: int) -> bool:
        """Scrapes and polls at this second; returns whether an answer has arrived."""
        pods = list(pods)
        for number, store in enumerate(self.stores):
            own = [pod for pod in pods if not self.shards or int(pod.name[-4:]) % len(self.stores) == number]
            store.scrape(own, load, now, self.missed, 3 * number)
        if now % self.refresh:
            return False
        self._answer = self._poll(now)
        return True

    def _poll(self, now: int) -> QuerySamples:
        stores = self.stores if self.shards else [self.stores[self._turn % len(self.stores)]]
        self._turn += 1
        server = _Server(stores, self.kind is not Kind.TOTAL, now, self.window)
        self._windows.begin()
        while True:
            self._windows.take(server.answer(self._windows.question()))
            if self._windows.is_answered():
                break

        async def ask(text: str, on_samples: OnSamples) -> None:
            on_samples(server.scrapes(text))

        asyncio.run(self._windows.learn(ask, now))
        rates = {labels: rate for labels, rate in server.rates() if now - rate[0] <= self.max_age}
        sets = self._table.label_sets(rates)
        dates, values = [at for at, _ in rates.values()], [str(float(value)) for _, value in rates.values()]
        partial = asyncio.run(self._windows.column(sets, values, dates, Slices()))
        points = {
            labels.pod: Point(NOW + at, math.ceil(value), *partial.get(labels.number, ()))
            for labels, (at, value) in zip(sets, rates.values(), strict=True)
        }
        is_total = self.kind is Kind.TOTAL
        return QuerySamples(
            pods={} if is_total else points,
            total=points.get("") if is_total else None,
            window=float(self.window),
            by_pod=not is_total,
            reads=frozenset(server.read()) if is_total else frozenset(),
            max_age=self.max_age,
            fetched_at=NOW + now,
        )

    def samples(self) -> Samples:
        """The newest answer."""
        return Samples() if self._answer is None else Samples(queries={"load": self._answer})


@dataclass
class _Server:
    """What stores answer at one moment."""

    stores: Sequence[Store]
    by_pod: bool
    now: int
    window: int

    def _pods(self) -> Iterable[tuple[str, Store]]:
        return ((pod, store) for store in self.stores for pod in store.samples)

    def rates(self) -> Iterable[tuple[bytes, tuple[int, float]]]:
        """The time of the newest sample, and the rate, by labels."""
        together: dict[bytes, tuple[int, float]] = {}
        for pod, store in self._pods():
            within = store.within(pod, self.now, self.window)
            rate = extrapolated_rate(within, self.now, self.window)
            if rate is not None:
                at, before = together.get(self._labels(pod), (0, 0.0))
                together[self._labels(pod)] = max(at, within[-1].at), before + rate
        return together.items()

    def _labels(self, pod: str, **more: str) -> bytes:
        return json.dumps({"namespace": "shop"} | ({"pod": pod} if self.by_pod else {}) | more).encode()

    def answer(self, question: str) -> list[Sample]:
        """How full the windows are."""
        held = [(pod, len(store.within(pod, self.now, self.window))) for pod, store in self._pods()]
        if "count_values(" in question:
            numbers = {count for _, count in held if count}
            return [_sample({INPUT_LABEL: "0", COUNT_LABEL: str(count)}, "1") for count in numbers]
        least: dict[bytes, int] = {}
        for pod, count in held:
            if count:
                labels = self._labels(pod, **{INPUT_LABEL: "0"})
                least[labels] = min(least.get(labels, count), count)
        return [Sample(msgspec.Raw(labels), (self.now, str(count))) for labels, count in least.items()]

    def read(self) -> Iterable[str]:
        """The pods with a sample in the window."""
        return (pod for pod, store in self._pods() if store.within(pod, self.now, self.window))

    def scrapes(self, text: str) -> list[Sample]:
        """The samples of a range selector."""
        seconds = int(text.rpartition("[")[2].removesuffix("ms]")) / 1000
        named = re.search(r'pod=~"([^"]*)"', text)
        pods = named[1].split("|") if named else [pod for pod, _ in self._pods()]
        return [
            Sample(msgspec.Raw(self._labels(pod)), None, [(scrape.at, "0") for scrape in within])
            for pod, store in self._pods()
            if pod in pods and (within := store.within(pod, self.now, seconds))
        ]


def _sample(labels: Mapping[str, str], value: str) -> Sample:
    return Sample(msgspec.Raw(json.dumps(dict(labels)).encode()), (0.0, value))
