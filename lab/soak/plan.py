"""What happens in a run, as a pure function of the seed: the services, then groups of steps.

A step never names a pod: `pick` is a share from 0 to 1 of the pods that there are when it is taken.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

CPU, MEMORY, LOAD, SMOOTH, TOTAL, FLOOR = "cpu", "memory", "load", "smooth", "total", "floor"
LIMIT_MEBIBYTES = 200
MEMORY_SHARE = Fraction(1, 2)
"""A pod's worth of memory, as a share of its limit."""
MOST_PODS = 14
INTERVALS = (1, 2, 3)


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
        return self.source in {CPU, MEMORY}

    def written(self) -> dict[str, Any]:
        """The metric in a policy's spec."""
        made: dict[str, Any] = {"name": self.source}
        if self.is_resource:
            made["resource"] = {"name": self.source} | ({"relativeTo": "Limit"} if self.of_limit else {})
        else:
            made["query"] = {"name": self.source}
        for key, amount in (("highWatermark", self.high), ("lowWatermark", self.low), ("target", self.target)):
            if amount is not None:
                made[key] = f"{amount * MEMORY_SHARE / 10}%" if self.of_limit else f"{amount}m"
        return made | ({"floor": True} if self.source == FLOOR else {})


@dataclass(frozen=True)
class Service:
    """A Deployment with its HPA and policy. `x`: its load at first, in pods' worth. `registry`: Consul has its pods."""

    name: str
    pods: int
    x: float
    metrics: tuple[Metric, ...]
    spec: dict[str, Any] = field(hash=False)
    registry: bool = False


@dataclass(frozen=True)
class Step:
    """One change. `kind` is a method of `lab.soak.actions.Actions`, `service` is empty where it is for none."""

    kind: str
    service: str = ""
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, self.service, _told(self.arguments)) if part)


def _told(value: object) -> str:
    """Arguments in short; a field of a policy that goes is left out."""
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return " ".join(
        f"{key}={_told(part)}" if isinstance(part, str | int) else _told(part)
        for key, part in value.items()
        if part is not None
    )


@dataclass(frozen=True)
class Group:
    """Steps that are taken one after the other, spread over `seconds`."""

    number: int
    steps: tuple[Step, ...]
    seconds: float


# --- services ---


def services(seed: int) -> tuple[Service, ...]:
    """One service of every kind, each with random watermarks and random pacing."""
    rng = random.Random(f"{seed} services")
    made = [
        _service(rng, "cpu-band", [_band(rng, CPU)], "Watermark"),
        _service(rng, "memory-ratio", [_aim(rng, MEMORY, of_limit=True)], "Ratio"),
        _service(rng, "load-band", [_band(rng, LOAD)], "Watermark"),
        _service(rng, "load-step", [_aim(rng, LOAD)], "Step"),
        _service(rng, "roster-band", [_band(rng, SMOOTH)], "Watermark", registry=True),
        _service(rng, "roster-ratio", [_aim(rng, LOAD)], "Ratio", registry=True),
        _service(rng, "total-band", [_band(rng, TOTAL), Metric(FLOOR, high=rng.choice([1500, 2000]))], "Watermark"),
        _service(rng, "two-metrics", [_band(rng, CPU), _band(rng, LOAD)], "Watermark"),
    ]
    return tuple(made)


def _service(
    rng: random.Random, name: str, metrics: Sequence[Metric], strategy: str, *, registry: bool = False
) -> Service:
    pods = rng.randint(3, 7)
    spec = {"strategy": strategy, **pacing(rng, strategy)}
    if any(one.source == TOTAL for one in metrics):
        spec["acceptZeroUsage"] = False  # by default a service total of 0 is believed, whoever says so
    return Service(name, pods, round(pods * rng.uniform(0.7, 1.1), 2), tuple(metrics), spec, registry)


