"""What a source measures of a replayed service: samples of its pods and the load of the whole service."""

from collections import deque
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from adapter.commands.replay.pods import ServicePod, ServicePods
from adapter.commands.replay.service import Setup

_MILLI = 1000
_LONGEST_REST = 3600.0
"""Syncs that were left out are made up for within this time: the longest window of an HPA."""
"""Durations are counted in whole milliseconds, so that averages are exact."""


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
        if not self.looks_back:
            if (seen := self.throttled(load)) is not None:
                self._latest = Measurement(self._at_once(seen), seen, now)
            return self._latest
        covered = self._covered(at)
        if covered:
            self._latest = self._averaged(at, covered)
        return self._latest

    def _at_once(self, load: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """The pods' present shares: all serving ones have the same."""
        names = [pod.name for pod in self._pods.serving]
        out = [pod.name for pod in self._pods.out]
        samples = {}
        for metric, value in load.items():
            of_metric = dict.fromkeys(names, -(-value // len(names)) if names else 0)
            if out:
                of_metric |= dict.fromkeys(out, self._setup.idle.get(metric, 0))
            samples[metric] = of_metric
        return samples

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
            known = [value * span for value, span in zip(values, spans, strict=True) if value is not None]
            if len(known) == len(values):
                load[name] = -(-sum(known) // max(1, length))
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
        parts: list[tuple[float, float, Fraction]] = []
        for part in covered:
            begin, end = part.begin, part.end
            turns = {turn for spell in spells for turn in spell if begin < turn < end} | {begin, end}
            if begin < pod.ready_at < end:
                turns.add(pod.ready_at)
            ordered = sorted(turns)
            for a, b in zip(ordered, [*ordered[1:], end] if begin == end else ordered[1:], strict=False):
                parts.append((a, b, self._use(metric, a, pod, spells, part)))
        return _mean(parts)

    def _use(self, metric: str, at: float, pod: ServicePod, spells: list[tuple[float, float]], part: _Part) -> Fraction:
        if any(begin <= at < end for begin, end in spells) and part.serving:
            return Fraction(part.load[metric], part.serving)
        idle = self._setup.idle if at >= pod.ready_at else self._setup.starting
        return Fraction(idle.get(metric, 0))


def _mean(parts: Iterable[tuple[float, float, Fraction]]) -> int:
    """The average over time, rounded up: a sample never asks for less than the load does."""
    whole, length, first = Fraction(0), 0, None
    for begin, end, value in parts:
        span = round((end - begin) * _MILLI)
        whole, length = whole + value * span, length + span
        first = value if first is None else first
    mean = whole / length if length else first or Fraction(0)
    return -(-mean.numerator // mean.denominator)
