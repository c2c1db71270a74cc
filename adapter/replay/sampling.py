"""What a source measures of a replayed service: samples of its pods and the load of the whole service."""

from collections import deque
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from adapter.replay.pods import ServicePod, ServicePods
from adapter.replay.service import Setup

_MILLI = 1000
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


class Sampler:
    """Measures a service. Keeps its past only as long as a sample may cover it."""

    def __init__(self, setup: Setup, pods: ServicePods) -> None:
        self._setup = setup
        self._pods = pods
        self._past: deque[_Stretch] = deque()
        self._latest = Measurement({}, {}, 0.0)
        self._caps = setup.capacity if setup.saturates else {}
        self.looks_back = setup.delay > 0 or bool(setup.window)
        self.reach = setup.delay + (setup.window or 0.0)
        """How far back (seconds) a sample that is read now may reach."""

    def note(self, at: float, load: Mapping[str, int] | None) -> None:
        """The load, or the pods that share it, changed."""
        past = self._past
        if past and past[-1].at == at:
            past.pop()
        past.append(_Stretch(at, len(self._pods.serving), load))
        oldest = at - self.reach - self._setup.sync
        while len(past) > 1 and past[1].at <= oldest:
            past.popleft()

    def measure(self, now: float, load: Mapping[str, int] | None) -> Measurement:
        """What a source tells at this time, at this load. Where the load is not known, what it told last."""
        at = now - self._setup.delay
        if not self.looks_back:
            if load is not None:
                self._latest = Measurement(self._at_once(load), load, now)
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
            cap = self._caps.get(metric)
            share = -(-value // len(names)) if names else 0
            of_metric = dict.fromkeys(names, share if cap is None else min(share, cap))
            if out:
                of_metric |= dict.fromkeys(out, self._setup.idle.get(metric, 0))
            samples[metric] = of_metric
        return samples

    def _covered(self, at: float) -> list[tuple[float, float, _Stretch]]:
        """The stretches of the window that ends at this time, with their begin and end; none where any is unknown."""
        begin = at - (self._setup.window or 0.0)
        covered = []
        ends = [*(stretch.at for stretch in islice(self._past, 1, None)), float("inf")]
        for stretch, end in zip(self._past, ends, strict=True):
            if begin == at and stretch.at <= at < end:
                return [] if stretch.load is None else [(at, at, stretch)]
            if stretch.at < at and end > begin:
                if stretch.load is None:
                    return []
                covered.append((max(stretch.at, begin), min(end, at), stretch))
        return covered

    def _averaged(self, at: float, covered: list[tuple[float, float, _Stretch]]) -> Measurement:
        metrics = [m for m in covered[-1][2].load or {} if all(m in (one[2].load or {}) for one in covered)]
        begin = covered[0][0]
        samples: dict[str, dict[str, int]] = {metric: {} for metric in metrics}
        steady: dict[str, int] = {}
        for pod in (*self._pods.serving, *self._pods.out):
            if pod.ready_at > at:
                continue
            is_steady = pod.carries_since is not None and pod.carries_since <= begin
            for metric in metrics:
                if not is_steady:
                    samples[metric][pod.name] = self._of_pod(metric, pod, covered)
                    continue
                if metric not in steady:
                    steady[metric] = self._of_pod(metric, pod, covered)
                samples[metric][pod.name] = steady[metric]
        load = {
            metric: _mean((a, b, Fraction((one.load or {})[metric])) for a, b, one in covered) for metric in metrics
        }
        return Measurement(samples, load, at)

    def _of_pod(self, metric: str, pod: ServicePod, covered: list[tuple[float, float, _Stretch]]) -> int:
        """A pod's average over the window: its share while it carried load, else what it used idle or starting."""
        spells = [*pod.spells, *([] if pod.carries_since is None else [(pod.carries_since, float("inf"))])]
        parts: list[tuple[float, float, Fraction]] = []
        for begin, end, stretch in covered:
            turns = {turn for spell in spells for turn in spell if begin < turn < end} | {begin, end}
            if begin < pod.ready_at < end:
                turns.add(pod.ready_at)
            ordered = sorted(turns)
            for a, b in zip(ordered, [*ordered[1:], end] if begin == end else ordered[1:], strict=False):
                parts.append((a, b, self._use(metric, a, pod, spells, stretch)))
        value = _mean(parts)
        cap = self._caps.get(metric)
        return value if cap is None else min(value, cap)

    def _use(
        self, metric: str, at: float, pod: ServicePod, spells: list[tuple[float, float]], stretch: _Stretch
    ) -> Fraction:
        if any(begin <= at < end for begin, end in spells) and stretch.serving:
            return Fraction((stretch.load or {})[metric], stretch.serving)
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