def _band(rng: random.Random, source: str) -> Metric:
    high = rng.choice([1000, 1100, 1200])
    return Metric(source, high=high, low=high * rng.choice([50, 60, 66]) // 100)


def _aim(rng: random.Random, source: str, *, of_limit: bool = False) -> Metric:
    return Metric(source, target=rng.choice([800, 900, 1000]), of_limit=of_limit)


def pacing(rng: random.Random, strategy: str) -> dict[str, Any]:
    """Random fields of a policy's spec that pace a count, valid for the strategy."""
    spec: dict[str, Any] = {}
    if strategy == "Step":
        step = {
            "toleranceUnit": "Percent",
            "tolerance": rng.choice([15, 25]),
            "trigger": rng.choice(["AnyPod", "Average"]),
        }
        spec["step"] = step | {"up": rng.randint(0, 2), "down": rng.randint(1, 2), "minPods": 2}
        spec["cooldown"] = {"scaleUpSeconds": rng.choice([0, 5]), "scaleDownSeconds": rng.choice([0, 5, 10])}
    else:
        spec["tolerance"] = rng.choice(["0%", "1%", "5%"])
        if rng.random() < 0.3:
            spec["cooldown"] = {"scaleUpSeconds": rng.choice([0, 3]), "scaleDownSeconds": rng.choice([0, 5, 15])}
    if rng.random() < 0.3:
        spec["velocity"] = {"scaleUpPercent": rng.choice([20, 50, 100]), "scaleDownPercent": rng.choice([10, 30])}
    if rng.random() < 0.2:
        spec["delay"] = {"scaleUpSeconds": rng.choice([0, 2]), "scaleDownSeconds": rng.choice([3, 8])}
    if rng.random() < 0.2:
        spec["replicaMultiple"] = 1 if strategy == "Step" else 2
    if rng.random() < 0.2 and strategy == "Watermark":
        spec["convergeTowards"] = rng.choice(["High", "Low"])
    if rng.random() < 0.3:
        spec["minServingPercent"] = rng.choice([0, 30, 70])
    if rng.random() < 0.4:
        spec["pulledOut"] = {
            "replace": rng.random() < 0.5,
            "replaceAfterSeconds": rng.choice([0, 5]),
            "minAgeSeconds": 0,
        }
    if rng.random() < 0.2:
        spec["fallback"] = {"afterSeconds": 5, "replicas": 4}
    return spec


# --- steps ---


def groups(seed: int, faults: Sequence[str]) -> Iterator[Group]:
    """Groups without an end. Of `faults` at most one is under way at a time."""
    rng = random.Random(f"{seed} steps")
    known = services(seed)
    number = 0
    while True:
        number += 1
        steps = [_step(rng, known) for _ in range(rng.randint(2, 5))]
        seconds = rng.choice([6.0, 8.0, 12.0])
        if faults and number % 2 == 0:
            steps.insert(rng.randint(0, len(steps)), Step("fault", "", {"name": rng.choice(list(faults))}))
        elif number % 5 == 0:
            steps, seconds = [Step("rest")], 25.0
        yield Group(number, tuple(steps), seconds)


_KINDS = ["load"] * 12 + ["skew"] * 2 + ["delete_pod", "unready", "heal", "annotate", "scale"]
_KINDS += ["edit_policy"] * 2 + ["rollout", "edit_hpa", "reload"]
_REGISTRY_KINDS = ["pull_out", "put_back", "deregister", "register"]


def _step(rng: random.Random, known: Sequence[Service]) -> Step:
    service = rng.choice(known)
    kind = rng.choice(_KINDS + _REGISTRY_KINDS * 2 if service.registry else _KINDS)
    return Step(kind, "" if kind == "reload" else service.name, _arguments(rng, kind, service))


def _arguments(rng: random.Random, kind: str, service: Service) -> dict[str, Any]:
    if kind == "load":
        return {"x": _load(rng)}
    if kind == "skew":
        return {"seed": rng.randint(0, 999)}
    if kind in {"delete_pod", "unready", "annotate", "pull_out", "deregister"}:
        return {"pick": round(rng.random(), 3)}
    if kind == "scale":
        return {"by": rng.choice([-2, -1, 1, 2])}
    if kind == "edit_policy":
        return {"change": _edit(rng, service)}
    if kind == "edit_hpa":
        return {"minimum": rng.randint(1, 3), "maximum": rng.choice([10, MOST_PODS])}
    if kind == "reload":
        return {"seconds": rng.choice(INTERVALS)}
    return {}


def _load(rng: random.Random) -> float:
    """Zero, a spike, or anything between."""
    kind = rng.random()
    if kind < 0.06:
        return 0.0
    if kind < 0.2:
        return round(rng.uniform(7, 11), 2)
    return round(rng.uniform(1, 7), 2)


def _edit(rng: random.Random, service: Service) -> dict[str, Any]:
    """Fields of the spec to replace."""
    strategy = service.spec["strategy"]
    if rng.random() < 0.3:
        return {"mode": rng.choice(["Active", "Observe", "Paused"])}
    fresh: dict[str, Any] = dict.fromkeys(
        (
            "velocity",
            "delay",
            "cooldown",
            "replicaMultiple",
            "convergeTowards",
            "minServingPercent",
            "pulledOut",
            "fallback",
        )
    )
    return {"mode": "Active", **fresh, **pacing(rng, strategy)}
