"""The autoscalers that a replay compares: a policy with its HPA, and the stock HPA alone."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import TypeVar

from adapter.commands.replay.model import Autoscaler, Ranges, View
from adapter.commands.replay.stock import hpa_following
from adapter.hpa.controller import Controller, Values
from adapter.hpa.pods import ModelPod, ModelSample, milli
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.bounds import SATURATED, band_of
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Algorithm, Capacity, Metric, Mode, Policy, Scale, Strategy, Target
from adapter.policy.hpa import DESIRED_REPLICAS, Hpa, HpaMetric, MetricSourceType, MetricTargetType

T = TypeVar("T")
V = TypeVar("V")

MAX_AGE = 90.0
"""How long a sample counts (seconds)."""
NO_ANSWER = "no metrics returned"
_BY_POD = {MetricSourceType.PODS, MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}
_TARGET = Target(api_version="apps/v1", kind="Deployment", name="service", uid="service")
_MILLI = 10**6
"""Nano-units in a milli-unit."""
_INSIDE = 0.001
"""The share by which the range of a resting autoscaler is narrower than its band: samples are rounded."""


class ModelPods:
    """Pods as the model of the HPA takes them; made again only where the pods change."""

    def __init__(self) -> None:
        self._pods: Sequence[Pod] = ()
        self._models: tuple[ModelPod, ...] = ()

    def of(self, pods: Sequence[Pod]) -> tuple[ModelPod, ...]:
        """The models of these pods."""
        if pods is not self._pods:
            self._pods, self._models = pods, tuple(map(_model, pods))
        return self._models


def _model(pod: Pod) -> ModelPod:
    containers = {one.name: {name: milli(amount) for name, amount in one.requests.items()} for one in pod.containers}
    return ModelPod(
        name=pod.name,
        phase=pod.phase,
        deleting=pod.deleting,
        ready="" if pod.ready is None else str(pod.ready.status),
        ready_since=0.0 if pod.ready is None else pod.ready.since or 0.0,
        started=pod.started_at,
        requests=next(iter(containers.values()), {}),
        containers=containers,
    )


def answer(metric: HpaMetric, view: View) -> Values:
    """What the metrics APIs answer for an HPA's metric of the service; a sentence where there is no fresh sample."""
    if view.now - view.sampled_at > MAX_AGE:
        return NO_ANSWER
    if metric.kind not in _BY_POD:
        value = view.load.get(metric.name)
        return NO_ANSWER if value is None else (milli(value),)
    samples = view.samples.get(metric.name)
    if samples is None:
        return NO_ANSWER
    return _shared(samples, lambda value: ModelSample(milli(value), view.sampled_at, view.window))


def _shared(samples: Mapping[str, V], make: Callable[[V], T]) -> dict[str, T]:
    """What is made of each pod's value; pods with the same value share one object."""
    made = {value: make(value) for value in set(samples.values())}
    return {pod: made[value] for pod, value in samples.items()}


