"""Pods that left, or were pulled out: their load went to the others, whose samples do not know of it yet.

Without that, the same samples shrink a service again at each look: 20 pods at 300m under a low watermark of 400m need
15; once five have left, the same samples say 15 pods at 300m, which need 11.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from adapter.load.membership import Classification
from adapter.load.memory import Departed, Memory, recent
from adapter.load.pods import FINISHED_PHASES, Pod, PodState
from adapter.load.spec import Bounds

DEPARTED_SECONDS = 900.0
_AWAY = {PodState.PULLED_OUT, PodState.TERMINATING, PodState.FINISHED}


_NO_LOAD = Fraction(0)


class DepartedLoad:
    """The load of departed pods in one metric; `lasts` are their last samples (nano-units, 0 where there is none)."""

    def __init__(self, lasts: Iterable[int] = (), *, unseen: bool = False) -> None:
        self.unseen = unseen
        """Whether the count changed unseen after the samples were taken: nobody knows who left then."""
        self._lasts = sorted(lasts)
        self._sums = [0, *accumulate(self._lasts)]

    def __len__(self) -> int:
        return len(self._lasts)

    def over(self, average: Fraction) -> Fraction:
        """The sum over the pods of the larger of its last sample and this average (nano-units)."""
        if not self._lasts:
            return _NO_LOAD
        smaller = bisect_right(self._lasts, average)
        return smaller * average + self._sums[-1] - self._sums[smaller]


NO_DEPARTURES = DepartedLoad()


def departed_load(memory: Memory, metric: str, began_at: float | None) -> DepartedLoad:
    """The load of the pods that left at or after the beginning of the oldest sample that counts (None: none does)."""
    if began_at is None:
        return NO_DEPARTURES
    if memory.unseen_change is not None and memory.unseen_change >= began_at:
        return DepartedLoad(unseen=True)
    left = [pod.last_sample.get(metric) for pod in memory.departed.values() if pod.at >= began_at]
    return DepartedLoad(sample.value if sample is not None else 0 for sample in left) if left else NO_DEPARTURES


def after_departures(memory: Memory, pods: Sequence[Pod], now: float) -> Memory:
    """The memory once these pods are all there are: who served and is gone, terminating or finished has departed.

    A pod that was out when it left had carried no load since it was pulled out.
    """
    there = {pod.uid for pod in pods if not pod.deleting and pod.phase not in FINISHED_PHASES}
    left = {uid: known for uid, known in memory.pods.items() if known.served and uid not in there}
    if not left:
        return memory
    departed = {uid: _departed(memory, uid, now) for uid, known in left.items() if known.out_since is None}
    # A pod leaves once, though it is seen terminating for a while.
    remaining = {uid: replace(known, served=False) for uid, known in left.items()}
    return replace(memory, pods={**memory.pods, **remaining}, departed={**memory.departed, **departed})


def after_pull_outs(memory: Memory, classified: Mapping[str, Classification], now: float) -> Memory:
    """The memory once the pods' states are known: one that served and is pulled out leaves its load to the others too.

    One that is no longer out carries load itself, or is filled as a pod that may.
    """
    out = {
        uid: _departed(memory, uid, now)
        for uid, known in memory.pods.items()
        if known.served
        and known.out_since is None
        and uid in classified
        and classified[uid].state is PodState.PULLED_OUT
    }
    back = {uid for uid in memory.departed if uid in classified and classified[uid].state not in _AWAY}
    if not out and not back:
        return memory
    kept = {uid: pod for uid, pod in memory.departed.items() if uid not in back}
    return replace(memory, departed={**kept, **out})


def after_takeover(memory: Memory, bounds: Bounds, now: float) -> Memory:
    """The memory with the last change of the count from before this process looked, as the HPA or another one says.

    It is forgotten after as long as the pods that left, whatever windows the samples have.
    """
    if memory.looking_since is None:
        return memory
    told = (memory.unseen_change, memory.last_scale, bounds.last_scale)
    unseen = max((at for at in told if at is not None and at <= memory.looking_since), default=None)
    if unseen is not None and now - unseen > DEPARTED_SECONDS:
        unseen = None
    return memory if unseen == memory.unseen_change else replace(memory, unseen_change=unseen)


def _departed(memory: Memory, uid: str, now: float) -> Departed:
    return Departed(now, {name: sample for name, sample in memory.last_samples(uid).items() if recent(sample, now)})


def forget_departed(memory: Memory, now: float) -> Memory:
    """The memory without the departed pods of 15 min ago.

    Not sooner: of a source that is several (two metrics servers), one may answer older samples than another did before.
    """
    if not memory.departed:
        return memory
    kept = {
        uid: pod if pod.at <= now else pod._replace(at=now)
        for uid, pod in memory.departed.items()
        if now - pod.at <= DEPARTED_SECONDS
    }
    return memory if kept == memory.departed else replace(memory, departed=kept)
