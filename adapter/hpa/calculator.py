"""The replica calculator: from one metric to the count it proposes (`replica_calculator.go`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.hpa.pods import DEFAULT_CPU, MOST, CpuRules, Groups, ModelPod, ModelSample, group, ready_and_running

_NO_PODS = "no pods returned by selector while calculating replica count"


class CalculationError(Exception):
    """A metric proposes nothing; the text is the controller's."""


class Tolerances(NamedTuple):
    """How far the ratio of usage to target may be off 1, upwards and downwards, before the count changes."""

    up: float = 0.1
    down: float = 0.1

    def hold(self, ratio: float) -> bool:
        """Whether the count stays at this ratio."""
        return (1.0 - self.down) <= ratio <= (1.0 + self.up)


class Proposal(NamedTuple):
    """A count, and the usage that the HPA's status shows: milli-units, and percent for Utilization."""

    replicas: int
    usage: int
    utilization: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculator:
    """The replica calculator at one moment (seconds), over the pods that the scale's selector matches."""

    pods: tuple[ModelPod, ...]
    now: float
    tolerances: Tolerances
    cpu: CpuRules = DEFAULT_CPU

    def utilization(
        self, current: int, target: int, samples: Mapping[str, ModelSample], resource: str, container: str = ""
    ) -> Proposal:
        """A resource against a percentage of the pods' requests. Raises CalculationError."""
        groups, usable = self._usable(samples, resource)
        requests = {pod.name: _request(pod, resource, container) for pod in self.pods}
        percent, average = _utilization(usable, requests)
        share = max(100, target)
        full = {name: requests[name] * share // 100 for name in groups.missing}
        replicas = self._replicas(current, target, groups, usable, lambda some: _utilization(some, requests)[0], full)
        return Proposal(replicas, average, percent)

    def average(self, current: int, target: int, samples: Mapping[str, ModelSample], resource: str = "") -> Proposal:
        """Pods' samples against an average (milli-units). Raises CalculationError."""
        groups, usable = self._usable(samples, resource)
        full = dict.fromkeys(groups.missing, target)
        return Proposal(self._replicas(current, target, groups, usable, _mean, full), _mean(usable))

    def value(self, current: int, target: int, values: Sequence[int]) -> Proposal:
        """The sum of a metric's series against a value: the pods that are Ready are multiplied.

        Raises CalculationError.
        """
        total = sum(values)
        return Proposal(self._by_ready_pods(current, total / target), total)

    def share(self, status_replicas: int, target: int, values: Sequence[int]) -> Proposal:
        """The sum of a metric's series, divided by the pods that there are, against an average."""
        total = sum(values)
        ratio = total / (target * status_replicas) if status_replicas else math.inf
        replicas = status_replicas if self.tolerances.hold(ratio) else _ceil(total / target)
        return Proposal(replicas, math.ceil(total / max(1, status_replicas)))

    def _usable(self, samples: Mapping[str, ModelSample], resource: str) -> tuple[Groups, dict[str, int]]:
        """The pods by their part, and the samples that count (milli-units by pod). Raises CalculationError."""
        if not self.pods:
            raise CalculationError(_NO_PODS)
        groups = group(self.pods, samples, self.now, self.cpu if resource == "cpu" else None)
        left_out = groups.ignored | groups.unready
        usable = {name: sample.value for name, sample in samples.items() if name not in left_out}
        if not usable:
            raise CalculationError("did not receive metrics for targeted pods (pods might be unready)")
        return groups, usable

    def _replicas(
        self,
        current: int,
        target: int,
        groups: Groups,
        usable: dict[str, int],
        measure: Callable[[Mapping[str, int]], int],
        full: dict[str, int],
    ) -> int:
        """The count for what the usable samples measure. Missing and unready pods are filled in so that they damp it.

        Where usage is below the target, a missing pod uses what `full` says, else nothing. Where that turns the
        direction round, the count stays.
        """
        ratio = measure(usable) / target
        grows_with_unready = bool(groups.unready) and ratio > 1.0
        if not grows_with_unready and not groups.missing:
            return current if self.tolerances.hold(ratio) else _ceil(ratio * groups.ready)
        if ratio < 1.0:
            usable = usable | full
        elif ratio > 1.0:
            usable = usable | dict.fromkeys(groups.missing, 0)
        if grows_with_unready:
            usable = usable | dict.fromkeys(groups.unready, 0)
        again = measure(usable) / target
        turned = (ratio < 1.0 < again) or (again < 1.0 < ratio)
        if self.tolerances.hold(again) or turned:
            return current
        replicas = _ceil(again * len(usable))
        if (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current):
            return current
        return replicas

    def _by_ready_pods(self, current: int, ratio: float) -> int:
        if current == 0:
            return _ceil(ratio)
        if self.tolerances.hold(ratio):
            return current
        if not self.pods:
            raise CalculationError(f"unable to calculate ready pods: {_NO_PODS}")
        return _ceil(ratio * ready_and_running(self.pods))


def _ceil(count: float) -> int:
    """A count rounded up; the largest one where it is larger."""
    return math.ceil(min(count, MOST))


def _request(pod: ModelPod, resource: str, container: str) -> int:
    """What a pod, or one container of it, requests of a resource (milli-units)."""
    if container and container not in pod.containers:
        raise CalculationError(f"container {container} not found in Pod {pod.name}")
    if not container and resource in pod.requests:
        return pod.requests[resource]
    total = 0
    for name in [container] if container else pod.containers:
        if resource not in pod.containers[name]:
            raise CalculationError(f"missing request for {resource} in container {name} of Pod {pod.name}")
        total += pod.containers[name][resource]
    return total


def _mean(values: Mapping[str, int]) -> int:
    return math.trunc(sum(values.values()) / len(values))


def _utilization(usage: Mapping[str, int], requests: Mapping[str, int]) -> tuple[int, int]:
    """Whole percent of the requests, and the average usage; samples of unknown pods count in neither."""
    names = [name for name in usage if name in requests]
    total, requested = sum(usage[name] for name in names), sum(requests[name] for name in names)
    if requested == 0:
        raise CalculationError("no metrics returned matched known pods")
    return math.trunc(total * 100 / requested), math.trunc(total / len(names))
