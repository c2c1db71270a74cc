"""The closed loop: a service for an autoscaler, played through a history.

The load of a serving pod is that of the service divided by the serving pods; so what an autoscaler does changes what it
sees next.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from adapter.commands.replay.history import Stretch
from adapter.commands.replay.model import Autoscaler, Change, Moment, Ranges, Setup, View
from adapter.commands.replay.pods import ServicePods
from adapter.commands.replay.score import Run, summarize

_EXACT = 1 + 1e-12
"""Of a load in floating point: what keeps a whole number from being rounded down."""


def play(
    history: Sequence[Stretch],
    setup: Setup,
    autoscaler: Autoscaler,
    high: Mapping[str, float],
    minimum: int = 1,
    *,
    skip: bool = True,
) -> Run:
    """Replay a history, which has a stretch, for an autoscaler; `high` and `minimum` are what it is judged by.

    With `skip`, syncs in which the autoscaler certainly keeps the count are left out, which changes no count.
    """
    loop = _Loop(history, setup, autoscaler, skip=skip)
    loop.play()
    summary = summarize(history, loop.changes, loop.moments, high, setup.capacity, minimum)
    return Run(name=autoscaler.name, summary=summary, changes=loop.changes, moments=loop.moments)


class _Loop:
    """One service with one autoscaler; `changes` and `moments` are what became of it."""

    def __init__(self, history: Sequence[Stretch], setup: Setup, autoscaler: Autoscaler, *, skip: bool) -> None:
        self._history, self._setup, self._autoscaler, self._skip = history, setup, autoscaler, skip
        first = history[0]
        self._pods = ServicePods(setup, first.at, deletes_pulled_out_first=autoscaler.deletes_pulled_out_first)
        self._sampler = Sampler(setup, self._pods)
        self._index = self._syncs = 0
        self._now = self._next_sync = first.at
        self._changed_at, self._version = first.at, -1
        self._sampler.note(first.at - setup.sample_age - setup.window - setup.sync, first.load)
        self.changes: list[Change] = []
        self.moments: list[Moment] = []

    def play(self) -> None:
        """Live through the history."""
        pods = self._pods
        for index, stretch in enumerate(self._history):
            self._index, self._now = index, stretch.at
            if stretch.pulled_out != pods.wanted_out:
                pods.pull_out(stretch.pulled_out, self._now)
            self._note()
            while (upcoming := min(self._next_sync, pods.next_event)) < stretch.end:
                self._now = max(self._now, upcoming)
                if pods.next_event <= upcoming:
                    pods.advance(upcoming)
                    self._note()
                if self._next_sync <= upcoming:
                    self._plan(self._syncs + 1)
                    self._sync()

    def _plan(self, sync: int) -> None:
        self._syncs, self._next_sync = sync, self._history[0].at + sync * self._setup.sync

    def _note(self) -> None:
        """Have the change of the load, or of the pods, noted."""
        pods = self._pods
        if pods.version != self._version:
            self._version, self._changed_at = pods.version, self._now
            self.moments.append(Moment(self._now, pods.replicas, len(pods.serving), len(pods.out)))
        self._sampler.note(self._now, self._history[self._index].load)

    def _sync(self) -> None:
        sampler, pods = self._sampler, self._pods
        is_known = sampler.measure(self._now)
        view, count = self._view(), pods.replicas
        wanted = self._autoscaler.sync(view)
        if wanted != count:
            self.changes.append(Change(self._now, count, wanted))
            pods.scale(wanted, self._now)
            self._note()
            self._autoscaler.watch(self._view())
        elif self._skip and is_known and not pods.starting and sampler.at - self._setup.window > self._changed_at:
            ranges = self._autoscaler.resting(view)
            if ranges is not None:
                self._rest(ranges)

    def _rest(self, ranges: Ranges) -> None:
        """Plan the last sync before a stretch in which an autoscaler that rests might change the count.

        Its memory depends on that sync alone, and no mean of loads within a range is outside.
        """
        history, index, begin = self._history, self._index, self._sampler.at - self._setup.window
        while index and history[index].at > begin:  # what the samples cover
            index -= 1
        while index < len(history) and self._is_inside(history[index], ranges):
            index += 1
        until = history[index].at if index < len(history) else history[-1].end
        if index < len(history) and history[index].pulled_out == self._pods.wanted_out:
            until += self._setup.sample_age  # samples show the load no sooner
        last = ceil((until - history[0].at) / self._setup.sync - 1e-6) - 1
        self._plan(max(self._syncs, last))

    def _is_inside(self, stretch: Stretch, ranges: Ranges) -> bool:
        if stretch.load is None or stretch.pulled_out != self._pods.wanted_out:
            return False
        load, serving = self._sampler.shown(stretch.load), self._sampler.serving
        return all(least <= load.get(name, -inf) / serving <= most for name, (least, most) in ranges.items())

    def _view(self) -> View:
        pods, sampler = self._pods, self._sampler
        shown, models, samples = pods.shown(), pods.models(), sampler.samples()
        return View(self._now, pods.replicas, shown, models, samples, sampler.loads, sampler.at, self._setup.window)


class _Note(NamedTuple):
    """From `at` on, this many pods share this load; None where it is unknown."""

    at: float
    load: Mapping[str, float] | None
    serving: int


class Sampler:
    """What a metrics source measures: averages over a window, a little old. A new pod has no sample for a window.

    The latest samples end `at` (seconds). `loads` are those of the service by metric, `shares` those of a serving pod
    (nano-units); a metric that was unknown in a part of the window has none.
    """

    def __init__(self, setup: Setup, pods: ServicePods) -> None:
        self._setup, self._pods = setup, pods
        self._notes: deque[_Note] = deque()
        self.at = 0.0
        self.loads: dict[str, int] = {}
        self.shares: dict[str, int] = {}

    @property
    def serving(self) -> int:
        """The pods that share the load."""
        return max(1, len(self._pods.serving))

    def shown(self, load: Mapping[str, float]) -> Mapping[str, float]:
        """As much of a load as the samples of throttled pods show."""
        most = {name: amount * self.serving for name, amount in self._setup.throttles.items()}
        return {name: min(value, most.get(name, inf)) for name, value in load.items()} if most else load

    def note(self, at: float, load: Mapping[str, float] | None) -> None:
        """The load, or the number of pods that share it, changed."""
        if self._notes and self._notes[-1].at == at:
            self._notes.pop()
        self._notes.append(_Note(at, None if load is None else self.shown(load), self.serving))

    def measure(self, now: float) -> bool:
        """Take the samples that are read now. False where the load was unknown: the samples before stay the latest."""
        window, at = self._setup.window, now - self._setup.sample_age
        begin, end, notes = at - window, at, self._notes
        while len(notes) > 1 and notes[1].at <= begin:
            notes.popleft()
        parts: list[tuple[Mapping[str, float], float, int]] = []
        for note in reversed(notes):
            if note.at < at or (not window and note.at == at):
                if note.load is None:
                    return False
                parts.append((note.load, (end - max(note.at, begin)) / window if window else 1.0, note.serving))
                end = note.at
        names = [name for name in parts[0][0] if all(name in load for load, _, _ in parts)]
        self.at = at
        self.loads = {name: int(sum(load[name] * part for load, part, _ in parts) * _EXACT) for name in names}
        self.shares = {
            name: int(sum(load[name] * part / serving for load, part, serving in parts) * _EXACT) for name in names
        }
        return True

    def samples(self) -> dict[str, dict[str, int]]:
        """The latest samples by metric and pod name (nano-units); a pulled-out pod uses nothing."""
        begin = self.at - self._setup.window
        idle = dict.fromkeys((pod.name for pod in self._pods.out if pod.ready_at <= begin), 0)
        serving = [pod.name for pod in self._pods.serving if pod.serving_since <= begin]
        return {name: dict.fromkeys(serving, share) | idle for name, share in self.shares.items()}
