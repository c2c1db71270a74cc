"""A quick model of a service on CPU with the stock HPA or a policy, for searches: 30 times quicker than `replay`.

It knows only what the benchmark plays: equal pods whose limit is their capacity, ticks and syncs every `STEP`, samples
that are 5 s old, pods that are gone within a step. Tests and the benchmark itself compare it with `replay`, whose
counts it gives.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from adapter.commands.replay.score import FLAP_SECONDS
from adapter.commands.replay.service import Summary
from adapter.load.bounds import SATURATED
from adapter.load.quantity import NANO
from lab.benchmarks.control.services import CAPACITY, FIRST_REPLICAS, MAXIMUM, MINIMUM, STEP

_STOPS, _LATE = 5.0, 5.0
_MINUTE = 60.0
_HPA_TOLERANCE, _TOLERANCE = 0.1, 0.01
_SATURATED = float(SATURATED)
_FEW_PODS, _TWICE = 4, 2
_EXACT = 1e-9
_MILLI = CAPACITY / (NANO // 1000)


@dataclass(frozen=True, slots=True)
class Rules:
    """An autoscaler. `level`: the target or the high watermark, as a share of a pod's capacity.

    `ratio`: the low watermark as a share of the high one; None is the stock HPA. `window` of stabilization downwards
    in seconds, and how many `percent` of the pods may go in a minute (None: all). Pods `start` in so many steps, and
    samples are averages over as many as `covered`. `factor`: the policy's saturationFactor; `up_window`: of
    stabilization upwards in seconds.
    """

    level: float
    ratio: float | None = None
    window: float = 300.0
    percent: float | None = None
    start: int = 2
    covered: int = 1
    factor: float = 1.25
    up_window: float = 0.0

    @property
    def highest(self) -> float:
        """The highest level that samples can pass by the tolerance of the stock HPA or of the policy."""
        if self.ratio is None:
            return 1 / (1 + _HPA_TOLERANCE)
        return (1 if self.factor > 1 else _SATURATED) / (1 + _TOLERANCE)


@dataclass(slots=True)
class _Pods:
    """The pods of the service: those that `serve`, and the others by the tick at which they will or at which they left.

    `fresh` ones serve, but since their start no whole window of samples has passed.
    """

    serve: int
    start: int
    covered: int
    tick: int = 0
    starting: deque[list[int]] = field(default_factory=deque)
    fresh: deque[list[int]] = field(default_factory=deque)
    departed: deque[list[int]] = field(default_factory=deque)

    @property
    def unmeasured(self) -> int:
        """Serving pods of which no sample counts."""
        return sum(count for _, count in self.fresh)

    @property
    def coming(self) -> int:
        return sum(count for _, count in self.starting)

    def advance(self, tick: int) -> None:
        self.tick = tick
        while self.starting and self.starting[0][0] <= tick:
            begun = self.starting.popleft()
            self.serve += begun[1]
            self.fresh.append(begun)
        for past in (self.fresh, self.departed):
            while past and past[0][0] < tick - self.covered:
                past.popleft()

    def grow(self, count: int) -> None:
        self.starting.append([self.tick + self.start, count])

    def shrink(self, count: int) -> None:
        """The youngest go first, as the ReplicaSet takes them."""
        count -= _take(self.starting, count)
        if count:
            self.serve -= count
            self.departed.append([self.tick, count])
            _take(self.fresh, count)


def _take(groups: deque[list[int]], count: int) -> int:
    left = count
    while left and groups:
        taken = min(left, groups[-1][1])
        groups[-1][1] -= taken
        left -= taken
        if not groups[-1][1]:
            groups.pop()
    return count - left


def play(loads: Sequence[float], rules: Rules) -> Summary:
    """The figures of an autoscaler on loads in pods' capacities, one a step."""
    count, pods = FIRST_REPLICAS, _Pods(FIRST_REPLICAS, rules.start, rules.covered)
    recommend = _stock if rules.ratio is None else _policy
    wanted: deque[tuple[float, int]] = deque([(0.0, count)])
    changes: deque[tuple[float, int]] = deque()
    number = flaps = 0
    last: tuple[float, bool] | None = None
    shares = deque([min(1.0, loads[0] / count)] * (rules.covered + 1))
    covered = sum(shares) - shares[0]
    lost = pod_seconds = 0.0
    for tick, load in enumerate(loads):
        now = tick * STEP
        pods.advance(tick)
        sample = (covered + (shares[0] - shares[-1]) * _LATE / STEP) / rules.covered
        desired = min(MAXIMUM, max(MINIMUM, recommend(rules, pods, count, sample)))
        while wanted and wanted[0][0] <= now - max(rules.window, rules.up_window):
            wanted.popleft()
        least = desired
        if rules.up_window and desired > count:
            least = min([desired, *(one for at, one in wanted if at > now - rules.up_window)])
        stable = min(max(count, least), max([desired, *(one for _, one in wanted)]))
        wanted.append((now, desired))
        reached = _limited(rules, changes, count, stable, now)
        if reached != count:
            number += 1
            grows = reached > count
            flaps += last is not None and now - last[0] <= FLAP_SECONDS and last[1] != grows
            last = now, grows
            changes.append((now, reached - count))
            if grows:
                pods.grow(reached - count)
            else:
                pods.shrink(count - reached)
                pod_seconds += _STOPS * (count - reached)
            count = reached
        shares.append(min(1.0, load / max(1, pods.serve)))
        shares.popleft()
        covered += shares[-1] - shares[0]
        pod_seconds += STEP * count
        lost += max(0.0, load - pods.serve)
    return Summary(
        seconds=STEP * len(loads),
        over_high=0.0,
        recovery=0.0,
        shortfall=lost / sum(loads),
        lost=0,
        changes=number,
        flaps=flaps,
        overshoot=0,
        pod_seconds=pod_seconds,
        peak=0,
        final=count,
    )


