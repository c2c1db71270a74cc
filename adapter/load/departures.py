"""Pods that left: their load went to the others, whose samples do not know of it yet.

Without that, the same samples shrink a service again at each look: 20 pods at 300m under a low watermark of 400m need
15; once five have left, the same samples say 15 pods at 300m, which need 11.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from adapter.load.memory import Departed, Memory
from adapter.load.pods import FINISHED_PHASES, Pod

REMEMBERED_SECONDS = 900.0


class DepartedLoad:
    """The load of departed pods in one metric; `lasts` are their last samples (nano-units, 0 where there is none)."""

    def __init__(self, lasts: Iterable[int] = ()) -> None:
        self._lasts = sorted(lasts)
        self._sums = [0, *accumulate(self._lasts)]

    def __len__(self) -> int:
        return len(self._lasts)

    def over(self, average: Fraction) -> Fraction:
        """The sum over the pods of the larger of its last sample and this average (nano-units)."""
        smaller = bisect_right(self._lasts, average)
        return smaller * average + self._sums[-1] - self._sums[smaller]


NOBODY_LEFT = DepartedLoad()


def departed_load(memory: Memory, metric: str, began_at: float | None) -> DepartedLoad:
    """The load of the pods that left at or after the beginning of the oldest sample that counts (None: none does)."""
    if began_at is None or not memory.departed:
        return NOBODY_LEFT
    left = [pod.last_sample.get(metric) for pod in memory.departed.values() if pod.at >= began_at]
    return DepartedLoad(sample.value if sample is not None else 0 for sample in left) if left else NOBODY_LEFT


def after_departures(memory: Memory, pods: Sequence[Pod], now: float) -> Memory:
    """The memory once these pods are all there are: who served and is gone, terminating or finished has departed.

    A pod that was out when it left carried no load.
    """
    there = {pod.uid for pod in pods if not pod.deleting and pod.phase not in FINISHED_PHASES}
    left = {uid: known for uid, known in memory.pods.items() if known.served and uid not in there}
    if not left:
        return memory
    departed = {uid: Departed(now, dict(known.last_sample)) for uid, known in left.items() if known.out_since is None}
    # A pod leaves once, though it is seen terminating for a while.
    remaining = {uid: replace(known, served=False) for uid, known in left.items()}
    return replace(memory, pods={**memory.pods, **remaining}, departed={**memory.departed, **departed})


def forgotten(memory: Memory, began: Iterable[float | None], now: float) -> Memory:
    """The memory without the departed pods that every sample began after, and without those of 15 min ago.

    `began` is when the oldest sample of each metric began; None where none counts, which forgets nobody.
    """
    if not memory.departed:
        return memory
    moments = list(began)
    oldest = min((at for at in moments if at is not None), default=0.0) if None not in moments else 0.0
    kept = _kept(memory.departed, oldest, now)
    return memory if kept == memory.departed else replace(memory, departed=kept)


def _kept(departed: Mapping[str, Departed], oldest: float, now: float) -> dict[str, Departed]:
    return {
        uid: pod if pod.at <= now else pod._replace(at=now)
        for uid, pod in departed.items()
        if pod.at >= oldest and now - pod.at <= REMEMBERED_SECONDS
    }
