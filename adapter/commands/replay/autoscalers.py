"""The autoscalers that a replay compares: a policy with its HPA, and the stock HPA alone."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import inf
from typing import TypeVar

from adapter.commands.replay.hpas import hpa_following, resource_of
from adapter.commands.replay.service import UNBOUNDED, Rest, RestingRange, View
from adapter.hpa.controller import Controller, Values
from adapter.hpa.pods import ModelPod, ModelSample, milli
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision, HeldBy
from adapter.load.bounds import SATURATED, band_of
from adapter.load.decide import decide
from adapter.load.memory import Memory, last_scaled
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Algorithm, Capacity, Metric, Policy, Scale, Target
from adapter.policy.hpa import DESIRED_REPLICAS, Hpa, HpaMetric, MetricSourceType, MetricTargetType

T = TypeVar("T")
V = TypeVar("V")

MAX_AGE = 90.0
"""How long a sample counts (seconds)."""
NO_ANSWER = "no metrics returned"
_BY_POD = {MetricSourceType.PODS, MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}
_MILLI = 10**6
"""Nano-units in a milli-unit."""
_TARGET = Target(api_version="apps/v1", kind="Deployment", name="service", uid="service")


class ModelPods:
    """Pods as the model of the HPA takes them; made anew only where the pods change."""

    def __init__(self) -> None:
        self._pods: Sequence[Pod] = ()
        self._models: tuple[ModelPod, ...] = ()

    def of(self, pods: Sequence[Pod]) -> tuple[ModelPod, ...]:
        """The models of these pods."""
        if pods is not self._pods:
            requests = [
                {one.name: {name: milli(amount) for name, amount in one.requests.items()} for one in pod.containers}
                for pod in pods
            ]
            self._pods = pods
            self._models = tuple(
                ModelPod(
                    name=pod.name,
                    phase=pod.phase,
                    deleting=pod.deleting,
                    ready="" if pod.ready is None else str(pod.ready.status),
                    ready_since=0.0 if pod.ready is None else pod.ready.since or 0.0,
                    started=pod.started_at,
                    requests=next(iter(containers.values()), {}),
                    containers=containers,
                )
                for pod, containers in zip(pods, requests, strict=True)
            )
        return self._models


def answer(metric: HpaMetric, view: View) -> Values:
    """What the metrics APIs tell an HPA of a metric of the service; a sentence where there is no fresh sample."""
    if view.now - view.sampled_at > MAX_AGE:
        return NO_ANSWER
    if metric.kind not in _BY_POD:
        value = view.load.get(metric.name)
        return NO_ANSWER if value is None else (milli(value),)
    samples = view.samples.get(metric.name)
    if samples is None:
        return NO_ANSWER
    at, window = view.sampled_at, view.window or 0.0
    return _shared(samples, lambda value: ModelSample(milli(value), at, window))


def _shared(samples: Mapping[str, V], make: Callable[[V], T]) -> dict[str, T]:
    """What is made of each pod's value; pods with the same value share one object."""
    made = {value: make(value) for value in set(samples.values())}
    return {pod: made[value] for pod, value in samples.items()}


