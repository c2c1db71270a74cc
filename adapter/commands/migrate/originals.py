"""Originals as their own controllers read them, with every default: what a replay plays against the migrated pair."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.policy.hpa import Hpa


@dataclass(frozen=True, slots=True, kw_only=True)
class WpaMetric:
    """A metric of a WatermarkPodAutoscaler. `name` is the migrated policy's; watermarks are in milli-units.

    `resource` is cpu or memory, empty for an External metric, whose value is one number.
    """

    name: str
    resource: str = ""
    high: int
    low: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wpa:
    """A WatermarkPodAutoscaler. Times are seconds, `tolerance` and the limit factors (percent) are in milli-units.

    `converge` is highwatermark, lowwatermark or empty.
    """

    metrics: tuple[WpaMetric, ...]
    average: bool = False
    tolerance: int = 100
    minimum: int = 1
    maximum: int
    up_factor: int = 50_000
    down_factor: int = 20_000
    up_window: float = 60.0
    down_window: float = 300.0
    up_delay: float = 0.0
    down_delay: float = 0.0
    modulo: int = 1
    converge: str = ""
    tolerate_zero: bool = False
    min_available: int = 0
    readiness_delay: float = 0.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StockHpa:
    """A native HPA that another adapter served. `names`: the migrated policy's metric of each of its metrics, in order.

    A metric that was not migrated has an empty name: nobody knows its value in a replay.
    """

    hpa: Hpa
    names: tuple[str, ...]
    per_replica: frozenset[int] = frozenset()
    """The metrics, by their place, whose value kube-metrics-adapter divides by the replicas itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keda:
    """A ScaledObject: the HPA that KEDA makes of it, and what KEDA does itself between `idle` and the HPA's minimum.

    `activations` are the thresholds by metric (milli-units): with `idle` set, KEDA leaves it once one metric is above,
    and returns to it once none was for `cooldown` seconds; it looks every `polling` seconds. `idle` is None where it
    never does.
    """

    stock: StockHpa
    idle: int | None = None
    cooldown: float = 300.0
    polling: float = 30.0
    activations: Mapping[str, int] = field(default_factory=dict)


Original = Wpa | StockHpa | Keda
