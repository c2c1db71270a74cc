"""The autoscalers that a replay compares: a policy with its HPA, and the stock HPA alone, derived from the policy."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import inf
from typing import TypeVar

import msgspec

from adapter.commands.replay.model import Autoscaler, Ranges, Setup, View
from adapter.hpa.controller import Controller, Values
from adapter.hpa.pods import ModelPod, ModelSample, milli
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.bounds import SATURATED, Band
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Algorithm, Bounds, Capacity, HpaTolerance, Metric, Mode, Policy, Scale, Strategy, Target
from adapter.policy.behavior import hpa_manifest
from adapter.policy.hpa import (
    DEFAULT_TOLERANCE,
    DESIRED_REPLICAS,
    DIRECTIONS,
    CrossVersionReference,
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    parse_hpa,
)

T = TypeVar("T")
V = TypeVar("V")

DEFAULT_MAXIMUM = 1000
"""Replicas of a policy without an HPA."""
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


def _known(found: Sequence[tuple[str, tuple[float, float] | None]]) -> Ranges | None:
    """The ranges by metric, None where one of them is unknown."""
    known = {name: one for name, one in found if one is not None}
    return known if len(known) == len(found) else None


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
        values = [self._answer(metric, view) for metric in self.hpa.metrics]
        pods = self._models.of(view.pods)
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.replicas)
        self._recommendation = sync.recommendation
        return sync.replicas

    def resting(self, view: View) -> Ranges | None:
        """The loads within the tolerance around every target, where this sync recommended the count itself."""
        if self._recommendation != view.replicas or not view.replicas:
            return None
        return _known([(metric.name, self._around_target(metric, view)) for metric in self.hpa.metrics])

    def _around_target(self, metric: HpaMetric, view: View) -> tuple[float, float] | None:
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
        value = milli(metric.aim)
        if metric.target is MetricTargetType.UTILIZATION:
            value = metric.aim * milli(view.pods[0].containers[0].requests.get(metric.name, 0)) // 100
        out = [pod.name for pod in view.pods if pod.pulled_out_annotation and pod.name in values]
        return {**values, **{name: values[name]._replace(value=value) for name in out}}


class PolicyAutoscaler(HpaAutoscaler):
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
        super().__init__(hpa_following(policy, hpa), name or policy.name)
        self.deletes_pulled_out_first = policy.pulled_out.delete_first
        whole_pods = tuple(replace(metric, containers=()) for metric in policy.metrics)
        # A policy that observes is replayed to see what it would do.
        registry = policy.registry if keeps_registry else None
        self.policy = replace(policy, mode=Mode.ACTIVE, metrics=whole_pods, registry=registry)
        self.roster: Roster | None = None
        self._totals = frozenset(totals) | {metric.name for metric in policy.metrics if metric.floor}
        self._bounds = self.hpa.bounds
        self._memory = Memory()
        self._assessment: Assessment | None = None
        self._decision: Decision | None = None

    def sync(self, view: View) -> int:
        """One assessment, one answer to the HPA, and its sync."""
        scale = Scale(replicas=view.replicas, status_replicas=view.replicas)
        self._assessment = self._assess(view, scale)
        self._decision = decide(self._assessment, scale, self._bounds, view.now)
        count = super().sync(view)
        if count != view.replicas:
            self._bounds = replace(self._bounds, last_scale=view.now)
        return count

    def _answer(self, metric: HpaMetric, view: View) -> Values:
        if metric.name != DESIRED_REPLICAS or self._decision is None:
            return super()._answer(metric, view)
        return NO_ANSWER if self._decision.served is None else (self._decision.served,)

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
        return _known([(metric.name, self._inside_band(metric, view)) for metric in policy.metrics])

    def _inside_band(self, metric: Metric, view: View) -> tuple[float, float] | None:
        if metric.floor or metric.name not in view.load:
            return None
        band, app = Band(self.policy, metric, total=metric.name in self._totals), view.pods[0].containers[0]
        size = 1.0
        if metric.relative_to is not None:
            size = (app.limits if metric.relative_to is Capacity.LIMIT else app.requests)[metric.resource] / NANO
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
            if metric.query is None:
                resources[metric.resource] = view.samples.get(name, {})
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


def hpa_following(policy: Policy, hpa: Hpa | None) -> Hpa:
    """The HPA that follows a policy, with the bounds and the behavior of this one."""
    metadata = {"name": policy.hpa, "namespace": policy.namespace}
    target = CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    exact = {direction: {"tolerance": "0"} for direction in DIRECTIONS}
    following = parse_hpa(
        hpa_manifest(metadata, policy.name, target, Bounds(minimum=1, maximum=DEFAULT_MAXIMUM), exact)
    )
    if hpa is None:
        return following
    up, down = (
        DEFAULT_TOLERANCE if rule.tolerance is None else rule.tolerance for rule in (hpa.scale_up, hpa.scale_down)
    )
    within = HpaTolerance(up, down) if up or down else None
    metrics = hpa.metrics if hpa.desired_metrics else following.metrics
    return replace(hpa, metrics=metrics, bounds=replace(hpa.bounds, tolerance=within, last_scale=None))


def stock_hpa_for(policy: Policy, hpa: Hpa | None, setup: Setup, totals: Collection[str] = ()) -> Hpa:
    """The stock HPA on the policy's metrics, at their high watermarks or targets.

    Bounds and behavior are those of `hpa`, but with the controller's default tolerance.
    """
    native = hpa_following(policy, hpa)
    metrics = [
        _stock_metric(metric, aim, policy, setup, total=metric.name in totals)
        for metric in policy.metrics
        if not metric.floor and (aim := metric.high if metric.target is None else metric.target) is not None
    ]
    return replace(
        native,
        metrics=tuple(metrics),
        scale_up=msgspec.structs.replace(native.scale_up, tolerance=None),
        scale_down=msgspec.structs.replace(native.scale_down, tolerance=None),
        bounds=replace(native.bounds, tolerance=None),
    )


def scaled_targets(hpa: Hpa, share: float) -> Hpa:
    """The HPA with this share of each of its targets."""
    metrics = [
        replace(metric, aim=None if metric.aim is None else max(1, round(metric.aim * share))) for metric in hpa.metrics
    ]
    return replace(hpa, metrics=tuple(metrics))


def _stock_metric(metric: Metric, aim: Fraction, policy: Policy, setup: Setup, *, total: bool) -> HpaMetric:
    is_absolute = policy.algorithm is Algorithm.ABSOLUTE
    if total or is_absolute:
        target = MetricTargetType.VALUE if is_absolute else MetricTargetType.AVERAGE_VALUE
        return HpaMetric(kind=MetricSourceType.EXTERNAL, name=metric.name, target=target, aim=int(aim))
    is_resource = metric.query is None and metric.resource == metric.name
    kind = MetricSourceType.RESOURCE if is_resource else MetricSourceType.PODS
    if is_resource and metric.relative_to is Capacity.REQUEST:
        percent = max(1, int(aim * 100 / NANO))
        return HpaMetric(kind=kind, name=metric.name, target=MetricTargetType.UTILIZATION, aim=percent)
    plain = int(plain_usage(metric, aim, setup))
    return HpaMetric(kind=kind, name=metric.name, target=MetricTargetType.AVERAGE_VALUE, aim=plain)


def plain_usage(metric: Metric, mark: Fraction, setup: Setup) -> Fraction:
    """A watermark in plain usage of a pod (nano-units); 0 where a pod's capacity is unknown."""
    return mark if metric.relative_to is None else mark * capacity_of(metric, setup) / NANO


def capacity_of(metric: Metric, setup: Setup) -> int:
    """The limit or request of a pod (nano-units), for a metric with `relativeTo`; 0 if it is unknown."""
    amounts = setup.limits if metric.relative_to is Capacity.LIMIT else setup.requests
    return amounts.get(metric.resource, 0)


def throttles_of(metrics: Iterable[Metric], setup: Setup) -> Mapping[str, int]:
    """The most that a pod's samples show of each CPU metric (nano-units): its limit, else what it can carry."""
    most = {
        metric.name: setup.limits.get("cpu") or setup.capacity.get(metric.name, 0)
        for metric in metrics
        if metric.resource == "cpu" and not metric.floor
    }
    return {name: amount for name, amount in most.items() if amount}


def judged_by(policy: Policy, setup: Setup) -> dict[str, float]:
    """What a pod may carry of each metric before the policy scales up (nano-units); nothing for Absolute."""
    if policy.algorithm is Algorithm.ABSOLUTE:
        return {}
    limits = {metric: policy.limits_of(metric).high for metric in policy.metrics if not metric.floor}
    return {
        metric.name: float(plain)
        for metric, limit in limits.items()
        if limit is not None and (plain := plain_usage(metric, limit, setup))
    }