class PolicyAutoscaler:
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
        self.policy = replace(policy, metrics=whole_pods, registry=policy.registry if keeps_registry else None)
        self.roster: Roster | None = None
        self.hpa = hpa_following(policy, hpa)
        self._needs_pods = any(
            metric.kind in _BY_POD or metric.target is not MetricTargetType.AVERAGE_VALUE for metric in self.hpa.metrics
        )
        self._totals = frozenset(totals) | {metric.name for metric in policy.metrics if metric.floor}
        self._controller = Controller(self.hpa)
        self._bounds = self.hpa.bounds
        self._memory = Memory()
        self._models = ModelPods()
        self.assessment: Assessment | None = None
        self.decision: Decision | None = None

    def sync(self, view: View) -> int:
        """One assessment, one answer to the HPA, and its sync."""
        scale = Scale(replicas=view.replicas, status_replicas=view.status_replicas)
        self.assessment = self._assess(view, scale)
        self.decision = decide(self.assessment, scale, self._bounds, view.now)
        values = [self._answer(metric, view) for metric in self.hpa.metrics]
        pods = self._models.of(view.pods) if self._needs_pods else ()
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas)
        if sync.replicas != view.replicas:
            self._bounds = replace(self._bounds, last_scale=view.now)
        return sync.replicas

    def watch(self, view: View) -> None:
        """The memory dates the change of the count, and pods that depart, at this moment."""
        self._assess(view, Scale(replicas=view.replicas, status_replicas=view.status_replicas))

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

    def _answer(self, metric: HpaMetric, view: View) -> Values:
        if metric.name != DESIRED_REPLICAS:
            return answer(metric, view)
        served = self.decision.served if self.decision is not None else None
        return NO_ANSWER if served is None else (served,)

    def _samples(self, view: View) -> Samples:
        """What the sources of the policy's metrics answer."""
        resources: dict[str, Mapping[str, int]] = {}
        queries: dict[str, QuerySamples] = {}
        at, window = view.sampled_at, view.window or 0.0
        for name, metric in ((metric.name, metric) for metric in self.policy.metrics):
            if metric.resource is not None:
                resources[metric.resource.name] = view.samples.get(name, {})
            elif name in view.load:
                is_total = name in self._totals
                queries[name] = QuerySamples(
                    pods={} if is_total else _shared(view.samples[name], lambda value: Point(at, value)),
                    total=Point(at, view.load[name]) if is_total else None,
                    window=window,
                    by_pod=not is_total,
                    max_age=MAX_AGE,
                    fetched_at=view.now,
                )
        by_pod = {
            pod: tuple((name, values[pod]) for name, values in resources.items() if pod in values)
            for pod in chain.from_iterable(resources.values())
        }
        pods = _shared(by_pod, lambda amounts: PodUsage(at, window, {"app": dict(amounts)}))
        return Samples(ResourceSamples(pods=pods, max_age=MAX_AGE, fetched_at=view.now), queries)

    def rest(self, view: View) -> Rest | None:
        """When the policy keeps the count, and the HPA with it."""
        assessment = self.assessment
        if assessment is None or not self._is_sure(assessment, view):
            return None
        # Until then a cooldown keeps the count from falling.
        last, pace = last_scaled(self._memory, self._bounds, view.now), self.policy.cooldown.down
        cools_until = last + pace if last is not None and view.now - last < pace else None
        ranges = self._ranges(view, cools_until)
        if ranges is None:
            return None
        held_at, sinking = self._controller.keeps(view.replicas)
        # Whether a smaller load asks for a smaller count at once, and always for the same.
        sinks = (
            not self.policy.fast_scale_up
            and cools_until is None
            and not any(metric.missing for metric in assessment.metrics)
            and not any(metric.delay.down for metric in self.policy.metrics)
            and all(pod.is_ready or pod.deleting for pod in view.pods)
        )
        # The policy itself changes with a schedule's window, and at the end of a hold or of a cooldown.
        times = [self.policy.hold_until, cools_until]
        times += [time for window in assessment.windows for time in (window.start, window.end)]
        until = min((at for at in times if at is not None and at > view.now), default=inf)
        return Rest(ranges, held_at, sinking if sinks else 0.0, until)

    def _is_sure(self, assessment: Assessment, view: View) -> bool:
        """Whether this decision depends on the load alone: every metric answered, and nothing held the count."""
        decision = self.decision
        if decision is None or decision.desired is None or not view.replicas or len(self.hpa.metrics) != 1:
            return False
        if self.policy.registry is not None:  # what it answers may change at any time
            return False
        if decision.held_by not in {None, HeldBy.BOUNDS, HeldBy.COOLDOWN} or decision.desired > view.replicas:
            return False
        return len(decision.outcomes) == len(self.policy.metrics) and all(
            metric.floor or (len(metric.lower) == 1 and metric.upper.hold is None) for metric in assessment.metrics
        )

    def _ranges(self, view: View, cools_until: float | None) -> dict[str, RestingRange] | None:
        """The loads at which each metric surely keeps the count; None where any is not sure."""
        counted = [pod for pod in view.pods if pod.is_ready and not pod.deleting and not pod.pulled_out_annotation]
        ranges: dict[str, RestingRange] = {}
        for metric in self.policy.metrics:
            loads = _policy_range(
                self.policy,
                metric,
                view.replicas,
                counted,
                total=metric.name in self._totals,
                may_fall=view.replicas > max(1, self._bounds.minimum) and cools_until is None,
                may_rise=view.replicas < self._bounds.maximum,
            )
            if loads is None:
                return None
            ranges[metric.name] = loads
        return ranges


def _policy_range(
    policy: Policy,
    metric: Metric,
    replicas: int,
    serving: Sequence[Pod],
    *,
    total: bool,
    may_fall: bool,
    may_rise: bool,
) -> RestingRange | None:
    """The loads at which a policy's metric surely keeps the count; None where nothing is sure.

    The `serving` pods carry equal shares, and none is doubtful. `total`: the metric is one number for the service. The
    range is a little smaller than it might be: the pods' shares are rounded. Where the count is at its minimum (not
    `may_fall`) or at its maximum (not `may_rise`), the range has no such end.
    """
    if not serving or policy.converge_towards is not None:
        return None
    if metric.floor:  # by itself it never keeps the count from falling: it asks for less, or for as much as it needs
        one_pod = metric.high if metric.target is None else metric.target
        most = UNBOUNDED if one_pod is None or not may_rise else int(one_pod * replicas)
        return None if one_pod is None else RestingRange(0, UNBOUNDED, most)
    if metric.delay.up or metric.delay.down:  # even at its bounds: how long usage has been beyond is remembered
        may_fall = may_rise = True
    if policy.algorithm is Algorithm.ABSOLUTE and not total:
        return None
    pods, app = len(serving), serving[0].containers[0]
    carried = Fraction(1 if policy.algorithm is Algorithm.ABSOLUTE else pods)
    if metric.relative_to is not None:
        amounts = app.limits if metric.relative_to is Capacity.LIMIT else app.requests
        carried = carried * amounts.get(resource_of(metric), 0) / NANO
    if not carried:
        return None
    band, limit = band_of(policy, metric, total=total), app.limits.get("cpu")
    floor = least = pods + 1
    most = UNBOUNDED
    if band.under is not None and may_fall:
        least = max(floor, int(band.under * carried) + 1 + pods)
    if band.beyond is not None and may_rise:
        most = int(band.beyond * carried) - 1 - pods
        if band.saturation is not None and limit is not None:
            most = min(most, int(SATURATED * limit * pods) - 1 - pods)
    return RestingRange(floor, least, most) if least <= most else None


