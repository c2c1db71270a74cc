"""The figures of a run, gathered while it goes on: sums, a bounded chart and the first changes of the count."""

from collections.abc import Mapping
from math import ceil

from adapter.commands.replay.model import Bucket, Change, Run, Setup, Summary
from adapter.commands.replay.pods import ServicePods

CHANGES_KEPT = 10_000
MOST_BUCKETS = 1024
FLAP_SECONDS = 600.0
"""A change that is turned back within this time is a flap."""
_FIRST_BUCKET = 60.0
_EXACT = 1e-9
"""Loads that differ by less than this share of them are equal."""


class Score:
    """Gathers the figures of one run from its `pods`: `add` for every stretch of time, `changed` for every change.

    `high` are the high watermarks by metric (nano-units of a pod's plain usage); `minimum` pods are never too many.
    """

    def __init__(
        self, setup: Setup, pods: ServicePods, high: Mapping[str, float], minimum: int, at: float, first_metric: str
    ) -> None:
        self._pods, self._high, self._minimum, self._first = pods, high, minimum, first_metric
        self._capacity = setup.capacity
        self._seconds = self._unknown = self._over_high = self._longest = self._pod_seconds = 0.0
        self._lost = dict.fromkeys(setup.capacity, 0.0)
        self._asked = dict.fromkeys(setup.capacity, 0.0)
        self.streak = 0.0
        """Seconds since when a serving pod carries more than a high watermark."""
        self._changes: list[Change] = []
        self._last: Change | None = None
        self._count = self._flaps = self._overshoot = 0
        self._least = self._most = setup.replicas
        self._length = max(_FIRST_BUCKET, setup.sync)
        self._buckets = [Bucket(at, setup.replicas, setup.replicas)]
        self._ends = at + self._length

    def changed(self, change: Change) -> None:
        """The count was changed."""
        last, self._last = self._last, change
        is_back = last is not None and (last.after > last.before) != (change.after > change.before)
        self._flaps += bool(last and is_back and change.at - last.at <= FLAP_SECONDS)
        self._count += 1
        if len(self._changes) < CHANGES_KEPT:
            self._changes.append(change)
        bucket, count = self._buckets[-1], change.after
        self._least, self._most = min(self._least, count), max(self._most, count)
        bucket.least, bucket.most = min(bucket.least, count), max(bucket.most, count)

    def add(self, at: float, seconds: float, load: Mapping[str, float] | None) -> None:
        """A stretch of time in which neither the pods nor the load (None: unknown) change."""
        pods, serving = self._pods, len(self._pods.serving)
        self._seconds += seconds
        self._pod_seconds += pods.existing * seconds
        bucket = self._buckets[-1] if at < self._ends else self._next_bucket(at)
        bucket.seconds += seconds
        bucket.served += serving * seconds
        bucket.out += len(pods.out) * seconds
        if load is None:
            self._unknown += seconds
            self.streak = 0.0
            return
        value = load.get(self._first)
        if value is not None and serving:
            share = value / serving
            bucket.carried += share * seconds
            bucket.carrying += seconds
            bucket.highest = max(bucket.highest, share)
        for name, capacity in self._capacity.items():
            value = load.get(name, 0.0)
            self._asked[name] += value * seconds
            self._lost[name] += max(0.0, value - capacity * serving) * seconds
        is_over, needed, in_rotation = False, self._minimum, pods.replicas - len(pods.out)
        for name, high in self._high.items():
            value = load.get(name)
            if value is None:  # a metric that is not known asks for no fewer pods
                needed = in_rotation
                continue
            is_over = is_over or value > high * serving * (1 + _EXACT)
            needed = max(needed, ceil(value / high * (1 - _EXACT)))
        self.streak = self.streak + seconds if is_over else 0.0
        self._over_high += seconds if is_over else 0.0
        self._longest = max(self._longest, self.streak)
        if self._high:
            self._overshoot = max(self._overshoot, in_rotation - needed)

    def _next_bucket(self, at: float) -> Bucket:
        if len(self._buckets) == MOST_BUCKETS:
            for first, second in zip(self._buckets[::2], self._buckets[1::2], strict=True):
                first.add(second)
            del self._buckets[1::2]
            self._length *= 2
        # On the grid of the present length, so that all buckets but those after a gap are equally long.
        begin = self._buckets[0].at
        begin += (at - begin) // self._length * self._length
        self._buckets.append(Bucket(begin, self._pods.replicas, self._pods.replicas))
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
            final=self._pods.replicas,
        )
        buckets = [bucket for bucket in self._buckets if bucket.seconds]
        return Run(name=name, summary=summary, buckets=buckets, changes=self._changes)