def _limited(rules: Rules, changes: deque[tuple[float, int]], count: int, wanted: int, now: float) -> int:
    """The count that the HPA's policies allow: up by 4 pods or twofold in a step, down by so many percent a minute."""
    while changes and changes[0][0] <= now - _MINUTE:
        changes.popleft()
    if wanted > count:
        start = count - sum(one for at, one in changes if at > now - STEP)
        return min(wanted, max(start + _FEW_PODS, start * _TWICE, count))
    if wanted < count and rules.percent is not None:
        start = count - sum(one for _, one in changes)
        return max(wanted, min(count, int(start * (1 - rules.percent / 100) + _EXACT)))
    return wanted


def _policy(rules: Rules, pods: _Pods, count: int, sample: float) -> int:
    measured, gaps = pods.serve - pods.unmeasured, pods.unmeasured + pods.coming
    if measured <= 0:
        return count
    high, low, used = rules.level, rules.level * (rules.ratio or 0.0), sample * measured
    above, saturated = high * (1 + _TOLERANCE) + _EXACT, rules.factor > 1 and sample >= _SATURATED
    if saturated or sample > above:
        over_all = used / pods.serve
        if saturated and (over_all > above or over_all >= _SATURATED):
            return max(count, ceil(rules.factor * used / min(high, 1.0) - _EXACT))
        return max(count, ceil(used / high - _EXACT)) if over_all > above else count
    below = low * (1 - _TOLERANCE) - _EXACT
    filled, over = used + gaps * high * (1 + _TOLERANCE), measured + gaps
    if sample >= below or filled / over >= below:
        return count
    filled += sample * sum(one for _, one in pods.departed)
    return min(count, max(1, floor(filled / low + _EXACT))) if filled / over < below else count


def _stock(rules: Rules, pods: _Pods, count: int, sample: float) -> int:
    sampled = sum(count for at, count in pods.fresh if at != pods.tick)  # but not over a whole window: not ready yet
    measured, missing = pods.serve - pods.unmeasured, pods.coming + pods.unmeasured - sampled
    if measured <= 0:
        return count
    # The controller reads whole milli-units: samples and the target rounded up, a mean rounded down.
    target, used = float(ceil(rules.level * _MILLI - _EXACT)), ceil(sample * _MILLI - _EXACT) * measured
    ratio, over = used / measured / target, measured
    if not missing and not (sampled and ratio > 1):
        return count if _holds(ratio) else ceil(ratio * measured - _EXACT)
    over += missing
    if ratio > 1:
        over += sampled
    else:
        used += missing * target
    again = used // over / target
    if _holds(again) or (ratio < 1 < again) or (again < 1 < ratio):
        return count
    wanted = ceil(again * over - _EXACT)
    return min(count, wanted) if again < 1 else max(count, wanted)


def _holds(ratio: float) -> bool:
    return 1 - _HPA_TOLERANCE <= ratio <= 1 + _HPA_TOLERANCE
