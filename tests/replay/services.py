"""Services for tests of the replay: histories, setups, policies and HPAs."""

import math
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction

from adapter.commands.replay.service import Autoscaler, Tick, View, WatchingAutoscaler
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds
from adapter.policy.hpa import CrossVersionReference, Hpa, ScalingPolicy, ScalingRules

START = 1_767_225_600.0
POD = NANO
"""A whole unit, such as one core, in nano-units."""


def steady(load: float, seconds: float, step: float = 15.0, **changes: object) -> Iterator[Tick]:
    """A constant load in whole units."""
    for index in range(int(seconds / step)):
        yield Tick(START + index * step, {"cpu": round(load * POD)}, **changes)  # type: ignore[arg-type]


def phases(*loads: tuple[float, float], step: float = 15.0) -> Iterator[Tick]:
    """Loads in whole units, each for so many seconds."""
    at = START
    for load, seconds in loads:
        for _ in range(int(seconds / step)):
            yield Tick(at, {"cpu": round(load * POD)})
            at += step


def wandering(seed: int, ticks: int, step: float = 15.0, pods: int = 10, metric: str = "cpu") -> list[Tick]:
    """A random history: waves, noise, jumps, pull-outs and gaps."""
    rng = random.Random(seed)
    at, out, level, found = START, 0, 1.0, []
    for index in range(ticks):
        if rng.random() < 0.01:
            level = rng.choice((0.0, 0.3, 1.0, 1.0, 1.0, 2.5))
        if rng.random() < 0.02:
            out = rng.randrange(4)
        if rng.random() < 0.004:
            at += rng.choice((150.0, 400.0, 1500.0))
        wave = 1 + 0.5 * math.sin(index / 200)
        noise = rng.gauss(1, rng.choice((0.0, 0.02)))
        load = {metric: max(0, round(level * wave * noise * pods * 0.8 * POD))}
        found.append(Tick(at, load, out, rng.randrange(8, 13)))
        at += step
    return found


def hpa(
    minimum: int = 1,
    maximum: int = 100,
    *,
    up: ScalingRules | None = None,
    down: ScalingRules | None = None,
    has_behavior: bool = True,
) -> Hpa:
    """An HPA without metrics, with tolerance 0 where nothing else is said."""
    exact = ScalingRules(tolerance=Fraction(0))
    return Hpa(
        namespace="shop",
        name="web",
        target=CrossVersionReference("apps/v1", "Deployment", "web"),
        bounds=Bounds(minimum=minimum, maximum=maximum),
        scale_up=up or exact,
        scale_down=down or exact,
        has_behavior=has_behavior,
    )


def rules(window: int | None, *policies: tuple[str, int, int]) -> ScalingRules:
    """One direction of behavior at tolerance 0."""
    made = tuple(ScalingPolicy(*one) for one in policies)
    return ScalingRules(tolerance=Fraction(0), stabilization=window, policies=made)


class Recorded:
    """Another autoscaler with a record of its views and counts; it never rests."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        self._autoscaler = autoscaler
        self.name = autoscaler.name
        self.deletes_pulled_out_first = bool(getattr(autoscaler, "deletes_pulled_out_first", False))
        self.views: list[View] = []
        self.counts: list[int] = []
        self.watched: dict[float, View] = {}

    def watch(self, view: View) -> None:
        """As the other one."""
        self.watched[view.now] = view
        if isinstance(self._autoscaler, WatchingAutoscaler):
            self._autoscaler.watch(view)

    def sync(self, view: View) -> int:
        """As the other one."""
        self.views.append(view)
        self.counts.append(self._autoscaler.sync(view))
        return self.counts[-1]


class Fixed:
    """Sets counts at given syncs, and otherwise leaves the count as it is."""

    deletes_pulled_out_first = False

    def __init__(self, counts: Mapping[int, int] | None = None, name: str = "fixed") -> None:
        self._counts = counts or {}
        self._syncs = -1
        self.name = name
        self.views: list[View] = []

    def sync(self, view: View) -> int:
        """The count of this sync."""
        self._syncs += 1
        self.views.append(view)
        return self._counts.get(self._syncs, view.replicas)
