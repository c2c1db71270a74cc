"""The fewest pods that a policy may ask for under a known load: what no fault may take a count below. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

RESOURCES = {"cpu", "memory"}
MEMORY_SHARE = Fraction(1, 2)
"""A pod's worth of memory, as a share of its limit."""
FORECAST = Fraction(1, 2)
"""What the floor's query says, as a share of the load."""


@dataclass(frozen=True)
class Metric:
    """A metric of a policy: its source, and its watermarks or its target in thousandths of a pod's worth of load."""

    source: str
    high: int | None = None
    low: int | None = None
    target: int | None = None
    of_limit: bool = False

    @property
    def is_resource(self) -> bool:
        return self.source in RESOURCES

    @property
    def is_floor(self) -> bool:
        return self.source == "floor"

    def written(self) -> dict[str, Any]:
        """The metric in a policy's spec."""
        made: dict[str, Any] = {"name": self.source}
        if self.is_resource:
            made["resource"] = {"name": self.source} | ({"of": "Limit"} if self.of_limit else {})
        else:
            made["query"] = {"name": self.source}
        for key, amount in (("highWatermark", self.high), ("lowWatermark", self.low), ("target", self.target)):
            if amount is not None:
                made[key] = f"{amount * MEMORY_SHARE / 10}%" if self.of_limit else f"{amount}m"
        return made | ({"floor": True} if self.is_floor else {})


@dataclass(frozen=True)
class Rules:
    """What bounds a policy's counts: its metrics, and the fields of its spec that matter here."""

    metrics: tuple[Metric, ...]
    spec: Mapping[str, Any] = field(hash=False)

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset("metrics" if one.is_resource else "prometheus" for one in self.metrics)

    def fewest(self, x: float) -> int:
        """The fewest pods that any of its metrics asks for at a load of `x` pods' worth."""
        return max(self.fewest_of(one, x) for one in self.metrics if not one.is_floor)

    def fewest_of(self, metric: Metric, x: float) -> int:
        load = Fraction(str(x)) * 1000
        if metric.target is not None:
            return math.ceil(load / self._most_of_one(metric.target))
        if self.spec.get("convergeTowards") == "High" and metric.high is not None:
            return min(math.ceil(load / metric.high), _down_to(load, metric.low))
        return _down_to(load, metric.low)

    def most(self, x: float) -> int:
        """The most pods that a metric asks for at such a load, beside those that replace others."""
        asked = [self.most_of(one, x) for one in self.metrics]
        fallback = self.spec.get("fallback") or {}
        return _up_to(max(*asked, fallback.get("replicas", 1)), self.spec.get("multipleOf") or 1)

    def most_of(self, metric: Metric, x: float) -> int:
        load = Fraction(str(x)) * 1000
        if metric.is_floor:
            return math.ceil(load * FORECAST / (metric.high or 1))
        if metric.target is not None:
            return math.ceil(load / metric.target) + self.spec.get("stepUp", 0)
        needed = math.ceil(load / (metric.high or 1))
        drifts = self.spec.get("convergeTowards") == "Low"
        return max(needed, _down_to(load, metric.low)) if drifts else needed

    def _most_of_one(self, target: int) -> Fraction:
        """What a pod may have to carry after a step down: the target, for strategy Step with its tolerance."""
        if self.spec.get("strategy") == "Step":
            return target * (1 + Fraction(self.spec["stepTolerance"], 100))
        return Fraction(target)


def _up_to(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _down_to(load: Fraction, low: int | None) -> int:
    return 10**6 if low is None else max(1, math.floor(load / low))


@dataclass(frozen=True)
class Known:
    """What was true from a moment on (seconds): the load, the rules, and the HPA's bounds."""

    at: float
    x: float
    rules: Rules
    minimum: int
    maximum: int


def fewest_since(history: Sequence[Known], end: float, reach: Callable[[str], float]) -> int:
    """The fewest pods that were needed at the end, or at a moment that a sample may still tell of then.

    `reach` says how far back the samples of a source may be (seconds). Each metric counts by itself, since samples of
    different metrics may be of different moments. A metric that a policy got meanwhile bounds nothing yet.
    """
    sources = {metric.source for metric in history[-1].rules.metrics}
    bounds = [_fewest_of(source, list(states(history, end - reach(source), end))) for source in sources]
    now = list(states(history, end - max(map(reach, sources)), end))
    return min(max(bounds), *(one.maximum for one in now))


def most_since(history: Sequence[Known], end: float, reach: Callable[[str], float]) -> int:
    """The most pods that any metric asked for at the end, or at a moment that a sample may still tell of then."""
    longest = max(reach(metric.source) for metric in history[-1].rules.metrics)
    return max(max(one.minimum, one.rules.most(one.x)) for one in states(history, end - longest, end))


def states(history: Sequence[Known], begin: float, end: float) -> Iterator[Known]:
    """What was known at some moment from `begin` to `end`."""
    for index, one in enumerate(history):
        if one.at <= end and (index + 1 == len(history) or history[index + 1].at > begin):
            yield one


def _fewest_of(source: str, states: Sequence[Known]) -> int:
    needs = [
        one.rules.fewest_of(metric, one.x)
        for one in states
        for metric in one.rules.metrics
        if metric.source == source and not metric.is_floor
    ]
    return min(needs, default=0)
