"""The closed loop: one pass over a history, one service for each autoscaler.

The load of a serving pod is that of the service divided by the serving pods; so what an autoscaler does changes what it
sees next.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from math import ceil, inf
from typing import NamedTuple

from adapter.commands.replay.pods import ServicePod, ServicePods
from adapter.commands.replay.score import Score
from adapter.commands.replay.service import (
    Autoscaler,
    History,
    Judge,
    Rest,
    RestingAutoscaler,
    Run,
    Setup,
    Tick,
    View,
    WatchingAutoscaler,
)

_LEAST_TICK = 1.0
_STEPS_BRIDGED = 2.5
_LONGEST_REST = 3600.0
"""Syncs that were left out are made up for within this time: the longest window of an HPA."""
_MILLI = 1000
"""Durations are counted in whole milliseconds, so that averages are exact."""


def simulate(
    history: History, setup: Setup, autoscalers: Sequence[Autoscaler], judge: Judge, *, skip: bool = True
) -> list[Run]:
    """Replay a history once for all autoscalers. Returns no run for an empty history.

    Ticks are read one by one; the last one lasts as long as the one before. With `skip`, syncs of autoscalers that
    surely keep the count are left out, which changes no result.
    """
    loops: list[ServiceLoop] = []
    previous: Tick | None = None
    lasted = setup.sync
    for tick in with_gaps(history, setup.lasts):
        if previous is None:
            loops = [ServiceLoop(setup, autoscaler, judge, tick, skip=skip) for autoscaler in autoscalers]
        else:
            lasted = tick.at - previous.at if previous.load else lasted
            for loop in loops:
                loop.step(previous, tick.at)
        previous = tick
    if previous is not None:
        for loop in loops:
            loop.step(previous, previous.at + max(lasted, _LEAST_TICK))
    return [loop.run() for loop in loops]


def with_gaps(history: History, lasts: float) -> Iterator[Tick]:
    """The ticks, and one without a load where a gap begins.

    A tick holds until the next one, but at most for `lasts` seconds or two and a half of the steps around it, their
    median: so one missing tick is bridged, also where the step of a history changes on the way.
    """
    ticks = iter(history)
    ahead = deque(islice(ticks, 4))
    before: deque[float] = deque(maxlen=2)
    while ahead:
        tick = ahead.popleft()
        yield tick
        if not ahead:
            return
        step = ahead[0].at - tick.at
        if step > lasts:
            steps = sorted([*before, step, *(after.at - before.at for before, after in pairwise(ahead))])
            holds = max(lasts, _STEPS_BRIDGED * steps[len(steps) // 2])
            if holds < step:
                yield Tick(tick.at + holds, {}, tick.pulled_out)
        before.append(step)
        ahead.extend(islice(ticks, 1))


class _Skipped(NamedTuple):
    """A sync that was left out: its time, the load then, and the load that its samples show."""

    at: float
    load: Mapping[str, int] | None
    seen: Mapping[str, int]


class ServiceLoop:
    """One service with one autoscaler. `now` is how far it has come (seconds); `pods` and `load` are readable."""

    def __init__(self, setup: Setup, autoscaler: Autoscaler, judge: Judge, first: Tick, *, skip: bool = True) -> None:
        self._setup = setup
        self._autoscaler = autoscaler
        self._resting = autoscaler if skip and isinstance(autoscaler, RestingAutoscaler) else None
        deletes_first = bool(getattr(autoscaler, "deletes_pulled_out_first", False))
        self.pods = ServicePods(setup, first.at, deletes_pulled_out_first=deletes_first)
        self.load: Mapping[str, int] | None = None
        self.now = first.at
        self._sampler = Sampler(setup, self.pods)
        names = [*judge.high, *setup.capacity, *first.load]
        self.score = Score(setup, judge, first.at, names[0] if names else "")
        self._replicas = setup.replicas
        self._begun = first.at
        self._syncs = 0
        self._next_sync = first.at
        self._rest: Rest | None = None
        self._held_at = self._steady_since = -inf
        self._skipped: list[_Skipped] = []
        self._counted = -1
        if self._sampler.looks_back:  # as if the first tick had lasted for long
            self._sampler.note(first.at - self._sampler.reach - setup.sync, first.load)

    def run(self) -> Run:
        """The run up to now."""
        return self.score.run(self._autoscaler.name)

    def step(self, tick: Tick, end: float) -> None:
        """Live through a tick, until `end`. A tick without any load tells that nobody recorded it."""
        self.now = tick.at
        if tick.pulled_out != self.pods.wanted_out:
            self._settle_skipped()
            self.pods.pull_out(tick.pulled_out, tick.at)
        self.load = tick.load
        self._note()
        if not tick.load:  # nobody knows it from now on
            self._settle_skipped()
            self._rest = None
            self.load = None
            self._note()
        self._advance(end)

    def _note(self) -> None:
        """Have the change of the load, or of the pods, noted."""
        pods = self.pods
        if pods.version != self._counted:
            self._counted = pods.version
            self._rest, self._steady_since = None, -inf
            self.score.pods(pods.replicas, len(pods.serving), len(pods.out), pods.existing)
        if self._sampler.looks_back:
            self._sampler.note(self.now, self.load)

    def _advance(self, end: float) -> None:
        pods, score = self.pods, self.score
        while (upcoming := min(self._next_sync, pods.next_event)) < end:
            if upcoming > self.now:
                score.add(self.now, upcoming - self.now, self.load)
                self.now = upcoming
            if pods.next_event <= self.now:
                self._settle_skipped()
                pods.advance(self.now)
                self._note()
            if self._next_sync <= self.now:
                self._syncs += 1
                self._next_sync = self._begun + self._syncs * self._setup.sync
                if self._rest is None or not self._keeps(self._rest):
                    self._settle_skipped()
                    self._sync_at(self.now, self.load)
        if end > self.now:
            score.add(self.now, end - self.now, self.load)
            self.now = end

    def _keeps(self, rest: Rest) -> bool:
        """Whether a sync now surely keeps the count, and so is left out."""
        now, sampler = self.now, self._sampler
        load = sampler.load(now) if sampler.looks_back else sampler.throttled(self.load)
        if load is None or now >= rest.until or now - sampler.reach <= self._steady_since:
            return False
        holds = False
        for name, bounds in rest.loads.items():
            value = load.get(name)
            if value is None or not bounds.floor <= value <= bounds.most:
                return False
            holds = holds or value >= bounds.least
        if holds:
            self._held_at = now
            self._skipped.clear()
        elif now - self._held_at >= rest.sinking:
            return False
        # Of syncs that recommend less than the count, earlier ones at a smaller load matter no more.
        while self._skipped and all(load[name] > self._skipped[-1].seen[name] for name in rest.loads):
            self._skipped.pop()
        self._skipped.append(_Skipped(now, self.load, load))
        return True

    def _settle_skipped(self) -> None:
        """Make up for syncs that were left out, before anything changes: then every memory is what it would be."""
        past, self._skipped = self._skipped, []
        for skipped in past:
            self._sync_at(skipped.at, skipped.load)

    def _sync_at(self, now: float, load: Mapping[str, int] | None) -> None:
        view = self._view(now, load)
        count = self._autoscaler.sync(view)
        if self._steady_since == -inf:
            self._steady_since = now
        if count != self._replicas:
            self._rest = None
            self.score.changed(self.now, self._replicas, count)
            self._replicas = count
            self.pods.scale(count, self.now)
            self._note()
            if isinstance(self._autoscaler, WatchingAutoscaler):
                self._autoscaler.watch(self._view(self.now, self.load))
        elif self._resting is not None and load is not None:
            # samples read now must cover no time before the last change of a pod
            is_steady = not self._sampler.looks_back or now - self._sampler.reach > self._steady_since
            self._rest = self._resting.rest(view) if is_steady else None
            if self._rest is not None:
                self._held_at = self._rest.held_at

    def _view(self, now: float, load: Mapping[str, int] | None) -> View:
        measured = self._sampler.measure(now, load)
        return View(
            now=now,
            replicas=self._replicas,
            status_replicas=self.pods.replicas,
            pods=self.pods.shown(),
            samples=measured.samples,
            load=measured.load,
            sampled_at=measured.at,
            window=self._setup.window,
        )


class Measurement(NamedTuple):
    """Samples by metric and pod name, and the load of the service by metric (nano-units), at a time (seconds)."""

    samples: Mapping[str, Mapping[str, int]]
    load: Mapping[str, int]
    at: float


class _Stretch(NamedTuple):
    """From `at` on, this many pods share this load; None where nobody knows it."""

    at: float
    serving: int
    load: Mapping[str, int] | None


class _Part(NamedTuple):
    """A part of a window in which nothing changed (seconds)."""

    begin: float
    end: float
    serving: int
    load: Mapping[str, int]


class Sampler:
    """Measures a service. Keeps its past only as long as a sample may cover it."""

    def __init__(self, setup: Setup, pods: ServicePods) -> None:
        self._setup = setup
        self._pods = pods
        self._past: deque[_Stretch] = deque()
        self._latest = Measurement({}, {}, 0.0)
        self.looks_back = setup.delay > 0 or bool(setup.window)
        self.reach = setup.delay + (setup.window or 0.0)
        """How far back (seconds) a sample that is read now may reach."""

    def note(self, at: float, load: Mapping[str, int] | None) -> None:
        """The load, or the pods that share it, changed."""
        past = self._past
        if past and past[-1].at == at:
            past.pop()
        past.append(_Stretch(at, len(self._pods.serving), self.throttled(load)))
        oldest = at - self.reach - _LONGEST_REST
        while len(past) > 1 and past[1].at <= oldest:
            past.popleft()

    def throttled(self, load: Mapping[str, int] | None) -> Mapping[str, int] | None:
        """The part of a load that shows in samples of the pods that serve now: each is throttled at its limit."""
        serving = len(self._pods.serving)
        if load is None or not serving or not self._setup.throttles:
            return load
        most = self._setup.throttles
        return {name: min(value, most.get(name, value) * serving) for name, value in load.items()}

    def measure(self, now: float, load: Mapping[str, int] | None) -> Measurement:
        """What a source tells at this time, at this load. Where the load is not known, what it told last."""
        at = now - self._setup.delay
        if not self.looks_back and (seen := self.throttled(load)) is not None:
            serving = [pod.name for pod in self._pods.serving]
            out = [pod.name for pod in self._pods.out]
            samples = {}
            for metric, value in seen.items():
                samples[metric] = dict.fromkeys(serving, -(-value // max(1, len(serving))))
                samples[metric] |= dict.fromkeys(out, self._setup.idle.get(metric, 0))
            self._latest = Measurement(samples, seen, now)
        elif self.looks_back and (covered := self._covered(at)):
            self._latest = self._averaged(at, covered)
        return self._latest

    def load(self, now: float) -> dict[str, int] | None:
        """The load of the service that samples read now are of; None where any of it is unknown."""
        covered = self._covered(now - self._setup.delay)
        return self._load(covered) if covered else None

    def _covered(self, at: float) -> list[_Part]:
        """The parts of the window that ends at this time; none where any is unknown."""
        begin, end = at - (self._setup.window or 0.0), float("inf")
        covered: list[_Part] = []
        for stretch in reversed(self._past):
            if stretch.at < at or begin == at == stretch.at:
                if stretch.load is None:
                    return []
                covered.append(_Part(max(stretch.at, begin), min(end, at), stretch.serving, stretch.load))
                if stretch.at <= begin:
                    break
            end = stretch.at
        return covered[::-1]

    def _load(self, covered: list[_Part]) -> dict[str, int]:
        """The average over the parts of every metric that is known in all of them, rounded up."""
        if len(covered) == 1:
            return dict(covered[0].load)
        spans = [round((part.end - part.begin) * _MILLI) for part in covered]
        length, load = sum(spans), {}
        for name in covered[0].load:
            values = [part.load.get(name) for part in covered]
            loads = [value * span for value, span in zip(values, spans, strict=True) if value is not None]
            if len(loads) == len(values):
                load[name] = -(-sum(loads) // max(1, length))
        return load

    def _averaged(self, at: float, covered: list[_Part]) -> Measurement:
        load, begin = self._load(covered), covered[0].begin
        samples: dict[str, dict[str, int]] = {metric: {} for metric in load}
        steady: dict[str, int] = {}
        for pod in (*self._pods.serving, *self._pods.out):
            if pod.ready_at > at:
                continue
            is_steady = pod.carries_since is not None and pod.carries_since <= begin
            for metric in load:
                if not is_steady:
                    samples[metric][pod.name] = self._of_pod(metric, pod, covered)
                    continue
                if metric not in steady:
                    steady[metric] = self._of_pod(metric, pod, covered)
                samples[metric][pod.name] = steady[metric]
        return Measurement(samples, load, at)

    def _of_pod(self, metric: str, pod: ServicePod, covered: list[_Part]) -> int:
        """A pod's average over the window: its share while it carried load, else what it used idle or starting."""
        spells = [*pod.spells, *([] if pod.carries_since is None else [(pod.carries_since, float("inf"))])]
        turns = [*(turn for spell in spells for turn in spell), pod.ready_at]
        whole, length, first = Fraction(0), 0, None
        for begin, end, serving, load in covered:
            for a, b in pairwise([begin, *sorted({turn for turn in turns if begin < turn < end}), end]):
                idle = self._setup.idle if a >= pod.ready_at else self._setup.starting
                carries = serving and any(since <= a < until for since, until in spells)
                use = Fraction(load[metric], serving) if carries else Fraction(idle.get(metric, 0))
                span = round((b - a) * _MILLI)
                whole, length = whole + use * span, length + span
                first = use if first is None else first
        # Rounded up: a sample never asks for less than the load does.
        return ceil(whole / length if length else first or 0)