class PolicyAutoscaler(Autoscaler):
    """A WatermarkPolicy and the HPA that takes the replica count from it, as they work in a cluster.

    `hpa` gives bounds and behavior; one that does not ask for `desired_replicas` is replaced by one that does. Without
    an HPA, one with tolerance 0 and no limits takes its place. `totals` names the metrics that are one number for the
    service. A policy with a registry is replayed with the annotation as the evidence of pull-outs, unless it
    `keeps_registry`: then `roster` is what the registry answered last. Metrics cover whole pods.
    """

    def __init__(
        self,
        policy: Policy,
        hpa: Hpa | None = None,
        name: str = "",
        totals: Collection[str] = (),
        *,
        keeps_registry: bool = False,
    ) -> None:
        self.name = name or policy.name
        self.deletes_pulled_out_first = policy.pulled_out.delete_first
        whole_pods = tuple(
            replace(
                metric,
                resource=metric.resource and replace(metric.resource, containers=()),
                query=metric.query and replace(metric.query, containers=()),
            )
            for metric in policy.metrics
        )
        # A policy that observes is replayed to see what it would do.
        registry = policy.registry if keeps_registry else None
        self.policy = replace(policy, mode=Mode.ACTIVE, metrics=whole_pods, registry=registry)
        self.roster: Roster | None = None
        self.hpa = hpa_following(policy, hpa)
        self._totals = frozenset(totals) | {metric.name for metric in policy.metrics if metric.floor}
        self._controller = Controller(self.hpa)
        self._bounds = self.hpa.bounds
        self._memory = Memory()
        self._models = ModelPods()
        self._assessment: Assessment | None = None
        self._decision: Decision | None = None

    def sync(self, view: View) -> int:
        """One assessment, one answer to the HPA, and its sync."""
        scale = Scale(replicas=view.replicas, status_replicas=view.replicas)
        self._assessment = self._assess(view, scale)
        self._decision = decide(self._assessment, scale, self._bounds, view.now)
        served = self._decision.served
        values = [
            answer(metric, view) if metric.name != DESIRED_REPLICAS else NO_ANSWER if served is None else (served,)
            for metric in self.hpa.metrics
        ]
        pods = self._models.of(view.pods)
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.replicas)
        if sync.replicas != view.replicas:
            self._bounds = replace(self._bounds, last_scale=view.now)
        return sync.replicas

    def watch(self, view: View) -> None:
        """The memory dates the change of the count, and pods that depart, at this moment."""
        self._assess(view, Scale(replicas=view.replicas, status_replicas=view.replicas))

    def resting(self, view: View) -> Ranges | None:
        """The band of every metric, where strategy Watermark holds no change back."""
        policy, decision, assessment = self.policy, self._decision, self._assessment
        has_rules = policy.schedules or policy.hold_until or policy.converge_towards or policy.registry
        if has_rules or policy.strategy is not Strategy.WATERMARK or policy.algorithm is Algorithm.ABSOLUTE:
            return None
        if policy.pulled_out.delete_first and any(pod.pulled_out_annotation for pod in view.pods):
            return None
        if decision is None or assessment is None or decision.held_by is not None or len(self.hpa.metrics) != 1:
            return None
        if decision.desired != view.replicas or any(metric.upper.hold is not None for metric in assessment.metrics):
            return None
        ranges = {metric.name: self._range(metric, view) for metric in policy.metrics}
        return None if None in ranges.values() else {name: one for name, one in ranges.items() if one is not None}

    def _range(self, metric: Metric, view: View) -> tuple[float, float] | None:
        if metric.floor or metric.name not in view.load:
            return None
        band, app = band_of(self.policy, metric, total=metric.name in self._totals), view.pods[0].containers[0]
        size = 1.0
        if metric.relative_to is not None:
            amounts = app.limits if metric.relative_to is Capacity.LIMIT else app.requests
            size = amounts[metric.resource_name] / NANO
        least = 1.0 if band.low is None else float(band.low) * size
        most = inf if band.high is None else float(band.high) * size
        if band.saturation is not None and (limit := app.limits.get("cpu")):
            most = min(most, float(SATURATED) * limit)
        return least * (1 + _INSIDE), most * (1 - _INSIDE)

    def _assess(self, view: View, scale: Scale) -> Assessment:
        assessment = assess(
            AssessmentInputs(
                policy=self.policy,
                pods=view.pods,
                samples=self._samples(view),
                roster=self.roster,
                scale=scale,
                bounds=self._bounds,
                target=_TARGET,
                memory=self._memory,
                now=view.now,
            )
        )
        self._memory = assessment.memory
        return assessment

    def _samples(self, view: View) -> Samples:
        """What the sources of the policy's metrics answer."""
        resources: dict[str, Mapping[str, int]] = {}
        queries: dict[str, QuerySamples] = {}
        at = view.sampled_at
        for name, metric in ((metric.name, metric) for metric in self.policy.metrics):
            if metric.resource is not None:
                resources[metric.resource.name] = view.samples.get(name, {})
            elif name in view.load:
                is_total = name in self._totals
                queries[name] = QuerySamples(
                    pods={} if is_total else _shared(view.samples[name], lambda value: Point(at, value)),
                    total=Point(at, view.load[name]) if is_total else None,
                    window=view.window,
                    by_pod=not is_total,
                    max_age=MAX_AGE,
                    fetched_at=view.now,
                )
        by_pod = {
            pod: tuple((name, values[pod]) for name, values in resources.items() if pod in values)
            for pod in chain.from_iterable(resources.values())
        }
        pods = _shared(by_pod, lambda amounts: PodUsage(at, view.window, {"app": dict(amounts)}))
        return Samples(ResourceSamples(pods=pods, max_age=MAX_AGE, fetched_at=view.now), queries)


