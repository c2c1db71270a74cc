"""Pods as the replica calculator sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MOST = 2**31 - 1
"""The largest count."""
_NANO_PER_MILLI = 1_000_000


def milli(nano: int) -> int:
    """`Quantity.MilliValue`: milli-units, rounded away from zero, from nano-units."""
    return -(-nano // _NANO_PER_MILLI) if nano >= 0 else nano // _NANO_PER_MILLI


class ModelSample(NamedTuple):
    """A pod's sample: milli-units, and for CPU when it was measured and over how long (seconds)."""

    value: int
    at: float = 0.0
    window: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPod:
    """A pod that the scale's selector matches. Times are seconds.

    `ready` is the status of its Ready condition (True, False, Unknown; empty where it has none), `ready_since` that
    condition's last transition.
    `requests` are those of the pod as a whole (milli-units by resource), `containers` those of each container.
    """

    name: str
    phase: str = "Running"
    deleting: bool = False
    ready: str = "True"
    ready_since: float = 0.0
    started: float | None = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Groups(NamedTuple):
    """The pods by their part in a proposal: `ready` is a number, the others are names."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


class CpuRules(NamedTuple):
    """The controller's flags for CPU samples of starting pods, in seconds."""

    initialization: float = 300.0
    initial_readiness_delay: float = 30.0


DEFAULT_CPU = CpuRules()


def group(pods: tuple[ModelPod, ...], samples: Mapping[str, ModelSample], now: float, cpu: CpuRules | None) -> Groups:
    """Sort the pods into groups; `cpu` is None for metrics other than CPU, which do not look at readiness."""
    ready, unready, missing, ignored = 0, set(), set(), set()
    for pod in pods:
        sample = samples.get(pod.name)
        if pod.deleting or pod.phase == "Failed":
            ignored.add(pod.name)
        elif pod.phase == "Pending":
            unready.add(pod.name)
        elif sample is None:
            missing.add(pod.name)
        elif cpu is not None and _is_initializing(pod, sample, now, cpu):
            unready.add(pod.name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_initializing(pod: ModelPod, sample: ModelSample, now: float, cpu: CpuRules) -> bool:
    if not pod.ready or pod.started is None:
        return True
    if pod.started + cpu.initialization > now:
        return pod.ready == "False" or sample.at < pod.ready_since + sample.window
    return pod.ready == "False" and pod.started + cpu.initial_readiness_delay > pod.ready_since


def ready_and_running(pods: tuple[ModelPod, ...]) -> int:
    """How many pods run and are Ready, terminating ones included."""
    return sum(pod.phase == "Running" and pod.ready == "True" for pod in pods)
