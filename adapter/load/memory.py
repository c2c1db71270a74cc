"""The memory of one policy, carried from one assessment to the next. Times are seconds since the epoch.

Only `away` outlives the process: in the status and in documents of `decide` it says since when pods are pulled out or
doubtful. A fresh process holds on the way down until its own samples cover the rest (`metric`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from adapter.load.pods import AWAY, GONE, Pod, PodAssessment, PodState
from adapter.load.roster import Roster
from adapter.load.spec import Bounds, Scale

LAST_SAMPLE_SECONDS = 300.0
"""For this long a sample stands for a pod's last usage; for a window longer, departed pods are remembered."""
FULL_SECONDS = 3600.0
"""The largest number of this time, of samples in windows or of scrape targets, is that of a whole value."""


class LastSample(NamedTuple):
    """A pod's newest sample of one metric that counted: its time and its bound (nano-units; 0: none was known yet).

    `gap_at`: when samples came again after the last gap (seconds; 0: never).
    """

    at: float
    bound: int
    gap_at: float = 0.0


class PodMemory(NamedTuple):
    """The memory of one pod: its state, and since when it has that, or is pulled out or doubtful.

    `registered`: a list of the registry had it since its UID exists. `absent_since`: the first of the lists in a row
    that lacked it while it was Ready. `was_out`: it was pulled out, and has only been doubtful since. `turned_at`: when
    this process saw it turn pulled out or doubtful. `back_since`: when it saw it come back from being pulled out, or
    registered late.
    """

    state: PodState | None = None
    since: float = 0.0
    registered: bool = False
    absent_since: float | None = None
    was_out: bool = False
    turned_at: float | None = None
    back_since: float | None = None

    def has_turned(self, since: float) -> bool:
        """Whether the pod turned pulled out or doubtful since then."""
        return self.turned_at is not None and self.turned_at >= since


NEW_POD = PodMemory()

Numbers = tuple[tuple[float, int], ...]
"""The numbers of the last FULL_SECONDS with their times; of equal ones in a row the first and the last."""


class Departed(NamedTuple):
    """A pod that is gone: until when it carried load, and its last samples by metric (nano-units)."""

    at: float
    last: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MetricMemory:
    """The memory of one metric: pods' last samples by UID, and since when usage is beyond a watermark.

    `medians`: the median numbers of samples in the windows of the pods in service. `targets`: the numbers of scrape
    targets, by UID of pods with several, and of all OTHERS; and how many own pods a total has READ. `own`: the names
    and addresses of the target's own pods in the answers of the same time, with their last times.
    """

    last: Mapping[str, LastSample] = field(default_factory=dict)
    medians: Numbers = ()
    above_since: float | None = None
    below_since: float | None = None
    targets: Mapping[str, Numbers] = field(default_factory=dict)
    own: Mapping[str, float] = field(default_factory=dict)


def extended(numbers: Numbers, number: int | None, now: float) -> Numbers:
    """The numbers with the current one (None: not known)."""
    kept = [each for each in numbers if now - each[0] <= FULL_SECONDS]
    if number is not None:
        if [each[1] for each in kept[-2:]] == [number, number]:
            kept.pop()
        kept.append((now, number))
    return tuple(kept)


