"""Services for tests of the replay: histories, files, and a random load with jumps, pull-outs and gaps."""

import math
import random
from collections.abc import Iterator
from typing import Any

import yaml

from adapter.commands.replay.history import Tick
from adapter.load.quantity import NANO
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.watermark_policy import parse_policy

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
POLICY = """
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {name: checkout, namespace: shop}
spec:
  metrics:
  - {name: cpu, resource: {name: cpu}, highWatermark: 1000m, lowWatermark: 600m}
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: checkout, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  minReplicas: 2
  maxReplicas: 50
  behavior:
    scaleUp: {tolerance: "0"}
    scaleDown: {tolerance: "0", stabilizationWindowSeconds: 60}
  metrics:
  - type: Object
    object:
      describedObject: {apiVersion: effective-load.io/v1alpha1, kind: WatermarkPolicy, name: checkout}
      metric: {name: desired_replicas}
      target: {type: AverageValue, averageValue: "1"}
"""


def cores(value: float) -> float:
    """Whole units in nano-units."""
    return round(value * NANO)


def phases(*loads: tuple[float, float], step: float = 15.0, **more: Any) -> Iterator[Tick]:
    """CPU loads in cores, each for so many seconds."""
    at = START
    for load, seconds in loads:
        for _ in range(int(seconds / step)):
            yield Tick(at, {"cpu": cores(load)}, **more)
            at += step


def wandering(seed: int, ticks: int) -> list[Tick]:
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
        load = level * (1 + 0.5 * math.sin(index / 200)) * rng.gauss(1, rng.choice((0.0, 0.02))) * 5
        found.append(Tick(at, {"cpu": cores(max(0.0, load))}, out))
        at += 15.0
    return found


def policy(high: str = "1000m", low: str = "600m", **spec: Any) -> Policy:
    """POLICY with these watermarks of CPU."""
    document = yaml.safe_load(POLICY)
    document["spec"]["metrics"][0] |= {"highWatermark": high, "lowWatermark": low}
    return parse_policy(document | {"spec": document["spec"] | spec})


def stock(average: str = "800m", *, least: int = 1, most: int = 100, **spec: Any) -> Hpa:
    """A stock HPA on the average of CPU, of the target of HPA."""
    document = yaml.safe_load(HPA)
    target = {"type": "AverageValue", "averageValue": average}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    own = {"minReplicas": least, "maxReplicas": most, "metrics": metrics, **spec}
    return parse_hpa(document | {"spec": {"scaleTargetRef": document["spec"]["scaleTargetRef"], **own}})