class HpaAutoscaler(Autoscaler):
    """The stock HPA on metrics of the service. With `effective`, a pulled-out pod is reported at the target.

    That is how the adapter serves Pods metrics: the average is that of the serving pods, and pulled-out ones stay in
    the count. Otherwise they count with what they still use.
    """

    def __init__(self, hpa: Hpa, name: str = "", *, effective: bool = False) -> None:
        self.name = name or ("HPA, effective average" if effective else "HPA, raw average")
        self.hpa = hpa
        self._effective = effective
        self._controller = Controller(hpa)
        self._models = ModelPods()
        self._recommendation: int | None = None

    def sync(self, view: View) -> int:
        """One sync of the controller."""
        pods = self._models.of(view.pods)
        values = [self._answer(metric, view) for metric in self.hpa.metrics]
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.replicas)
        self._recommendation = sync.recommendation
        return sync.replicas

    def resting(self, view: View) -> Ranges | None:
        """The loads within the tolerance around every target, where this sync recommended the count itself."""
        if self._recommendation != view.replicas or not view.replicas:
            return None
        ranges = {metric.name: self._range(metric, view) for metric in self.hpa.metrics}
        return None if None in ranges.values() else {name: one for name, one in ranges.items() if one is not None}

    def _range(self, metric: HpaMetric, view: View) -> tuple[float, float] | None:
        samples = view.samples.get(metric.name, {})
        serving = sum(not pod.pulled_out_annotation for pod in view.pods)
        if metric.aim is None or len(samples) != len(view.pods) or not serving or view.now - view.sampled_at > MAX_AGE:
            return None
        aim, rounding = float(metric.aim), _INSIDE
        if metric.kind in _BY_POD and metric.target is MetricTargetType.UTILIZATION:
            requested = view.pods[0].containers[0].requests.get(metric.name, 0)
            aim, rounding = aim * requested / 100, _INSIDE + 1 / metric.aim  # whole percents
        elif metric.target is not MetricTargetType.AVERAGE_VALUE:
            return None
        # Raw averages have the pulled-out pods in them, which use nothing.
        spread = 1.0 if self._effective and metric.kind in _BY_POD else len(view.pods) / serving
        tolerances = self._controller.tolerances
        rounding += _MILLI / aim if aim else 0.0
        return aim * spread * (1 - tolerances.down + rounding), aim * spread * (1 + tolerances.up - rounding)

    def _answer(self, metric: HpaMetric, view: View) -> Values:
        values = answer(metric, view)
        if not self._effective or not isinstance(values, Mapping) or metric.aim is None:
            return values
        by_percent = metric.target is MetricTargetType.UTILIZATION
        reported = dict(values)
        for pod in view.pods:
            if pod.pulled_out_annotation and pod.name in values:
                requested = milli(pod.containers[0].requests.get(metric.name, 0))
                value = metric.aim * requested // 100 if by_percent else milli(metric.aim)
                reported[pod.name] = values[pod.name]._replace(value=value)
        return reported
