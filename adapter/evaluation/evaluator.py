"""Evaluates one policy: collects its HPA, target, pods, samples and roster, then assesses them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import structlog

from adapter.evaluation.object_index import DecodedPolicy, ObjectIndex
from adapter.evaluation.targets import ResolvedTarget
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Policy, Query, Scale
from adapter.policy import status_memory
from adapter.policy.conditions import Reason
from adapter.policy.linking import (
    NO_SCALE,
    Link,
    TargetRef,
    owns_its_pods,
    reference_faults,
    selector_fault,
    target_pods,
)
from adapter.registries.source import ServiceKey, service_of
from adapter.runtime.decoding import decode
from adapter.snapshot import Key, PolicyView, Problem

_log = structlog.get_logger(__name__)

FEW_PODS = 50
"""So many are assessed at once, in about a millisecond: a turn of the thread would cost a third of that again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where targets, samples and rosters come from. Every function answers from memory, without I/O."""

    find: Callable[[TargetRef], ResolvedTarget | str]
    """The scale target, or a sentence why it is unknown."""
    silence: Callable[[str, TargetRef | None], str | None]
    """Why the watches for a namespace and a target are stale; None while they are current."""
    resources: Callable[[str], ResourceSamples]
    """The samples of metrics.k8s.io for a namespace."""
    query: Callable[[Query, str, str], QuerySamples]
    """The samples of a query for a namespace and a workload."""
    roster: Callable[[ServiceKey], Roster | None]
    """The registry's latest roster of a service."""
    registry_refusal: Callable[[ServiceKey, str], str]
    """Why a policy of a namespace may not name a service; empty if it may."""
    registry_crowded: Callable[[ServiceKey, str], str]
    """Why a service that it may name is not followed; empty if it is."""
    endpoint_serving: Callable[[str, str, str], bool | None]
    """Whether EndpointSlices list a pod (namespace, name, uid) as serving; None if none lists it."""
    endpoints_silent: Callable[[str], bool]
    """Whether the watch of a namespace's EndpointSlices is silent."""


