"""The autoscalers that a replay compares: a policy with its HPA, and the stock HPA alone."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from adapter.load.assessment import Assessment, AssessmentInputs, Decision, HeldBy
from adapter.load.memory import Memory
from adapter.load.memory_updates import after_scale
from adapter.load.pipeline import assess, decide
from adapter.load.pods import Pod
from adapter.load.resting import resting_range
from adapter.load.roster import Roster
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Capacity, Metric, Policy, Scale, Target
from adapter.policy.hpa import DESIRED_REPLICAS, Hpa, HpaMetric, MetricTargetType
from adapter.replay.answers import NO_ANSWER, ModelPods, answer, looks_at_pods, usages_of
from adapter.replay.hpa.controller import Controller, Flags, Values
from adapter.replay.hpa.machine import milli
from adapter.replay.hpa.pods import ModelPod
from adapter.replay.hpas import native_hpa
from adapter.replay.service import Rest, View

MAX_AGE = 90.0
"""How long a sample counts (seconds)."""
_TARGET = Target(api_version="apps/v1", kind="Deployment", name="service", uid="service")


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
        max_age: float = MAX_AGE,
        *,
        keeps_registry: bool = False,
    ) -> None:
        self.name = name or policy.name
        self.deletes_pulled_out_first = policy.pulled_out.delete_first
        self.policy = replace(replayed(policy), registry=policy.registry if keeps_registry else None)
        self.roster: Roster | None = None
        self.hpa = native_hpa(policy, hpa)
        self._totals = frozenset(totals)
        self._max_age = max_age
        self._controller = Controller(self.hpa)
        self._bounds = self.hpa.bounds
        self._memory = Memory()
        self._models = ModelPods()
        self.assessment: Assessment | None = None
        self.decision: Decision | None = None
        self._recommendation: int | None = None
        self._known_rest: tuple[object, int, Rest | None] | None = None

    def sync(self, view: View) -> int:
        """One assessment, one answer to the HPA, and its sync."""
        scale = Scale(replicas=view.replicas, status_replicas=view.status_replicas)
        inputs = AssessmentInputs(
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
        self.assessment = assess(inputs)
        self._memory = self.assessment.memory
        self.decision = decide(self.assessment, scale, self._bounds, view.now)
        values = [self._answer(metric, view) for metric in self.hpa.metrics]
        pods = self._models.of(view.pods) if looks_at_pods(self.hpa) else ()
        sync = self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas)
        if sync.replicas != view.replicas:
            self._bounds = replace(self._bounds, last_scale=view.now)
            # The server watches the scale, so it knows of a change at once and not only at the next sync.
            self._memory = after_scale(self._memory, replace(scale, replicas=sync.replicas), view.now)
        self._recommendation = sync.recommendation
        return sync.replicas

    def _answer(self, metric: HpaMetric, view: View) -> Values:
        if metric.name != DESIRED_REPLICAS:
            return answer(metric, view, self._max_age)
        served = self.decision.served if self.decision is not None else None
        return NO_ANSWER if served is None else (served,)

    def _samples(self, view: View) -> Samples:
        """What the sources of the policy's metrics answer."""
        resources: dict[str, Mapping[str, int]] = {}
        queries: dict[str, QuerySamples] = {}
        for metric in self.policy.metrics:
            if metric.resource is not None:
                resources[metric.resource.name] = view.samples.get(metric.name, {})
            elif metric.name in view.load:
                queries[metric.name] = self._query(metric.name, view)
        window = view.window or 0.0
        return Samples(
            ResourceSamples(
                pods=usages_of(resources, view.sampled_at, window), max_age=self._max_age, fetched_at=view.now
            ),
            queries,
        )

    def _query(self, name: str, view: View) -> QuerySamples:
        is_total = name in self._totals
        points: dict[str, Point] = {}
        if not is_total:
            made: dict[int, Point] = {}
            for pod, value in view.samples[name].items():
                point = made.get(value)
                if point is None:
                    point = made[value] = Point(view.sampled_at, value)
                points[pod] = point
        return QuerySamples(
            pods=points,
            total=Point(view.sampled_at, view.load[name]) if is_total else None,
            window=view.window or 0.0,
            by_pod=not is_total,
            max_age=self._max_age,
            fetched_at=view.now,
        )

    def rest(self, view: View) -> Rest | None:
        """When the policy keeps the count, and the HPA with it."""
        if not self._holds(view):
            return None
        known = self._known_rest
        if known is not None and known[0] is view.pods and known[1] == view.replicas:
            rest = known[2]
            if rest is None or view.now < rest.until:
                return rest
        rest = self._rest_of(view)
        self._known_rest = view.pods, view.replicas, rest
        return rest

    def _holds(self, view: View) -> bool:
        """Whether this very sync kept the count without a doubt: every metric answered, and the HPA followed."""
        assessment, decision = self.assessment, self.decision
        if assessment is None or decision is None or decision.desired != view.replicas:
            return False
        # A cooldown that holds now ends by itself.
        if decision.held_by not in {None, HeldBy.BOUNDS}:
            return False
        if len(decision.outcomes) != len(self.policy.metrics) or self._recommendation != view.replicas:
            return False
        return all(len(metric.scenarios) == 1 for metric in assessment.metrics)

    def _rest_of(self, view: View) -> Rest | None:
        if len(self.hpa.metrics) != 1 or self.assessment is None or not view.replicas:
            return None
        counted = [pod for pod in view.pods if pod.is_ready and not pod.deleting and not pod.pulled_out_annotation]
        ranges: dict[str, tuple[int, int]] = {}
        bounds = self._bounds
        for metric in self.policy.metrics:
            capacity = _capacity(metric, counted[0]) if counted else None
            loads = resting_range(
                self.policy,
                metric,
                len(counted),
                capacity,
                total=metric.name in self._totals,
                may_fall=view.replicas > max(1, bounds.minimum),
                may_rise=view.replicas < bounds.maximum,
            )
            if loads is None:
                return None
            ranges[metric.name] = loads
        return Rest(ranges, self._until(view.now))

    def _until(self, now: float) -> float:
        """When the policy itself changes next: a schedule's window, or the end of a hold."""
        times = [] if self.policy.hold_until is None else [self.policy.hold_until]
        for window in self.assessment.windows if self.assessment is not None else ():
            times += [window.start, window.end]
        return min((at for at in times if at > now), default=inf)


