"""The autoscalers that a replay compares: a policy with its HPA, and the stock HPA alone, derived from the policy."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import TypeVar

import msgspec

from adapter.commands.replay.model import Autoscaler, Ranges, Setup, View
from adapter.hpa.controller import Controller, Values
from adapter.hpa.pods import ModelSample, milli
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.bounds import SATURATED, Band
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Container
from adapter.load.quantity import NANO
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
_BY_POD = {"Pods", "Resource", "ContainerResource"}
_TARGET = Target(api_version="apps/v1", kind="Deployment", name="service", uid="service")
_INSIDE = 0.001
"""The share by which the range of a resting autoscaler is narrower than its band: samples are rounded."""


def _shared(samples: Mapping[str, V], make: Callable[[V], T]) -> dict[str, T]:
    """What is made of each pod's value; pods with the same value share one object."""
    made = {value: make(value) for value in set(samples.values())}
    return {pod: made[value] for pod, value in samples.items()}


class HpaAutoscaler(Autoscaler):
    """The stock HPA on metrics of the service. With `effective`, a pulled-out pod is reported at the target.

    The average is that of the serving pods, and pulled-out ones stay in the count. Otherwise those count as they are.
    """

    def __init__(self, hpa: Hpa, name: str = "", *, effective: bool = False) -> None:
        self.name = name
        self.hpa = hpa
        self._effective = effective
        self._controller = Controller(hpa)
        self._recommendation: int | None = None

    def sync(self, view: View) -> int:
        """One sync of the controller."""
        values = [self._answer(metric, view) for metric in self.hpa.metrics]
        sync = self._controller.sync(view.now, view.replicas, values, view.models, view.replicas)
        self._recommendation = sync.recommendation
        return sync.replicas

    def resting(self, view: View) -> Ranges | None:
        """The loads within the tolerance around every average, where this sync recommended the count itself."""
        serving, tolerances = sum(not pod.pulled_out_annotation for pod in view.pods), self._controller.tolerances
        if self._recommendation != view.replicas or not serving or view.now - view.sampled_at > MAX_AGE:
            return None
        ranges = {}
        for metric in self.hpa.metrics:
            is_average = metric.target == "AverageValue" and metric.aim
            if not metric.aim or not is_average or len(view.samples.get(metric.name, ())) != len(view.pods):
                return None
            # Raw averages have the pulled-out pods in them, which use nothing.
            spread = 1.0 if self._effective and metric.kind in _BY_POD else len(view.pods) / serving
            aim, rounding = float(metric.aim) * spread, _INSIDE + 10**6 / float(metric.aim)  # milli-units
            ranges[metric.name] = aim * (1 - tolerances.down + rounding), aim * (1 + tolerances.up - rounding)
        return ranges

    def _answer(self, metric: HpaMetric, view: View) -> Values:
        """What the metrics APIs answer; a sentence where there is no fresh sample."""
        if metric.name not in view.load or view.now - view.sampled_at > MAX_AGE:
            return NO_ANSWER
        if metric.kind not in _BY_POD:
            return (milli(view.load[metric.name]),)
        samples = view.samples[metric.name]
        values = _shared(samples, lambda value: ModelSample(milli(value), view.sampled_at, view.window))
        if self._effective and metric.aim is not None:
            value = milli(metric.aim)
            if metric.target == "Utilization":
                value = metric.aim * milli(view.pods[0].containers[0].requests.get(metric.name, 0)) // 100
            out = [pod.name for pod in view.pods if pod.pulled_out_annotation and pod.name in values]
            values |= {name: values[name]._replace(value=value) for name in out}
        return values


class PolicyAutoscaler(HpaAutoscaler):
    """A WatermarkPolicy and the HPA that takes the replica count from it, as they work in a cluster.

    `hpa` gives bounds and behavior; one that does not ask for `desired_replicas` is replaced by one that does. Without
    an HPA, one with tolerance 0 and no limits takes its place. `totals` names the metrics that are one number for the
    service. Annotations are the evidence of pull-outs, also of a policy with a registry. Metrics cover whole pods.
    """

    def __init__(self, policy: Policy, hpa: Hpa | None = None, name: str = "", totals: Collection[str] = ()) -> None:
        super().__init__(hpa_following(policy, hpa), name)
        self.deletes_pulled_out_first = policy.pulled_out.delete_first
        whole_pods = tuple(replace(metric, containers=()) for metric in policy.metrics)
        # A policy that observes is replayed to see what it would do.
        self.policy = replace(policy, mode=Mode.ACTIVE, metrics=whole_pods, registry=None)
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
        has_rules = policy.schedules or policy.hold_until or policy.converge_towards
        if has_rules or policy.strategy is not Strategy.WATERMARK or policy.algorithm is Algorithm.ABSOLUTE:
            return None
        if policy.pulled_out.delete_first and any(pod.pulled_out_annotation for pod in view.pods):
            return None
        if decision is None or assessment is None or decision.held_by is not None or len(self.hpa.metrics) != 1:
            return None
        if decision.desired != view.replicas or any(metric.upper.hold is not None for metric in assessment.metrics):
            return None
        ranges, app = {}, view.pods[0].containers[0]
        for metric in policy.metrics:
            if metric.floor or metric.name not in view.load:
                return None
            band = Band(policy, metric, total=metric.name in self._totals)
            least = 1.0 if band.low is None else float(plain_usage(metric, band.low, app))
            most = inf if band.high is None else float(plain_usage(metric, band.high, app))
            if band.saturation is not None and (limit := app.limits.get("cpu")):
                most = min(most, float(SATURATED) * limit)
            ranges[metric.name] = least * (1 + _INSIDE), most * (1 - _INSIDE)
        return ranges

    def _assess(self, view: View, scale: Scale) -> Assessment:
        inputs = AssessmentInputs(
            policy=self.policy, pods=view.pods, samples=self._samples(view), roster=None, scale=scale,
            bounds=self._bounds, target=_TARGET, memory=self._memory, now=view.now,
        )  # fmt: skip
        assessment = assess(inputs)
        self._memory = assessment.memory
        return assessment

    def _samples(self, view: View) -> Samples:
        """What the sources of the policy's metrics answer."""
        usage: dict[str, tuple[tuple[str, int], ...]] = {}
        queries: dict[str, QuerySamples] = {}
        at = view.sampled_at
        for name, metric in ((metric.name, metric) for metric in self.policy.metrics if metric.name in view.load):
            if metric.query is None:
                for pod, value in view.samples[name].items():
                    usage[pod] = (*usage.get(pod, ()), (metric.resource, value))
                continue
            is_total = name in self._totals
            total = Point(at, view.load[name]) if is_total else None
            pods = {} if is_total else _shared(view.samples[name], lambda value: Point(at, value))
            queries[name] = QuerySamples(
                pods=pods, total=total, window=view.window, by_pod=not is_total, max_age=MAX_AGE, fetched_at=view.now
            )
        used = _shared(usage, lambda amounts: PodUsage(at, view.window, {"app": dict(amounts)}))
        return Samples(ResourceSamples(pods=used, max_age=MAX_AGE, fetched_at=view.now), queries)


