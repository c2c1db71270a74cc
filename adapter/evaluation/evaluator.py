"""From what is known of a policy to its view in the picture: the inputs joined, then assessed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import structlog

from adapter.evaluation.decode import PolicyEntry
from adapter.evaluation.object_index import Link, ObjectIndex, TargetRef
from adapter.evaluation.targets import ResolvedTarget
from adapter.kube.selectors import SelectorError
from adapter.kube.selectors import parse as parse_selector
from adapter.load.conditions import Reason
from adapter.load.matching import owned_by, owns_its_pods
from adapter.load.memory import Memory
from adapter.load.memory_updates import without_registry
from adapter.load.pipeline import assess
from adapter.load.pods import Pod
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Policy, Query, Scale, Target
from adapter.policy import status_memory
from adapter.policy.memory_json import RecollectionError
from adapter.policy.references import reference_faults
from adapter.registries.roster import ServiceKey, service_of
from adapter.runtime.decoding import decode
from adapter.runtime.faults import Fault
from adapter.snapshot import Key, PolicyView, Problem

log = structlog.get_logger(__name__)

MOST_REQUIREMENTS_OF_A_TARGET = 32
"""Every pod is held against each of them at every look, so this bounds what a look costs. Workloads have a handful."""


class Inputs(Protocol):
    """Where samples, rosters and targets come from; everything answers from memory at once."""

    def find(self, ref: TargetRef) -> ResolvedTarget | str:
        """The scale target, or the sentence that says why it is not known."""
        ...

    def silence(self, namespace: str, target: TargetRef | None) -> str | None:
        """Why what the watches say of a policy in this namespace, for this target, is not to be believed."""
        ...

    def resources(self, namespace: str) -> ResourceSamples:
        """What metrics.k8s.io said of a namespace."""
        ...

    def query(self, query: Query, namespace: str, workload: str) -> QuerySamples:
        """What a query said of a workload."""
        ...

    def roster(self, policy: Policy) -> Roster | None:
        """The registry's latest answer for a policy's service."""
        ...

    def registry_refusal(self, service: ServiceKey, namespace: str) -> str:
        """Why a policy of this namespace may not have this service followed; empty where it may."""
        ...

    def endpoint_serving(self, namespace: str, pod: str, uid: str) -> bool | None:
        """Whether an EndpointSlice has the pod as serving, None where none lists it."""
        ...


class Evaluator:
    """Makes the view of a policy, and keeps the policies' memories. `now` is the API server's clock."""

    def __init__(self, world: ObjectIndex, inputs: Inputs, now: Callable[[], float]) -> None:
        self._world = world
        self._inputs = inputs
        self._now = now
        self._memories: dict[Key, tuple[Policy, Memory]] = {}
        """With the policy as it was when they were made."""

    def view(self, key: Key) -> PolicyView | None:
        """The policy as it stands now; None where it no longer exists."""
        entry = self._world.policies.get(key)
        if entry is None:
            self._memories.pop(key, None)
            return None
        view, link = unassessed(entry), self._world.link(key)
        if view.problem is not None:
            return view
        silence = self._inputs.silence(key.namespace, self._world.target(key))
        silent = Problem(503, Reason.WATCH_SILENT, silence) if silence else None
        if link is None:
            missing = (
                f"HorizontalPodAutoscaler {view.policy.hpa}, that WatermarkPolicy {key.name} names, does not exist"
            )
            problem = silent or Problem(404, Reason.NOT_FOUND, f"{missing} in namespace {key.namespace}")
            return replace(view, problem=problem)
        return self._linked(key, view, link, silent)

    def _linked(self, key: Key, view: PolicyView, link: Link, silent: Problem | None) -> PolicyView:
        view = replace(view, bounds=link.hpa.bounds)
        faults = list(reference_faults(*link.ref[1:]))
        if faults:
            return replace(view, problem=silent or _wrong_reference(link, faults))
        view = replace(view, target_name=link.ref.name)
        problem = silent or _refusal(link, self._inputs.registry_refusal)
        found = self._inputs.find(link.ref)
        if isinstance(found, str):
            return replace(view, problem=problem or Problem(503, Reason.SERVICE_UNAVAILABLE, found))
        target, scale = found.object.target, found.object.scale
        view = replace(
            view,
            target=target,
            target_resource=found.resource,
            target_labels=found.object.labels,
            scale_path=found.scale_path,
            # What was true once is not known to be so now.
            scale=None if silent else scale,
            scale_proven_at=found.proven_at,
            problem=problem,
        )
        if problem is not None:
            return view
        if scale is None:
            message = (
                f"{link.ref.kind} {link.ref.name} has no usable scale: the paths of its scale subresource lead "
                "nowhere, or its selector is none that is read"
            )
            return replace(view, problem=Problem(503, Reason.SERVICE_UNAVAILABLE, message))
        return self._assessed(key, view, link, target, scale)

    def _assessed(self, key: Key, view: PolicyView, link: Link, target: Target, scale: Scale) -> PolicyView:
        try:
            pods = self._pods(link.ref, scale.selector, target)
        except SelectorError as error:
            return replace(
                view, problem=Problem(503, Reason.SERVICE_UNAVAILABLE, f"{link.ref.kind} {link.ref.name}: {error}")
            )
        assessment = assess(
            link.policy,
            pods,
            self._samples(link),
            self._inputs.roster(link.policy),
            scale,
            link.hpa.bounds,
            self._memory(key, link.policy),
            self._now(),
            target=target,
        )
        self._memories[key] = (link.policy, assessment.memory)
        return replace(view, assessment=assessment)

    def _memory(self, key: Key, policy: Policy) -> Memory:
        """What is remembered of this very policy, by this process or else by its status, where another left it."""
        before, memory = self._memories.get(key, (None, Memory()))
        if before is None or before.uid != policy.uid:
            return replace(self._left_behind(key), looking_since=self._now())
        return memory if service_of(before) == service_of(policy) else without_registry(memory)

    def _left_behind(self, key: Key) -> Memory:
        """The memory in the policy's status. One that cannot be read is none: what is not known decides nothing."""
        entry = self._world.policies.get(key)
        if entry is None or not entry.memory:
            return Memory()
        try:
            return status_memory.load(decode(entry.memory, dict[str, Any]))
        except (msgspec.MsgspecError, RecollectionError) as error:
            log.warning("a policy's memory cannot be read", namespace=key.namespace, policy=key.name, error=str(error))
            return Memory()

    def _pods(self, ref: TargetRef, selector_text: str, target: Target) -> list[Pod]:
        """The target's pods, by selector and owner. Raises SelectorError where the scale has no usable selector."""
        if not selector_text:
            raise SelectorError("its scale has no selector, so its pods cannot be told")
        selector = parse_selector(selector_text)
        if (asked := len(selector.requirements)) > MOST_REQUIREMENTS_OF_A_TARGET:
            most = f"at most {MOST_REQUIREMENTS_OF_A_TARGET} are read"
            raise SelectorError(f"its selector has {asked} requirements; {most}, so select the pods by fewer")
        pods: Iterable[Pod]
        if owns_its_pods(ref.kind):
            pods = self._world.pods.owned(ref.namespace, ref.name)
        else:
            pods = self._world.pods.namespace(ref.namespace).values()
        return [self._with_endpoint(pod) for pod in pods if selector.matches(pod.labels) and owned_by(pod, target)]

    def _with_endpoint(self, pod: Pod) -> Pod:
        """The pod with what its endpoints say where that keeps it out; that they serve decides nothing."""
        serving = self._inputs.endpoint_serving(pod.namespace, pod.name, pod.uid)
        return replace(pod, endpoint_serving=False) if serving is False else pod

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


