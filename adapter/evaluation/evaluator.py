"""Evaluates one policy: collects its HPA, target, pods, samples and roster, then assesses them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from adapter.evaluation.decode import DecodedPolicy
from adapter.evaluation.object_index import ObjectIndex
from adapter.evaluation.target_pods import TargetPods
from adapter.evaluation.targets import ResolvedTarget
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.load.assessment import AssessmentInputs
from adapter.load.conditions import Reason
from adapter.load.matching import owns_its_pods
from adapter.load.memory import Memory
from adapter.load.memory_updates import without_registry
from adapter.load.pipeline import assess_in_steps
from adapter.load.pods import Pod
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Policy, Query, Scale, Target
from adapter.load.steps import Steps, finish
from adapter.policy import status_memory
from adapter.policy.linking import NO_SCALE, Link, TargetRef, reference_faults, selector_fault
from adapter.policy.memory_json import MemoryDecodeError
from adapter.registries.roster import ServiceKey, service_of
from adapter.runtime.decoding import decode
from adapter.runtime.faults import Fault
from adapter.snapshot import Key, PolicyView, Problem

_log = structlog.get_logger(__name__)


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
    """Why a policy of a namespace may not use a service; empty if it may."""
    endpoint_serving: Callable[[str, str, str], bool | None]
    """Whether EndpointSlices list a pod (namespace, name, uid) as serving; None if none lists it."""


class Evaluator:
    """Turns a policy into its view, and keeps the memory of each policy. `now` is the API server's clock (seconds)."""

    def __init__(self, index: ObjectIndex, inputs: Inputs, now: Callable[[], float]) -> None:
        self._index = index
        self._inputs = inputs
        self._now = now
        self._memories: dict[Key, tuple[Policy, Memory]] = {}
        """The memory of each policy's last assessment, with the policy as it was then."""
        self._target_pods: dict[Key, TargetPods] = {}
        """The pods of each policy's target."""

    def evaluate(self, key: Key) -> PolicyView | None:
        """The policy's view as of now; None if the policy was deleted."""
        return finish(self.evaluate_in_steps(key))

    def evaluate_in_steps(self, key: Key) -> Steps[PolicyView | None]:
        """`evaluate` in short steps. What changes meanwhile is part of the next evaluation, which the change asks for.

        A policy is evaluated once at a time.
        """
        decoded = self._index.policies.get(key)
        if decoded is None:
            self._memories.pop(key, None)
            self._target_pods.pop(key, None)
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
            problem = silent or Problem(404, Reason.NOT_FOUND, f"{missing} in namespace {key.namespace}")
            return replace(view, problem=problem)
        return (yield from self._with_target(key, view, link, silent))

    def _with_target(self, key: Key, view: PolicyView, link: Link, silent: Problem | None) -> Steps[PolicyView]:
        bounds, name = link.hpa.bounds, link.ref.name
        faults = list(reference_faults(*link.hpa.target))
        if faults:
            return replace(view, bounds=bounds, problem=silent or _invalid_reference(link, faults))
        problem = silent or self._refusal(key, link)
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
        return (yield from self._with_assessment(key, view, link, target, scale))

    def _with_assessment(
        self, key: Key, view: PolicyView, link: Link, target: Target, scale: Scale
    ) -> Steps[PolicyView]:
        # All of one moment, before the first step: samples that come meanwhile may be of pods that replaced these.
        now, samples, service = self._now(), self._samples(link), service_of(link.policy)
        roster = self._inputs.roster(service) if service is not None else None
        try:
            pods = yield from self._pods(key, link.ref, scale.selector, target)
        except SelectorError as error:
            return replace(view, problem=_unavailable(f"{link.ref.kind} {link.ref.name}: {error}"))
        inputs = AssessmentInputs(
            policy=link.policy,
            pods=pods,
            samples=samples,
            roster=roster,
            scale=scale,
            bounds=link.hpa.bounds,
            target=target,
            memory=(yield from self._memory(key, link.policy, now)),
            now=now,
        )
        assessment = yield from assess_in_steps(inputs)
        self._memories[key] = (link.policy, assessment.memory)
        # A decision on the kept inputs needs no census; this one would keep pods that are gone, and their rows.
        kept = replace(inputs, memory=replace(inputs.memory, census=None))
        return replace(view, assessment=assessment, inputs=kept)

    def _memory(self, key: Key, policy: Policy, now: float) -> Steps[Memory]:
        """The memory of this policy (by UID): from its last assessment here, or else from the policy's status."""
        before, memory = self._memories.get(key, (None, Memory()))
        if before is None or before.uid != policy.uid:
            return replace((yield from self._status_memory(key)), observing_since=now)
        return memory if service_of(before) == service_of(policy) else (yield from without_registry(memory))

    def _status_memory(self, key: Key) -> Steps[Memory]:
        """The memory in the policy's status, which another replica wrote; an empty one if it is unreadable."""
        decoded = self._index.policies.get(key)
        if decoded is None or not decoded.memory:
            return Memory()
        try:
            data = decode(decoded.memory, dict[str, Any])
            return (yield from status_memory.from_status_in_steps(data))
        except (msgspec.MsgspecError, MemoryDecodeError) as error:
            _log.warning("policy memory rejected", namespace=key.namespace, policy=key.name, error=str(error))
            return Memory()

    def _pods(self, key: Key, ref: TargetRef, selector_text: str, target: Target) -> Steps[Sequence[Pod]]:
        """The target's pods, by selector and owner. Raises SelectorError if the scale has no usable selector."""
        selector = parse_selector(selector_text)
        if fault := selector_fault(selector):
            raise SelectorError(fault)
        pods: Iterable[Pod]
        if owns_its_pods(ref.kind):
            pods = self._index.pods.owned(ref.namespace, ref.name)
        else:
            pods = self._index.pods.namespace(ref.namespace).values()
        known = self._target_pods.setdefault(key, TargetPods(self._inputs.endpoint_serving))
        return (yield from known.select(tuple(pods), selector, selector_text, target))

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

    def _refusal(self, key: Key, link: Link) -> Problem | None:
        """Why a policy that is valid by itself is refused: another policy has its target, or its registry refuses."""
        if rivals := self._index.neighbours(key).policies:
            others = ", ".join(rivals)
            message = f"PolicyConflict: {link.ref.kind} {link.ref.name} has other policies as well ({others}); keep one"
            return Problem(409, Reason.CONFLICT, message)
        service = service_of(link.policy)
        if service is not None and (refusal := self._inputs.registry_refusal(service, link.policy.namespace)):
            return _unavailable(f"WatermarkPolicy {link.policy.name}: {refusal}")
        return None


def initial_view(decoded: DecodedPolicy) -> PolicyView:
    """The view of a policy before its evaluation; an invalid policy has its problem already."""
    if decoded.policy is not None:
        return PolicyView(policy=decoded.policy, labels=decoded.labels, spec=decoded.spec)
    nameplate = Policy(
        namespace=decoded.namespace,
        name=decoded.name,
        uid=decoded.uid,
        generation=decoded.generation,
        hpa=decoded.name,
        metrics=(),
    )
    return PolicyView(policy=nameplate, labels=decoded.labels, problem=Problem(422, Reason.INVALID, decoded.fault))


def _unavailable(message: str) -> Problem:
    return Problem(503, Reason.SERVICE_UNAVAILABLE, message)


def _invalid_reference(link: Link, faults: Iterable[Fault]) -> Problem:
    return Problem(422, Reason.INVALID, f"HorizontalPodAutoscaler {link.hpa.name}: {'; '.join(map(str, faults))}")
