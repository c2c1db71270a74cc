"""The closed loop: a service for an autoscaler, played through a history.

The load of a serving pod is that of the service divided by the serving pods; so what an autoscaler does changes what it
sees next.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, inf
from statistics import median_low
from typing import NamedTuple

from adapter.commands.replay.model import Autoscaler, Change, Ranges, Run, Setup, Stretch, Tick, View
from adapter.commands.replay.pods import ServicePods
from adapter.commands.replay.score import Score

_LEAST_TICK = 1.0
_STEPS_BRIDGED = 2.5
_EXACT = 1 - 1e-12
"""Of a load in floating point: what keeps a whole number from being rounded up."""


def stretches(ticks: Sequence[Tick], setup: Setup) -> list[Stretch]:
    """The stretches between the ticks, with those of unknown load; the last tick lasts as long as the one before.

    A tick holds until the next one, but for at most `setup.lasts` seconds or two and a half of the steps around it
    (their median): so one missing tick is bridged, also where the step of a history changes.
    """
    steps = [after.at - before.at for before, after in pairwise(ticks)]
    steps.append(max(_LEAST_TICK, steps[-1] if steps else setup.sync))
    found = []
    for index, (tick, step) in enumerate(zip(ticks, steps, strict=True)):
        holds = step
        if step > setup.lasts:
            around = steps[max(0, index - 2) : index + 3]
            holds = min(step, max(setup.lasts, _STEPS_BRIDGED * median_low(around)))
        found.append(Stretch(tick.at, tick.at + holds, tick.load or None, tick.pulled_out))
        if holds < step:
            found.append(Stretch(tick.at + holds, tick.at + step, None, tick.pulled_out))
    return found


class ServiceLoop:
    """One service with one autoscaler. `high` and `minimum` are what `score` judges it by.

    With `skip`, syncs in which the autoscaler certainly keeps the count are left out, which changes no count.
    """

    def __init__(
        self,
        setup: Setup,
        autoscaler: Autoscaler,
        first: Stretch,
        high: Mapping[str, float],
        minimum: int = 1,
        *,
        skip: bool = True,
    ) -> None:
        self._setup, self._autoscaler, self._skip = setup, autoscaler, skip
        self.pods = ServicePods(setup, first.at, deletes_pulled_out_first=autoscaler.deletes_pulled_out_first)
        self._sampler = Sampler(setup, self.pods)
        names = [*high, *setup.capacity, *(first.load or {})]
        self.score = Score(setup, self.pods, high, minimum, first.at, names[0] if names else "")
        self._load = first.load
        self._now = self._began = self._next_sync = first.at
        self._syncs = 0
        self._version = self.pods.version
        before = first.at - setup.sample_age - setup.window
        self._changed_at = before - 1
        self._resting: Ranges | None = None
        self._rested: View | None = None
        self._skipped: _Skipped | None = None
        self._sampler.note(before - setup.sync, first.load)

    def play(self, history: Sequence[Stretch]) -> Run:
        """Live through a history."""
        pods, score = self.pods, self.score
        for at, end, load, pulled_out in history:
            self._now, self._load = at, load
            if pulled_out != pods.wanted_out:
                pods.pull_out(pulled_out, at)
            self._note()
            while (upcoming := min(self._next_sync, pods.next_event)) < end:
                if upcoming > self._now:
                    score.add(self._now, upcoming - self._now, load)
                    self._now = upcoming
                if pods.next_event <= upcoming:
                    pods.advance(upcoming)
                    self._note()
                if self._next_sync <= upcoming:
                    self._syncs += 1
                    self._next_sync = self._began + self._syncs * self._setup.sync
                    self._sync()
            if end > self._now:
                score.add(self._now, end - self._now, load)
        return score.run(self._autoscaler.name)

    def _note(self) -> None:
        """Have the change of the load, or of the pods, noted."""
        if self.pods.version != self._version:
            self._make_up()
            self._version, self._changed_at, self._resting = self.pods.version, self._now, None
        self._sampler.note(self._now, self._load)

    def _sync(self) -> None:
        sampler, count = self._sampler, self.pods.replicas
        is_known, resting = sampler.measure(self._now), self._resting
        if is_known and resting is not None:
            shares = sampler.shares
            if all(least <= shares.get(name, -1.0) <= most for name, (least, most) in resting.items()):
                self._skipped = _Skipped(self._now, sampler.at, shares)
                return
        self._make_up()
        view = self._view()
        wanted = self._autoscaler.sync(view)
        if wanted != count:
            self.score.changed(Change(self._now, count, wanted))
            self.pods.scale(wanted, self._now)
            self._note()
            self._autoscaler.watch(self._view())
        elif self._skip:
            is_steady = is_known and self.pods.are_settled and sampler.at - self._setup.window > self._changed_at
            self._resting = self._autoscaler.resting(view) if is_steady else None
            self._rested = view

    def _make_up(self) -> None:
        """Play the last sync that was left out: the memory of an autoscaler that rested depends on that one alone."""
        skipped, self._skipped, rested = self._skipped, None, self._rested
        if skipped is None or rested is None:
            return
        serving = sum(not pod.pulled_out_annotation for pod in rested.pods)
        samples = {
            name: {pod.name: 0 if pod.pulled_out_annotation else ceil(share * _EXACT) for pod in rested.pods}
            for name, share in skipped.shares.items()
        }
        load = {name: ceil(share * serving * _EXACT) for name, share in skipped.shares.items()}
        self._autoscaler.sync(rested._replace(now=skipped.now, samples=samples, load=load, sampled_at=skipped.at))

    def _view(self) -> View:
        sampler, replicas = self._sampler, self.pods.replicas
        return View(
            now=self._now,
            replicas=replicas,
            pods=self.pods.shown(),
            samples=sampler.samples(),
            load=sampler.loads(),
            sampled_at=sampler.at,
            window=self._setup.window,
        )


class _Skipped(NamedTuple):
    """A sync that was left out: its time, that of its samples, and what they show of a serving pod."""

    now: float
    at: float
    shares: Mapping[str, float]


class _Note(NamedTuple):
    """From `at` on, this many pods share this load, as far as samples show it; None where it is unknown."""

    at: float
    load: Mapping[str, float] | None
    serving: int


class Sampler:
    """What a metrics source measures: averages over a window, a little old. A new pod has no sample for a window.

    `shares` are what the latest samples show of a serving pod, by metric (nano-units); they end `at` (seconds).
    """

    def __init__(self, setup: Setup, pods: ServicePods) -> None:
        self._setup, self._pods = setup, pods
        self._notes: deque[_Note] = deque()
        self._parts: list[tuple[float, _Note]] = []
        self.shares: Mapping[str, float] = {}
        self.at = 0.0

    def note(self, at: float, load: Mapping[str, float] | None) -> None:
        """The load, or the number of pods that share it, changed."""
        notes, serving, throttles = self._notes, max(1, len(self._pods.serving)), self._setup.throttles
        if load is not None and throttles:
            load = {name: min(value, throttles.get(name, inf) * serving) for name, value in load.items()}
        if notes and notes[-1].at == at:
            notes.pop()
        notes.append(_Note(at, load, serving))

    def measure(self, now: float) -> bool:
        """Take the samples that are read now. False where the load was unknown: the samples before stay the latest."""
        at = now - self._setup.sample_age
        begin, end, notes = at - self._setup.window, at, self._notes
        while len(notes) > 1 and notes[1].at <= begin:
            notes.popleft()
        parts: list[tuple[float, _Note]] = []
        for note in reversed(notes):
            if note.at < at or begin == at == note.at:
                if note.load is None:
                    return False
                parts.append((end - max(note.at, begin), note))
                end = note.at
        self._parts, self.at = parts, at
        self.shares = self._means(by_pod=True)
        return True

    def loads(self) -> dict[str, int]:
        """The load of the service that the latest samples are of, by metric (nano-units)."""
        return {name: ceil(value * _EXACT) for name, value in self._means(by_pod=False).items()}

    def samples(self) -> dict[str, dict[str, int]]:
        """The latest samples by metric and pod name (nano-units); a pulled-out pod uses nothing."""
        begin = self.at - self._setup.window
        serving = [pod.name for pod in self._pods.serving if pod.serving_since <= begin]
        idle = [pod.name for pod in self._pods.out if pod.ready_at <= begin]
        return {
            name: dict.fromkeys(serving, ceil(share * _EXACT)) | dict.fromkeys(idle, 0)
            for name, share in self.shares.items()
        }

    def _means(self, *, by_pod: bool) -> dict[str, float]:
        """The means over the window of every metric that is known in all of it."""
        length = sum(seconds for seconds, _ in self._parts) or len(self._parts)
        loads = [
            (note.load or {}, (seconds or 1.0) / length / (note.serving if by_pod else 1))
            for seconds, note in self._parts
        ]
        names = loads[0][0] if loads else {}
        return {
            name: sum(load[name] * weight for load, weight in loads)
            for name in names
            if len(loads) == 1 or all(name in load for load, _ in loads)
        }


def play(
    history: Sequence[Stretch],
    setup: Setup,
    autoscaler: Autoscaler,
    high: Mapping[str, float],
    minimum: int = 1,
    *,
    skip: bool = True,
) -> Run:
    """Replay a history, which has a stretch, for an autoscaler."""
    return ServiceLoop(setup, autoscaler, history[0], high, minimum, skip=skip).play(history)