class Evaluator:
    """Turns a policy into its view, and keeps the memory of each policy. `now` is the time in epoch seconds.

    Policies with more than `few_pods` candidates are assessed in a thread.
    """

    def __init__(
        self, index: ObjectIndex, inputs: Inputs, now: Callable[[], float], *, few_pods: int = FEW_PODS
    ) -> None:
        self._few_pods = few_pods
        self._index = index
        self._inputs = inputs
        self._now = now
        self._memories: dict[Key, tuple[Policy, Memory]] = {}
        """The memory of each policy's last assessment, with the policy as it was then."""

    def evaluate(self, key: Key) -> PolicyView | None:
        """The policy's view as of now; None if the policy was deleted."""
        begun = self.begin(key)
        return begun() if callable(begun) else begun

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
        silence = self._inputs.silence(key.namespace, self._index.target(key))
        silent = Problem(503, Reason.WATCH_SILENT, silence) if silence else None
        if link is None:
            missing = (
                f"HorizontalPodAutoscaler {view.policy.hpa}, that WatermarkPolicy {key.name} names, does not exist"
            )
            absent = Problem(404, Reason.NOT_FOUND, f"{missing} in namespace {key.namespace}")
            begun: PolicyView | Callable[[], PolicyView] = replace(view, problem=silent or absent)
        else:
            begun = self._with_target(decoded, view, link, silent)
        if isinstance(begun, PolicyView) and begun.assessment is None and not silent:
            # What the settings lack is told without an assessment too: often HPA and workload are applied last.
            lack = self._registry_refusal(view.policy) or self._undefined_query(view.policy, begun.target_name)
            return replace(begun, problem=lack or begun.problem)
        return begun

    def _with_target(
        self, decoded: DecodedPolicy, view: PolicyView, link: Link, silent: Problem | None
    ) -> PolicyView | Callable[[], PolicyView]:
        key, bounds, name = Key(link.policy.namespace, link.policy.name), link.hpa.bounds, link.ref.name
        faults = list(reference_faults(*link.hpa.target))
        if faults:
            invalid = f"HorizontalPodAutoscaler {link.hpa.name}: {'; '.join(map(str, faults))}"
            return replace(view, bounds=bounds, problem=silent or Problem(422, Reason.INVALID, invalid))
        problem = silent
        if not silent and (rivals := self._index.neighbours(key).policies):
            message = f"PolicyConflict: {link.ref.kind} {name} has other policies as well ({rivals}); keep one"
            problem = Problem(409, Reason.CONFLICT, message)
        problem = problem or self._registry_refusal(link.policy)
        resolved = self._inputs.find(link.ref)
        if isinstance(resolved, str):
            return replace(view, bounds=bounds, target_name=name, problem=problem or _unavailable(resolved))
        target, scale = resolved.object.target, resolved.object.scale
        view = replace(
            view,
            bounds=bounds,
            target_name=name,
            target=target,
            target_resource=resolved.resource,
            target_labels=resolved.object.labels,
            scale_path=resolved.scale_path,
            # A stale watch does not show the current count.
            scale=None if silent else scale,
            scale_proven_at=resolved.proven_at,
            problem=problem,
        )
        if problem is not None:
            return view
        if scale is None:
            return replace(view, problem=_unavailable(f"{link.ref.kind} {link.ref.name} {NO_SCALE}"))
        try:
            selector = _selector(scale)
        except SelectorError as error:
            return replace(view, problem=_unavailable(f"{link.ref.kind} {name}: {error}"))
        service = service_of(link.policy)
        inputs = AssessmentInputs(
            policy=link.policy,
            pods=self._candidates(link.ref),
            samples=self._samples(link),
            roster=self._inputs.roster(service) if service is not None else None,
            scale=scale,
            bounds=bounds,
            target=target,
            now=self._now(),
        )
        assessing = partial(self._assess, decoded, view, inputs, selector)
        return assessing() if len(inputs.pods) <= self._few_pods else assessing

    def _assess(
        self, decoded: DecodedPolicy, view: PolicyView, inputs: AssessmentInputs, selector: LabelSelector
    ) -> PolicyView:
        """The view with its assessment. Of the pods of the inputs, only those count that the target has."""
        key, target, policy = decoded.key, inputs.target, inputs.policy
        assert target is not None
        pods = tuple(map(self._with_endpoints, target_pods(inputs.pods, selector, target)))
        inputs = replace(inputs, pods=pods, memory=self._memory(key, decoded, inputs))
        assessment = assess(inputs)
        self._memories[key] = (policy, assessment.memory)
        return replace(view, assessment=assessment, inputs=inputs)

    def _with_endpoints(self, pod: Pod) -> Pod:
        """The pod with what EndpointSlices say of it. Endpoints that are serving decide nothing."""
        serving = self._inputs.endpoint_serving(pod.namespace, pod.name, pod.uid)
        silent = self._inputs.endpoints_silent(pod.namespace)
        if serving is not False and not silent:
            return pod
        return replace(pod, endpoint_serving=serving, endpoints_silent=silent)

    def _memory(self, key: Key, decoded: DecodedPolicy, inputs: AssessmentInputs) -> Memory:
        """The memory of this policy (by UID): from its last assessment here, or else from the policy's status.

        Another replica wrote that. Of one that is unreadable the memory is empty.
        """
        policy, (before, memory) = inputs.policy, self._memories.get(key, (None, Memory()))
        if before is not None and before.uid == policy.uid:
            # Another registry, or another service, knows nothing of what the pods were registered as before.
            return memory if service_of(before) == service_of(policy) else replace(memory, pods={})
        memory = Memory()
        if decoded.memory:
            try:
                memory = status_memory.from_status(decode(decoded.memory, dict[str, Any])).of(inputs.pods)
            except (msgspec.MsgspecError, status_memory.MemoryDecodeError) as error:
                _log.warning("policy_memory_rejected", namespace=key.namespace, policy=key.name, error=str(error))
        return replace(memory, started_at=inputs.now)

    def _candidates(self, ref: TargetRef) -> tuple[Pod, ...]:
        if owns_its_pods(ref.kind):
            return tuple(self._index.pods.owned(ref.namespace, ref.name))
        return tuple(self._index.pods.namespace(ref.namespace).values())

    def _samples(self, link: Link) -> Samples:
        policy = link.policy
        queries = {
            metric.name: self._inputs.query(metric.query, policy.namespace, link.ref.name)
            for metric in policy.metrics
            if metric.query is not None
        }
        needs_resources = any(metric.resource for metric in policy.metrics)
        resources = self._inputs.resources(policy.namespace) if needs_resources else ResourceSamples()
        return Samples(resources=resources, queries=queries)

    def _undefined_query(self, policy: Policy, workload: str) -> Problem | None:
        """The first of the policy's queries that the settings lack or do not allow; the workload may be unknown."""
        for metric in policy.metrics:
            if metric.query is not None:
                samples = self._inputs.query(metric.query, policy.namespace, workload or policy.hpa)
                if samples.undefined:
                    text = f"WatermarkPolicy {policy.name}: metric {metric.name}: {samples.error}"
                    return Problem(422, Reason.INVALID, text)
        return None

    def _registry_refusal(self, policy: Policy) -> Problem | None:
        service, namespace = service_of(policy), policy.namespace
        if service is not None and (refusal := self._inputs.registry_refusal(service, namespace)):
            return Problem(422, Reason.INVALID, f"WatermarkPolicy {policy.name}: {refusal}")
        if service is not None and (crowded := self._inputs.registry_crowded(service, namespace)):
            return _unavailable(f"WatermarkPolicy {policy.name}: {crowded}")
        return None


def _selector(scale: Scale) -> LabelSelector:
    """The selector of the target's pods. Raises SelectorError where the scale has none that identifies pods."""
    selector = parse_selector(scale.selector)
    if fault := selector_fault(selector):
        raise SelectorError(fault)
    return selector


def initial_view(decoded: DecodedPolicy) -> PolicyView:
    """The view of a policy before its evaluation; an invalid policy has its problem already."""
    problem = Problem(422, Reason.INVALID, decoded.fault) if decoded.fault else None
    return PolicyView(policy=decoded.policy, labels=decoded.labels, spec=decoded.spec, problem=problem)


def _unavailable(message: str) -> Problem:
    return Problem(503, Reason.SERVICE_UNAVAILABLE, message)