class HpaAutoscaler:
    """The stock HPA on metrics of the service. With `effective`, a pulled-out pod is reported at the target.

    That is how the adapter serves Pods metrics: the average is that of the serving pods, and pulled-out ones stay in
    the count. Otherwise they count with what they still use.
    """

    deletes_pulled_out_first = False

    def __init__(
        self, hpa: Hpa, name: str = "", *, effective: bool = False, flags: Flags | None = None, max_age: float = MAX_AGE
    ) -> None:
        self.name = name or ("HPA, effective average" if effective else "HPA, raw average")
        self.hpa = hpa
        self._effective = effective
        self._max_age = max_age
        self._controller = Controller(hpa, flags)
        self._models = ModelPods()

    def sync(self, view: View) -> int:
        """One sync of the controller."""
        pods = self._models.of(view.pods)
        values = [self._answer(metric, view, pods) for metric in self.hpa.metrics]
        return self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas).replicas

    def _answer(self, metric: HpaMetric, view: View, pods: Sequence[ModelPod]) -> Values:
        values = answer(metric, view, self._max_age)
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


def replayed(policy: Policy) -> Policy:
    """The policy as a replay takes it: no registry, whole pods."""
    return replace(policy, registry=None, metrics=tuple(map(_of_whole_pods, policy.metrics)))


def _of_whole_pods(metric: Metric) -> Metric:
    if metric.resource is not None:
        return replace(metric, resource=replace(metric.resource, containers=()))
    if metric.query is not None:
        return replace(metric, query=replace(metric.query, containers=()))
    return metric


def _capacity(metric: Metric, pod: Pod) -> int | None:
    """What a pod's usage is divided by (nano-units); None where the metric is no utilization."""
    source = metric.resource.name if metric.resource else metric.query.resource if metric.query else ""
    amounts = pod.containers[0].limits if metric.of is Capacity.LIMIT else pod.containers[0].requests
    return None if metric.of is None else amounts.get(source)