class HpaAutoscaler:
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
        values = [self._answer(metric, view, pods) for metric in self.hpa.metrics]
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas)
        self._recommendation = sync.recommendation
        return sync.replicas

    def rest(self, view: View) -> Rest | None:
        """When the HPA keeps the count: within its tolerance, or at its bounds."""
        if self._recommendation is None or self._recommendation > view.replicas or not view.replicas:
            return None
        # Where every pod is Ready, sampled and no longer initializing, that stays so with the same pods.
        begun = view.sampled_at - (view.window or 0.0)
        alive = [pod for pod in view.pods if not pod.deleting]
        if any(len(samples) != len(alive) for samples in view.samples.values()) or not all(
            pod.ready is not None and pod.ready.status and (pod.ready.since or 0.0) <= begun for pod in alive
        ):
            return None
        ranges = {}
        for metric in self.hpa.metrics:
            loads = self._range(metric, view)
            if loads is None:
                return None
            ranges[metric.name] = loads
        held_at, sinking = self._controller.keeps(view.replicas)
        return Rest(ranges, held_at, sinking) if ranges else None

    def _range(self, metric: HpaMetric, view: View) -> RestingRange | None:
        """The loads at which a metric, all others as they are, surely keeps the count; None where none is sure.

        The serving pods carry equal shares. A larger load never recommends less, so it is enough to ask for both ends.
        """
        serving = [pod.name for pod in view.pods if pod.is_ready and not pod.deleting and not pod.pulled_out_annotation]
        pods, bounds, tolerances = self._models.of(view.pods), self.hpa.bounds, self._controller.tolerances
        values = self._answer(metric, view, pods)
        aim = _whole_aim(metric, values, view, pods)
        if aim is None or not serving or metric.aim is None:
            return None
        idle = values.items() if isinstance(values, Mapping) else ()
        out = sum(sample.value for name, sample in idle if name not in serving)
        # Rounding: of each pod's milli-units, of their mean, and of a whole percent.
        slack = 2 * len(view.pods) + 2 + aim // (metric.aim if metric.target is MetricTargetType.UTILIZATION else aim)
        floor = least = len(serving) + 1
        most, ends = UNBOUNDED, []
        if view.replicas > max(1, bounds.minimum):
            least = max(floor, (round(aim * (1 - tolerances.down)) - out + slack) * _MILLI)
            ends.append(least)
        if view.replicas < bounds.maximum:
            most = (round(aim * (1 + tolerances.up)) - out - slack) * _MILLI
            ends.append(most)
        if least > most:
            return None
        alone = Controller(replace(self.hpa, metrics=(metric,)))
        for end in ends:
            samples = dict(view.samples.get(metric.name, {})) | dict.fromkeys(serving, -(-end // len(serving)))
            at_end = view._replace(samples={**view.samples, metric.name: samples}, load={**view.load, metric.name: end})
            answers = [self._answer(metric, at_end, pods)]
            if alone.recommend(view.now, view.replicas, answers, pods, view.status_replicas) != view.replicas:
                return None
        return RestingRange(floor, least, most)

    def _answer(self, metric: HpaMetric, view: View, pods: tuple[ModelPod, ...]) -> Values:
        values = answer(metric, view)
        if not self._effective or not isinstance(values, Mapping) or metric.aim is None:
            return values
        out = [pod.name for pod in view.pods if pod.pulled_out_annotation and pod.name in values]
        if not out:
            return values
        requests = {pod.name: pod.requests.get(metric.name, 0) for pod in pods}
        by_percent = metric.target is MetricTargetType.UTILIZATION
        return {
            name: sample
            if name not in out
            else sample._replace(value=metric.aim * requests[name] // 100 if by_percent else milli(metric.aim))
            for name, sample in values.items()
        }


def _whole_aim(metric: HpaMetric, values: Values, view: View, pods: tuple[ModelPod, ...]) -> int | None:
    """The usage of all pods at which the ratio is 1 (milli-units)."""
    if metric.aim is None or isinstance(values, str):
        return None
    if not isinstance(values, Mapping):
        by_average = metric.target is MetricTargetType.AVERAGE_VALUE
        return milli(metric.aim) * view.status_replicas if by_average else None
    if metric.target is MetricTargetType.UTILIZATION:
        return metric.aim * sum(pod.requests.get(metric.name, 0) for pod in pods if pod.name in values) // 100
    return milli(metric.aim) * len(values)
