"""The figures of a run, from the load and the pods that there were at each moment."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import msgspec

from adapter.commands.replay.history import Stretch
from adapter.commands.replay.model import Amounts, Change, Moment

FLAP_SECONDS = 600.0
"""A change that is turned back within this time is a flap."""
_EXACT = 1e-9
"""Loads that differ by less than this share of them are equal."""


class Counts(msgspec.Struct, frozen=True):
    """The smallest, the average and the largest count, and the last one."""

    least: int
    average: float
    most: int
    final: int


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures of one run, as JSON has them. The load was unknown for some of its seconds: they are not judged.

    `over_high_seconds`: with more than a high watermark on a serving pod; `longest_over_high_seconds`: in a row.
    `shortfall_ratio`: the share of the load beyond the pods' capacity (0 to 1), None where no capacity is known.
    `flaps` are changes that turned back the one before within ten minutes. `overshoot`: the most replicas beyond what
    the high watermark needed at that moment.
    """

    seconds: float
    unknown_seconds: float
    replicas: Counts
    over_high_seconds: float
    longest_over_high_seconds: float
    shortfall_ratio: float | None
    change_count: int
    flaps: int
    overshoot: int
    pod_hours: float

    @property
    def risk(self) -> float:
        """The shortfall; without a capacity, the share of the time over a high watermark (0 to 1)."""
        if self.shortfall_ratio is not None:
            return self.shortfall_ratio
        return self.over_high_seconds / self.seconds if self.seconds else 0.0


class Run(NamedTuple):
    """What one autoscaler would have done."""

    name: str
    summary: Summary
    changes: Sequence[Change]
    moments: Sequence[Moment]


Piece = tuple[float, float, Mapping[str, float] | None, Moment]
"""When a part of a run begins, its length (seconds), and the load (None: unknown) and the pods in all of it."""


def pieces(history: Sequence[Stretch], moments: Sequence[Moment]) -> Iterator[Piece]:
    """The parts of a run in order of time. The first moment is at the beginning of the history, or before."""
    following = iter(moments)
    pods, upcoming = next(following), next(following, None)
    for stretch in history:
        at = stretch.at
        while at < stretch.end:
            while upcoming is not None and upcoming.at <= at:
                pods, upcoming = upcoming, next(following, None)
            until = stretch.end if upcoming is None else min(stretch.end, upcoming.at)
            yield at, until - at, stretch.load, pods
            at = until


def summarize(
    history: Sequence[Stretch],
    changes: Sequence[Change],
    moments: Sequence[Moment],
    high: Mapping[str, float],
    capacity: Amounts,
    minimum: int = 1,
) -> Summary:
    """Judge a run by the high watermarks (nano-units of a pod's plain usage); `minimum` pods are never too many."""
    seconds = unknown = over_high = longest = streak = pod_seconds = 0.0
    overshoot = 0
    lost, asked = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0.0)
    for _, length, load, pods in pieces(history, moments):
        seconds += length
        pod_seconds += pods.replicas * length
        if load is None:
            unknown += length
            streak = 0.0
            continue
        for name, carried in capacity.items():
            value = load.get(name, 0.0)
            asked[name] += value * length
            lost[name] += max(0.0, value - carried * pods.serving) * length
        is_over, needed, in_rotation = False, minimum, pods.replicas - pods.out
        for name, mark in high.items():
            known = load.get(name)
            if known is None:  # a metric that is not known asks for no fewer pods
                needed = in_rotation
                continue
            is_over = is_over or known > mark * pods.serving * (1 + _EXACT)
            needed = max(needed, ceil(known / mark * (1 - _EXACT)))
        streak = streak + length if is_over else 0.0
        over_high += length if is_over else 0.0
        longest = max(longest, streak)
        if high:
            overshoot = max(overshoot, in_rotation - needed)
    counts = [moments[0].replicas, *(change.after for change in changes)]
    shares = [lost[name] / amount for name, amount in asked.items() if amount]
    flaps = sum(
        after.at - before.at <= FLAP_SECONDS and (before.after > before.before) != (after.after > after.before)
        for before, after in pairwise(changes)
    )
    return Summary(
        seconds=seconds,
        unknown_seconds=unknown,
        replicas=Counts(min(counts), pod_seconds / seconds, max(counts), moments[-1].replicas),
        over_high_seconds=over_high,
        longest_over_high_seconds=longest,
        shortfall_ratio=max(shares, default=0.0) if capacity else None,
        change_count=len(changes),
        flaps=flaps,
        overshoot=overshoot,
        pod_hours=pod_seconds / 3600,
    )
