"""Departed pods: they left or were pulled out, and their load went to others whose samples do not show it yet.

Without this, the same samples shrink a service again at every assessment: 20 pods at 300m under a low watermark of 400m
need 15; once five have left, the same samples say 15 pods at 300m, which need 11.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter

from adapter.load.membership import Classification
from adapter.load.memory import Departed, Memory, PodMemory, recent
from adapter.load.pods import FINISHED_PHASES, Pod, PodState
from adapter.load.spec import Bounds
from adapter.load.steps import Steps, mapped, selected

DEPARTED_SECONDS = 900.0
"""Departed pods are remembered for this long, whatever the windows of the samples."""
MARGIN_SECONDS = 5.0
"""The clocks that date samples and departures may differ by this much: the load of a pod that left so short a time
before a sample began may not be in that sample yet."""
_AWAY = {PodState.PULLED_OUT, PodState.TERMINATING, PodState.FINISHED}
_NO_LOAD = Fraction(0)


class DepartedLoad:
    """The load of departed pods in one metric. `lasts` are their last samples (nano-units; 0 for one without)."""

    def __init__(self, lasts: Iterable[int] = (), *, is_unknown: bool = False) -> None:
        self.is_unknown = is_unknown
        """Whether the count changed after the samples began and before this process observed it: which pods left?"""
        self._lasts = sorted(lasts)
        self._sums = [0, *accumulate(self._lasts)]

    def __len__(self) -> int:
        return len(self._lasts)

    def over(self, average: Fraction) -> Fraction:
        """The sum over the pods of the larger of their last sample and this average (nano-units)."""
        if not self._lasts:
            return _NO_LOAD
        smaller = bisect_right(self._lasts, average)
        return smaller * average + self._sums[-1] - self._sums[smaller]


NO_DEPARTURES = DepartedLoad()


def departed_load(memory: Memory, metric: str, began_at: float | None) -> DepartedLoad:
    """The load of the pods that left from MARGIN_SECONDS before `began_at` on: when the oldest sample began.

    None: no sample counts.
    """
    if began_at is None:
        return NO_DEPARTURES
    since = began_at - MARGIN_SECONDS
    if memory.unobserved_change is not None and memory.unobserved_change >= since:
        return DepartedLoad(is_unknown=True)
    left = [pod.last_sample.get(metric) for pod in memory.departed.values() if pod.at >= since]
    return DepartedLoad(sample.value if sample is not None else 0 for sample in left) if left else NO_DEPARTURES


def after_departures(memory: Memory, pods: Sequence[Pod], now: float) -> Steps[Memory]:
    """The memory after observing these pods: those that served and are gone, terminating or finished have departed.

    A pod that was out when it left carried no load any more.
    """
    if not memory.pods:
        return memory
    gone = yield from selected(lambda pod: pod.deleting or pod.phase in FINISHED_PHASES, pods)
    present = set((yield from mapped(attrgetter("uid"), pods))) - {pod.uid for pod in gone}
    yield
    known = memory.pods
    left = yield from selected(lambda uid: uid not in present and known[uid].served, known)
    return (yield from after_leaving(memory, {uid: known[uid] for uid in left}, now))


def after_leaving(memory: Memory, left: Mapping[str, PodMemory], now: float) -> Steps[Memory]:
    """The memory after these pods, which served, have left."""
    if not left:
        return memory
    departed = yield from _all_departed(memory, [uid for uid, known in left.items() if known.out_since is None], now)
    # A pod departs once, although it is observed as terminating for a while.
    kept = yield from mapped(lambda known: replace(known, served=False), left.values())
    remaining = dict(zip(left, kept, strict=True))
    return replace(memory, pods={**memory.pods, **remaining}, departed={**memory.departed, **departed})


def after_pull_outs(
    memory: Memory, classified: Mapping[str, Classification], now: float, among: Iterable[str] | None = None
) -> Steps[Memory]:
    """The memory after classifying the pods: one that served and is now pulled out leaves its load to others too.

    One that came back is no longer departed: it carries load itself, or its gap is filled. `among`: the UIDs of the
    pods whose state or memory may have changed; None: all.
    """
    pods = memory.pods

    def is_pulled_out(uid: str) -> bool:
        state = classified.get(uid)
        return state is not None and state.state is PodState.PULLED_OUT and uid in pods

    candidates = yield from selected(is_pulled_out, pods if among is None else among)
    uids = [uid for uid in candidates if pods[uid].served and pods[uid].out_since is None]
    out = yield from _all_departed(memory, uids, now)
    back = {uid for uid in memory.departed if uid in classified and classified[uid].state not in _AWAY}
    if not out and not back:
        return memory
    kept = {uid: pod for uid, pod in memory.departed.items() if uid not in back}
    return replace(memory, departed={**kept, **out})


def after_takeover(memory: Memory, bounds: Bounds, now: float) -> Memory:
    """The memory with the last change of the count from before this process began to observe.

    It comes from the HPA's status or from the previous process's memory, and is forgotten after DEPARTED_SECONDS.
    """
    if memory.observing_since is None:
        return memory
    changes = (memory.unobserved_change, memory.last_scale, bounds.last_scale)
    last = max((at for at in changes if at is not None and at <= memory.observing_since), default=None)
    if last is not None and now - last > DEPARTED_SECONDS:
        last = None
    return memory if last == memory.unobserved_change else replace(memory, unobserved_change=last)


def _all_departed(memory: Memory, uids: Sequence[str], now: float) -> Steps[dict[str, Departed]]:
    departed = yield from mapped(lambda uid: _departed(memory, uid, now), uids)
    return dict(zip(uids, departed, strict=True))


def _departed(memory: Memory, uid: str, now: float) -> Departed:
    return Departed(now, {name: sample for name, sample in memory.last_samples(uid).items() if recent(sample, now)})


def forget_departed(memory: Memory, now: float) -> Steps[Memory]:
    """The memory without the pods that departed more than DEPARTED_SECONDS ago.

    Not sooner: where a source has several servers (two metrics-servers), one may answer older samples than another did.
    """
    departed = memory.departed
    wrong = yield from selected(lambda uid: not 0 <= now - departed[uid].at <= DEPARTED_SECONDS, departed)
    if not wrong:
        return memory
    kept = dict(departed)
    for uid in wrong:
        at = kept.pop(uid)
        if at.at > now:
            kept[uid] = at._replace(at=now)
    return replace(memory, departed=kept)
