"""What the metrics APIs tell an HPA, and the sources a policy, of a replayed service."""

from collections.abc import Mapping, Sequence

from adapter.commands.replay.service import View
from adapter.hpa.controller import Values
from adapter.hpa.go_numbers import milli
from adapter.hpa.pods import ModelPod, ModelSample
from adapter.load.pods import Pod
from adapter.load.samples import PodUsage
from adapter.policy.hpa import Hpa, HpaMetric, MetricSourceType, MetricTargetType

MAX_AGE = 90.0
"""How long a sample counts (seconds)."""
NO_ANSWER = "no metrics returned"
_BY_POD = {MetricSourceType.PODS, MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}


class ModelPods:
    """Pods as the model of the HPA takes them; made anew only where the pods change."""

    def __init__(self) -> None:
        self._pods: Sequence[Pod] = ()
        self._models: tuple[ModelPod, ...] = ()

    def of(self, pods: Sequence[Pod]) -> tuple[ModelPod, ...]:
        """The models of these pods."""
        if pods is not self._pods:
            self._pods, self._models = pods, tuple(map(_model, pods))
        return self._models


def _model(pod: Pod) -> ModelPod:
    ready = "" if pod.ready is None else str(pod.ready.status)
    since = pod.ready.since if pod.ready is not None else None
    containers = {
        container.name: {name: milli(amount) for name, amount in container.requests.items()}
        for container in pod.containers
    }
    return ModelPod(
        name=pod.name,
        phase=pod.phase,
        deleting=pod.deleting,
        ready=ready,
        ready_since=since or 0.0,
        started=pod.started_at,
        requests=next(iter(containers.values()), {}),
        containers=containers,
    )


def answer(metric: HpaMetric, view: View, max_age: float) -> Values:
    """What the metrics APIs tell an HPA of a metric of the service; a sentence where there is no fresh sample."""
    if view.now - view.sampled_at > max_age:
        return NO_ANSWER
    if metric.kind not in _BY_POD:
        value = view.load.get(metric.name)
        return NO_ANSWER if value is None else (milli(value),)
    samples = view.samples.get(metric.name)
    if samples is None:
        return NO_ANSWER
    made: dict[int, ModelSample] = {}
    answers: dict[str, ModelSample] = {}
    for pod, value in samples.items():
        sample = made.get(value)
        if sample is None:
            sample = made[value] = ModelSample(milli(value), view.sampled_at, view.window or 0.0)
        answers[pod] = sample
    return answers


def looks_at_pods(hpa: Hpa) -> bool:
    return any(metric.kind in _BY_POD or metric.target is not MetricTargetType.AVERAGE_VALUE for metric in hpa.metrics)


def usages_of(resources: Mapping[str, Mapping[str, int]], at: float, window: float) -> dict[str, PodUsage]:
    """Resource usage by pod, as metrics.k8s.io reports it; pods with the same values share one object."""
    if len(resources) == 1:
        ((resource, samples),) = resources.items()
        made: dict[int, PodUsage] = {}
        usages: dict[str, PodUsage] = {}
        for pod, value in samples.items():
            usage = made.get(value)
            if usage is None:
                usage = made[value] = PodUsage(at, window, {"app": {resource: value}})
            usages[pod] = usage
        return usages
    pods = {pod for samples in resources.values() for pod in samples}
    return {
        pod: PodUsage(at, window, {"app": {name: by_pod[pod] for name, by_pod in resources.items() if pod in by_pod}})
        for pod in pods
    }
