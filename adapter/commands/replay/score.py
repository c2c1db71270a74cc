"""The figures of a run, gathered while it goes on: sums, a bounded chart and the first changes of the count."""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from adapter.commands.replay.service import Bucket, Change, Judge, Run, Setup, Summary

CHANGES_KEPT = 10_000
BUCKETS_MOST = 1024
FLAP_SECONDS = 600.0
"""A change that is turned back within this time is a flap."""
_FIRST_BUCKET = 60.0
_MILLI = 1000


class Score:
    """Gathers the figures of one run: `pods` whenever their numbers change, `add` for every stretch of time.

    Within a stretch nothing changes: neither the load nor the pods.
    """

    def __init__(self, setup: Setup, judge: Judge, at: float, first_metric: str) -> None:
        self._judge = judge
        self._capacity = setup.capacity
        self._first = first_metric
        self._seconds = self._unknown = self._over_high = self._recovery = self._streak = 0.0
        self._pod_seconds = 0.0
        self._lost: dict[str, int] = dict.fromkeys(setup.capacity, 0)
        self._asked: dict[str, int] = dict.fromkeys(setup.capacity, 0)
        self._overshoot = 0
        self._changes: list[Change] = []
        self._last_change: Change | None = None
        self._number_of_changes = self._flaps = 0
        self._peak = self._least = self._replicas = setup.replicas
        self._serving = self._out = self._existing = 0
        self._high: list[tuple[str, int]] = []
        self._full: list[tuple[str, int]] = []
        self._length = max(_FIRST_BUCKET, setup.sync)
        self._buckets: list[Bucket] = []
        self._bucket = Bucket(at, at + self._length, setup.replicas, setup.replicas)

    @property
    def is_over_high(self) -> bool:
        """Whether a serving pod carries more than a high watermark at the moment."""
        return self._streak > 0

    def changed(self, at: float, before: int, after: int) -> None:
        """The count was changed."""
        change = Change(at=at, before=before, after=after)
        last = self._last_change
        if last is not None and at - last.at <= FLAP_SECONDS and (last.after > last.before) != (after > before):
            self._flaps += 1
        self._last_change = change
        self._number_of_changes += 1
        if len(self._changes) < CHANGES_KEPT:
            self._changes.append(change)
        self._peak, self._least = max(self._peak, after), min(self._least, after)
        self._bucket.least, self._bucket.most = min(self._bucket.least, after), max(self._bucket.most, after)

    def pods(self, replicas: int, serving: int, out: int, existing: int) -> None:
        """The numbers of pods from now on. Precomputes the loads of the service at which something is to be noted."""
        self._replicas, self._serving, self._out, self._existing = replicas, serving, out, existing
        self._high = [(name, floor(high * serving)) for name, high in self._judge.high.items()]
        self._full = [(name, capacity * serving) for name, capacity in self._capacity.items()]

    def add(self, at: float, seconds: float, load: Mapping[str, int] | None) -> None:
        """A stretch of time at this load (nano-units by metric; None: nobody knows it)."""
        self._seconds += seconds
        self._pod_seconds += self._existing * seconds
        bucket = self._bucket
        if at >= bucket.end:
            bucket = self._next_bucket(at)
        bucket.seconds += seconds
        bucket.served += self._serving * seconds
        bucket.out += self._out * seconds
        if load is None:
            self._unknown += seconds
            self._streak = 0.0
            return
        value = load.get(self._first)
        if value is not None and self._serving:
            share = value / self._serving
            bucket.carried += share * seconds
            bucket.carrying += seconds
            if bucket.highest is None or share > bucket.highest:
                bucket.highest = share
        self._judged(seconds, load)

    def _judged(self, seconds: float, load: Mapping[str, int]) -> None:
        for name, limit in self._high:
            if load.get(name, 0) > limit:
                self._over_high += seconds
                self._streak += seconds
                self._recovery = max(self._recovery, self._streak)
                break
        else:
            self._streak = 0.0
        if self._full:
            milliseconds = round(seconds * _MILLI)
            for name, limit in self._full:
                value = load.get(name, 0)
                self._asked[name] += value * milliseconds
                if value > limit:
                    self._lost[name] += (value - limit) * milliseconds
        spare = self._replicas - self._out - self._judge.minimum
        for name, high in self._judge.high.items():
            if spare <= self._overshoot or name not in load:  # a metric that is not known asks for no fewer pods
                return
            spare = min(spare, self._replicas - self._out + -load[name] * high.denominator // high.numerator)
        if self._judge.high:
            self._overshoot = max(self._overshoot, spare)

    def _next_bucket(self, at: float) -> Bucket:
        self._buckets.append(self._bucket)
        if len(self._buckets) == BUCKETS_MOST:
            for first, second in zip(self._buckets[::2], self._buckets[1::2], strict=True):
                first.add(second)
            del self._buckets[1::2]
            self._length *= 2
        # On the grid of the present length, so that all buckets but those after a gap are equally long.
        first_at = self._buckets[0].at
        begin = first_at + (at - first_at) // self._length * self._length
        self._bucket = Bucket(begin, begin + self._length, self._replicas, self._replicas)
        return self._bucket

    def run(self, name: str) -> Run:
        """The figures, the chart and the first changes up to now."""
        shares = [Fraction(self._lost[name], self._asked[name]) for name in self._asked if self._asked[name]]
        summary = Summary(
            seconds=self._seconds,
            over_high=self._over_high,
            recovery=self._recovery,
            shortfall=float(max(shares)) if shares else 0.0 if self._capacity else None,
            lost=next(iter(self._lost.values()), 0) // _MILLI,
            changes=self._number_of_changes,
            flaps=self._flaps,
            overshoot=self._overshoot,
            pod_seconds=self._pod_seconds,
            peak=self._peak,
            final=self._replicas,
            least=self._least,
            unknown=self._unknown,
        )
        buckets = tuple(bucket for bucket in (*self._buckets, self._bucket) if bucket.seconds)
        return Run(name=name, summary=summary, buckets=buckets, changes=tuple(self._changes))