def unassessed(entry: PolicyEntry) -> PolicyView:
    """What a policy shows by itself, before anything else is looked at; one that is not valid has its problem."""
    if entry.policy is None:
        return PolicyView(policy=_bare(entry), labels=entry.labels, problem=Problem(422, Reason.INVALID, entry.fault))
    return PolicyView(policy=entry.policy, labels=entry.labels)


def _bare(entry: PolicyEntry) -> Policy:
    """What is left of a policy that is not valid: which one it is."""
    return Policy(
        namespace=entry.namespace,
        name=entry.name,
        uid=entry.uid,
        generation=entry.generation,
        hpa=entry.name,
        metrics=(),
    )


def _wrong_reference(link: Link, faults: Iterable[Fault]) -> Problem:
    said = "; ".join(map(str, faults))
    return Problem(422, Reason.INVALID, f"HorizontalPodAutoscaler {link.hpa.name}: {said}")


def _refusal(link: Link, registry_refusal: Callable[[ServiceKey, str], str]) -> Problem | None:
    """Why a policy that is valid by itself is refused all the same."""
    if link.rivals:
        others = ", ".join(sorted(key.name for key in link.rivals))
        message = f"PolicyConflict: {link.ref.kind} {link.ref.name} has other policies as well ({others}); keep one"
        return Problem(409, Reason.CONFLICT, message)
    service = service_of(link.policy)
    if service is not None:
        refusal = registry_refusal(service, link.policy.namespace)
        if refusal:
            return Problem(503, Reason.SERVICE_UNAVAILABLE, f"WatermarkPolicy {link.policy.name}: {refusal}")
    return None