def hpa_following(policy: Policy, hpa: Hpa | None) -> Hpa:
    """The HPA that follows a policy, with the bounds and the behavior of this one."""
    metadata = {"name": policy.hpa, "namespace": policy.namespace}
    target = CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    exact = {direction: {"tolerance": "0"} for direction in DIRECTIONS}
    bounds = Bounds(minimum=1, maximum=DEFAULT_MAXIMUM)
    following = parse_hpa(hpa_manifest(metadata, policy.name, target, bounds, exact))
    if hpa is None:
        return following
    up, down = (
        DEFAULT_TOLERANCE if rule.tolerance is None else rule.tolerance for rule in (hpa.scale_up, hpa.scale_down)
    )
    within = HpaTolerance(up, down) if up or down else None
    metrics = hpa.metrics if hpa.desired_metrics else following.metrics
    return replace(hpa, metrics=metrics, bounds=replace(hpa.bounds, tolerance=within, last_scale=None))


def stock_hpa_for(policy: Policy, hpa: Hpa, setup: Setup, totals: Collection[str] = (), share: float = 1.0) -> Hpa:
    """The stock HPA on the policy's metrics, at this share of their high watermarks or targets.

    Bounds and behavior are those of `hpa`, but with the controller's default tolerance.
    """
    metrics = []
    for metric in policy.metrics:
        mark = metric.high if metric.target is None else metric.target
        if metric.floor or mark is None:
            continue
        kind: MetricSourceType = "Pods"
        target: MetricTargetType = "AverageValue"
        if policy.algorithm is Algorithm.ABSOLUTE or metric.name in totals:
            kind = "External"
        elif metric.query is None and metric.resource == metric.name:
            kind = "Resource"
        if policy.algorithm is Algorithm.ABSOLUTE:
            target = "Value"
        plain = mark if kind == "External" else plain_usage(metric, mark, setup)
        metrics.append(HpaMetric(kind=kind, name=metric.name, target=target, aim=max(1, round(float(plain) * share))))
    return replace(
        hpa,
        metrics=tuple(metrics),
        scale_up=msgspec.structs.replace(hpa.scale_up, tolerance=None),
        scale_down=msgspec.structs.replace(hpa.scale_down, tolerance=None),
        bounds=replace(hpa.bounds, tolerance=None),
    )


def plain_usage(metric: Metric, mark: Fraction, pod: Setup | Container) -> Fraction:
    """A watermark in plain usage of a pod (nano-units); 0 where a pod's capacity is unknown."""
    return mark if metric.relative_to is None else mark * capacity_of(metric, pod) / NANO


def capacity_of(metric: Metric, pod: Setup | Container) -> int:
    """The limit or request of a pod (nano-units), for a metric with `relativeTo`; 0 if it is unknown."""
    amounts = pod.limits if metric.relative_to is Capacity.LIMIT else pod.requests
    return amounts.get(metric.resource, 0)


def throttles_of(metrics: Iterable[Metric], setup: Setup) -> Mapping[str, int]:
    """The most that a pod's samples show of each CPU metric (nano-units): its limit, else what it can carry."""
    limit, capacity = setup.limits.get("cpu"), setup.capacity
    throttled = [metric.name for metric in metrics if metric.resource == "cpu" and not metric.floor]
    return {name: amount for name in throttled if (amount := limit or capacity.get(name, 0))}


def judged_by(policy: Policy, setup: Setup) -> dict[str, float]:
    """What a pod may carry of each metric before the policy scales up (nano-units); nothing for Absolute."""
    if policy.algorithm is Algorithm.ABSOLUTE:
        return {}
    limits = [(metric, policy.limits_of(metric).high or Fraction(0)) for metric in policy.metrics if not metric.floor]
    return {metric.name: float(plain) for metric, high in limits if (plain := plain_usage(metric, high, setup))}
