"""Evaluates one policy: collects its HPA, target, pods, samples and roster, then assesses them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog

from adapter.evaluation.freshness import Freshness
from adapter.evaluation.object_index import DecodedPolicy, ObjectIndex
from adapter.evaluation.targets import Targets
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.session import MOST_SKEW_SECONDS
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.samples import ResourceSamples, Samples
from adapter.load.spec import Policy
from adapter.policy import status_memory
from adapter.policy.documents import PolicyError
from adapter.policy.linking import NO_SCALE, Link, owns_its_pods, reference_faults, selector_fault, target_pods
from adapter.registries.follow import RegistryManager
from adapter.registries.kubernetes import Endpoints
from adapter.registries.source import service_of
from adapter.runtime.decoding import Decoder
from adapter.snapshot import Key, PolicyView, Problem
from adapter.usage.prometheus import Prometheus
from adapter.usage.resource_metrics import ResourceMetrics

_log = structlog.get_logger(__name__)
_MEMORY = Decoder(dict[str, Any])

FEW_PODS = 50
"""So many are assessed at once, in about a millisecond: a turn of the thread would cost a third of that again."""


class Inputs(NamedTuple):
    """Where targets, samples and instance lists come from. All answer from memory, without I/O."""

    targets: Targets
    freshness: Freshness
    endpoints: Endpoints
    resource_metrics: ResourceMetrics
    prometheus: Prometheus
    registries: RegistryManager


class Evaluator:
    """Turns a policy into its view, and keeps the memory of each policy. `now` is the time in epoch seconds."""

    def __init__(self, index: ObjectIndex, inputs: Inputs, now: Callable[[], float]) -> None:
        self._index, self._inputs, self._now, self._latest = index, inputs, now, 0.0
        self._memories: dict[Key, tuple[Policy, Memory]] = {}
        """The memory of each policy's last assessment, with the policy as it was then."""

    def begin(self, key: Key) -> PolicyView | Callable[[], PolicyView] | None:
        """The view of a policy with a problem or few pods; else what assesses it, in any thread.

        It assesses on inputs of this moment. A policy is evaluated once at a time. What changes meanwhile is part of
        the next evaluation, which the change asks for.
        """
        decoded = self._index.policies.get(key)
        if decoded is None:
            self._memories.pop(key, None)
            return None
        view, link = initial_view(decoded), self._index.link(key)
        if view.problem is not None:
            return view
        silence = self._inputs.freshness.policy(key.namespace, self._index.target(key))
        view = self._with_target(view, link)
        if link is not None and view.problem is None and not silence and not self._refusal(view.policy):
            return self._assessing(decoded, view, link)
        problem = Problem(503, "WatchSilent", silence) if silence else self._refusal(view.policy)
        # What the settings lack is told without an assessment too: often HPA and workload are applied last.
        problem = problem or self._undefined_query(view.policy, view.target_name) or view.problem
        # A stale watch does not show the current count.
        return replace(view, problem=problem, scale=None if silence else view.scale)

    def _with_target(self, view: PolicyView, link: Link | None) -> PolicyView:
        """The view with the policy's HPA and target, or with the problem of these."""
        policy = view.policy
        if link is None:
            missing = f"HorizontalPodAutoscaler {policy.hpa}, that WatermarkPolicy {policy.name} names, does not exist"
            return replace(view, problem=Problem(404, "NotFound", f"{missing} in namespace {policy.namespace}"))
        ref, view = link.ref, replace(view, bounds=link.hpa.bounds)
        if faults := list(reference_faults(*link.hpa.target)):
            invalid = f"HorizontalPodAutoscaler {link.hpa.name}: {'; '.join(map(str, faults))}"
            return replace(view, problem=Problem(422, "Invalid", invalid))
        problem, resolved = None, self._inputs.targets.find(ref)
        if rivals := self._index.neighbours(Key(policy.namespace, policy.name)).policies:
            message = f"PolicyConflict: {ref.kind} {ref.name} has other policies as well ({rivals}); keep one"
            problem = Problem(409, "Conflict", message)
        if isinstance(resolved, str):
            return replace(view, target_name=ref.name, problem=problem or _unavailable(resolved))
        scale, fault = resolved.object.scale, f" {NO_SCALE}"
        if scale is not None:
            try:
                fault = selector_fault(parse_selector(scale.selector).requirements)
            except SelectorError as error:
                fault = str(error)
            fault = fault and f": {fault}"
        return replace(
            view,
            target_name=ref.name,
            target=resolved.object.target,
            target_resource=resolved.resource,
            scale_path=resolved.scale_path,
            scale=scale,
            scale_proven_at=resolved.proven_at,
            problem=problem or (_unavailable(f"{ref.kind} {ref.name}{fault}") if fault else None),
        )

    def _assessing(self, decoded: DecodedPolicy, view: PolicyView, link: Link) -> PolicyView | Callable[[], PolicyView]:
        """The view with its assessment; of a policy with many pods, what makes it."""
        policy, ref, service = link.policy, link.ref, service_of(link.policy)
        assert view.scale is not None
        pods: Iterable[Pod] = self._index.pods.namespace(ref.namespace).values()
        if owns_its_pods(ref.kind):
            pods = self._index.pods.owned(ref.namespace, ref.name)
        queries = {
            metric.name: self._inputs.prometheus.samples(metric.query, policy.namespace, ref.name)
            for metric in policy.metrics
            if metric.query is not None
        }
        uses_resources = any(metric.query is None for metric in policy.metrics)
        resources = self._inputs.resource_metrics.samples(policy.namespace) if uses_resources else ResourceSamples()
        now, kept = self._now(), self._memories.get(decoded.key)
        if kept is not None and self._latest - now > MOST_SKEW_SECONDS:
            # The clock was put back: pods that leave are dated before samples that have not seen their load move.
            self._memories[decoded.key] = kept[0], replace(kept[1], started_at=self._latest)
        self._latest = max(self._latest, now)
        inputs = AssessmentInputs(
            policy=policy,
            pods=tuple(pods),
            samples=Samples(resources=resources, queries=queries),
            roster=self._inputs.registries.instances(service) if service is not None else None,
            scale=view.scale,
            bounds=link.hpa.bounds,
            target=view.target,
            now=now,
        )
        assessing = partial(self._assess, decoded, view, inputs)
        return assessing() if len(inputs.pods) <= FEW_PODS else assessing

    def _assess(self, decoded: DecodedPolicy, view: PolicyView, inputs: AssessmentInputs) -> PolicyView:
        """The view with its assessment. Of the pods of the inputs, only those count that the target has."""
        assert inputs.target is not None
        own = target_pods(inputs.pods, parse_selector(inputs.scale.selector).matches, inputs.target)
        memory = self._memory(decoded, inputs)
        inputs = replace(inputs, pods=tuple(map(self._with_endpoints, own)), memory=memory)
        assessment = assess(inputs)
        self._memories[decoded.key] = (inputs.policy, assessment.memory)
        return replace(view, assessment=assessment, inputs=inputs)

    def _with_endpoints(self, pod: Pod) -> Pod:
        """The pod with what EndpointSlices say of it. Endpoints that are serving decide nothing."""
        serving = self._inputs.endpoints.endpoint_serving(pod.namespace, pod.name, pod.uid)
        silent = self._inputs.freshness.endpoints_silent(pod.namespace)
        if serving is not False and not silent:
            return pod
        return replace(pod, endpoint_serving=serving, endpoints_silent=silent)

    def _memory(self, decoded: DecodedPolicy, inputs: AssessmentInputs) -> Memory:
        """The memory of this policy (by UID): from its last assessment here, or else from the policy's status.

        Another replica wrote that. Of one that is unreadable the memory is empty.
        """
        policy, key = inputs.policy, decoded.key
        before, memory = self._memories.get(key, (None, Memory()))
        if before is not None and before.uid == policy.uid:
            # Another registry, or another service, knows nothing of what the pods were registered as before.
            return memory if service_of(before) == service_of(policy) else replace(memory, pods={})
        memory = Memory()
        if decoded.memory:
            try:
                memory = status_memory.from_status(_MEMORY.decode(decoded.memory)).of(inputs.pods)
            except (msgspec.MsgspecError, PolicyError) as error:
                _log.warning("policy_memory_rejected", namespace=key.namespace, policy=key.name, error=str(error))
        return replace(memory, started_at=inputs.now)

    def _undefined_query(self, policy: Policy, workload: str) -> Problem | None:
        """The first of the policy's queries that the settings lack or do not allow; the workload may be unknown."""
        for metric in policy.metrics:
            if metric.query is not None:
                samples = self._inputs.prometheus.samples(metric.query, policy.namespace, workload or policy.hpa)
                if samples.undefined:
                    text = f"WatermarkPolicy {policy.name}: metric {metric.name}: {samples.error}"
                    return Problem(422, "Invalid", text)
        return None

    def _refusal(self, policy: Policy) -> Problem | None:
        """Why the policy's service is not followed."""
        service, registries = service_of(policy), self._inputs.registries
        if service is not None and (refusal := registries.refusal(service, policy.namespace)):
            return Problem(422, "Invalid", f"WatermarkPolicy {policy.name}: {refusal}")
        if service is not None and (crowded := registries.over_limit_message(service, policy.namespace)):
            return _unavailable(f"WatermarkPolicy {policy.name}: {crowded}")
        return None


def initial_view(decoded: DecodedPolicy) -> PolicyView:
    """The view of a policy before its evaluation; an invalid policy has its problem already."""
    problem = Problem(422, "Invalid", decoded.fault) if decoded.fault else None
    return PolicyView(policy=decoded.policy, spec=decoded.spec, problem=problem)


def _unavailable(message: str) -> Problem:
    return Problem(503, "ServiceUnavailable", message)
