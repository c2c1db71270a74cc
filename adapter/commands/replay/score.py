"""The figures of a run, gathered while it goes on: sums, a bounded chart and the first changes of the count."""

from collections.abc import Mapping
from math import ceil

from adapter.commands.replay.model import Bucket, Change, Run, Setup, Summary

CHANGES_KEPT = 10_000
MOST_BUCKETS = 1024
FLAP_SECONDS = 600.0
"""A change that is turned back within this time is a flap."""
_FIRST_BUCKET = 60.0
_EXACT = 1e-9
"""Loads that differ by less than this share of them are equal."""


class Score:
    """Gathers the figures of one run: `set_pods` whenever their numbers change, `add` for every stretch of time.

    `high` are the high watermarks by metric (nano-units of a pod's plain usage); `minimum` pods are never too many.
    """

    def __init__(self, setup: Setup, high: Mapping[str, float], minimum: int, at: float, first_metric: str) -> None:
        self._high, self._minimum, self._first = high, minimum, first_metric
        self._capacity = setup.capacity
        self._seconds = self._unknown = self._over_high = self._longest = self._pod_seconds = 0.0
        self._lost = dict.fromkeys(setup.capacity, 0.0)
        self._asked = dict.fromkeys(setup.capacity, 0.0)
        self.streak = 0.0
        """Seconds since when a serving pod carries more than a high watermark."""
        self._changes: list[Change] = []
        self._last: Change | None = None
        self._count = self._flaps = self._overshoot = 0
        self._least = self._most = self._replicas = setup.replicas
        self._serving = self._out = self._existing = 0
        self._limits: list[tuple[str, float]] = []
        self._length = max(_FIRST_BUCKET, setup.sync)
        self._buckets = [Bucket(at, setup.replicas, setup.replicas)]
        self._ends = at + self._length

    def changed(self, at: float, before: int, after: int) -> None:
        """The count was changed."""
        last, change = self._last, Change(at, before, after)
        if last is not None and at - last.at <= FLAP_SECONDS and (last.after > last.before) != (after > before):
            self._flaps += 1
        self._last = change
        self._count += 1
        if len(self._changes) < CHANGES_KEPT:
            self._changes.append(change)
        self._least, self._most = min(self._least, after), max(self._most, after)
        bucket = self._buckets[-1]
        bucket.least, bucket.most = min(bucket.least, after), max(bucket.most, after)

    def set_pods(self, replicas: int, serving: int, out: int, existing: int) -> None:
        """The numbers of pods from now on."""
        self._replicas, self._serving, self._out, self._existing = replicas, serving, out, existing
        self._limits = [(name, high * serving * (1 + _EXACT)) for name, high in self._high.items()]

    def add(self, at: float, seconds: float, load: Mapping[str, float] | None) -> None:
        """A stretch of time in which neither the pods nor the load (None: unknown) change."""
        self._seconds += seconds
        self._pod_seconds += self._existing * seconds
        bucket = self._buckets[-1] if at < self._ends else self._next_bucket(at)
        bucket.seconds += seconds
        bucket.served += self._serving * seconds
        bucket.out += self._out * seconds
        if load is None:
            self._unknown += seconds
            self.streak = 0.0
            return
        value = load.get(self._first)
        if value is not None and self._serving:
            share = value / self._serving
            bucket.carried += share * seconds
            bucket.carrying += seconds
            bucket.highest = max(bucket.highest, share)
        self._judge(seconds, load)

    def _judge(self, seconds: float, load: Mapping[str, float]) -> None:
        is_over = False
        needed = self._minimum
        for name, limit in self._limits:
            value = load.get(name)
            if value is None:  # a metric that is not known asks for no fewer pods
                needed = self._replicas
                continue
            is_over = is_over or value > limit
            if self._replicas - self._out - needed > self._overshoot:
                needed = max(needed, ceil(value / self._high[name] * (1 - _EXACT)))
        if is_over:
            self._over_high += seconds
            self.streak += seconds
            self._longest = max(self._longest, self.streak)
        else:
            self.streak = 0.0
        if self._limits:
            self._overshoot = max(self._overshoot, self._replicas - self._out - needed)
        for name, capacity in self._capacity.items():
            value = load.get(name, 0.0)
            self._asked[name] += value * seconds
            self._lost[name] += max(0.0, value - capacity * self._serving) * seconds

    def _next_bucket(self, at: float) -> Bucket:
        if len(self._buckets) == MOST_BUCKETS:
            for first, second in zip(self._buckets[::2], self._buckets[1::2], strict=True):
                first.add(second)
            del self._buckets[1::2]
            self._length *= 2
        # On the grid of the present length, so that all buckets but those after a gap are equally long.
        begin = self._buckets[0].at
        begin += (at - begin) // self._length * self._length
        self._buckets.append(Bucket(begin, self._replicas, self._replicas))
        self._ends = begin + self._length
        return self._buckets[-1]

    def run(self, name: str) -> Run:
        """The figures, the chart and the first changes up to now."""
        shares = [self._lost[one] / asked for one, asked in self._asked.items() if asked]
        summary = Summary(
            seconds=self._seconds,
            unknown=self._unknown,
            over_high=self._over_high,
            longest=self._longest,
            shortfall=max(shares, default=0.0) if self._capacity else None,
            lost=next(iter(self._lost.values()), 0.0),
            changes=self._count,
            flaps=self._flaps,
            overshoot=self._overshoot,
            pod_seconds=self._pod_seconds,
            least=self._least,
            most=self._most,
            final=self._replicas,
        )
        buckets = [bucket for bucket in self._buckets if bucket.seconds]
        return Run(name=name, summary=summary, buckets=buckets, changes=self._changes)