def largest(numbers: Numbers | None) -> int:
    """The largest of the numbers; 0 without any."""
    return max((number for _, number in numbers or ()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one policy. `assess` returns the next one; `decide` never changes it.

    `started_at`: when this process took the policy over (None: it has watched for long). `changed_at`, `rose_at`: when
    the watched count last changed, and rose. `error_since`: since when nothing can be decided.
    """

    pods: Mapping[str, PodMemory] = field(default_factory=dict)
    departed: Mapping[str, Departed] = field(default_factory=dict)
    metrics: Mapping[str, MetricMemory] = field(default_factory=dict)
    started_at: float | None = None
    last_replicas: int | None = None
    changed_at: float | None = None
    rose_at: float | None = None
    error_since: float | None = None

    def pod(self, uid: str) -> PodMemory:
        """The memory of a pod."""
        return self.pods.get(uid, NEW_POD)

    def metric(self, name: str) -> MetricMemory:
        """The memory of a metric."""
        return self.metrics.get(name) or MetricMemory()

    def left_since(self, since: float) -> list[Departed]:
        """The pods that left since then: others carry their load now."""
        return [departed for departed in self.departed.values() if departed.at >= since]


def after_instances(
    memory: Memory, pods: Iterable[Pod], roster: Roster | None, listed: Mapping[str, Any], now: float
) -> Memory:
    """The memory after the registry's latest valid list; `listed` has the UIDs of the pods that it names.

    A pod that registers after a list without it, while it was Ready, comes into service then.
    """
    if roster is None or not roster.valid:
        return memory
    at, after = min(roster.at, now), dict(memory.pods)
    for pod in pods:
        remembered = after.get(pod.uid, NEW_POD)
        if pod.uid in listed and remembered.registered and remembered.absent_since is None:
            continue
        if pod.uid in listed:
            is_late = remembered.absent_since is not None and not remembered.registered
            back = now if is_late else remembered.back_since
            remembered = remembered._replace(registered=True, absent_since=None, back_since=back)
        elif not pod.is_ready or at < pod.ready_since:
            remembered = remembered._replace(absent_since=None)
        elif remembered.absent_since is None or remembered.absent_since < pod.ready_since:
            remembered = remembered._replace(absent_since=at)
        after[pod.uid] = remembered
    return replace(memory, pods=after)


def after_states(memory: Memory, assessed: Iterable[PodAssessment], now: float, longest_window: float) -> Memory:
    """The memory after classifying the pods. Pods that are gone have departed, and are forgotten after a while."""
    pods: dict[str, PodMemory] = {}
    for pod, state, *_ in assessed:
        if state in GONE:
            continue
        was = memory.pod(pod.uid)
        if was.state is state is PodState.SERVING and not was.was_out:
            pods[pod.uid] = was
            continue
        was_out = state is PodState.PULLED_OUT or (was.was_out and state is PodState.DOUBTFUL)
        is_away, was_away = state in AWAY, was.state in AWAY
        is_back = (was.was_out or was.state is PodState.PULLED_OUT) and not was_out
        pods[pod.uid] = was._replace(
            state=state,
            since=was.since if was.state is state or (is_away and was_away) else now,
            was_out=was_out,
            turned_at=None if not is_away else was.turned_at if was.state is None or was_away else now,
            back_since=now if is_back else was.back_since,
        )
    departed = {
        uid: left
        for uid, left in memory.departed.items()
        if uid not in pods and now - left.at <= longest_window + LAST_SAMPLE_SECONDS
    }
    for uid, was in memory.pods.items():
        # One that only started never carried load; a pulled-out or unready pod did until it turned so.
        if uid not in pods and was.state is not None and was.state is not PodState.STARTING:
            until = now if was.state in {PodState.SERVING, PodState.DOUBTFUL} else was.turned_at or was.since
            lasts = {name: metric.last[uid] for name, metric in memory.metrics.items() if uid in metric.last}
            recent = {name: last.bound for name, last in lasts.items() if now - last.at <= LAST_SAMPLE_SECONDS}
            departed[uid] = Departed(until, recent)
    return replace(memory, pods=pods, departed=departed)


def after_scale(memory: Memory, scale: Scale, now: float) -> Memory:
    """The memory of the watched count, and of its last observed change and rise."""
    before = memory.last_replicas
    if before == scale.replicas:
        return memory
    if before is None:
        return replace(memory, last_replicas=scale.replicas)
    rose_at = now if scale.replicas > before else memory.rose_at
    return replace(memory, last_replicas=scale.replicas, changed_at=now, rose_at=rose_at)


def last_scaled(memory: Memory, bounds: Bounds, now: float) -> float | None:
    """When the count last changed, by the HPA's status or as observed; a time in the future counts as now."""
    return max((min(at, now) for at in (memory.changed_at, bounds.last_scale) if at is not None), default=None)


def lasting(since: float | None, now: float, *, holds: bool) -> float | None:
    """Since when something holds without a break (seconds); None where it does not hold now."""
    return None if not holds else now if since is None else min(since, now)
