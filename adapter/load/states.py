"""The state of each pod of a target, and the doubt that keeps a wrong registry from shrinking a service.

A pod that could serve is serving without evidence against it, pulled out with sufficient evidence, and else doubtful.
Evidence is *explicit* where the registry says that the pod takes no traffic. Absence from a roster is evidence only if
it is confirmed, recent and not too common.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from adapter.load.assessment import PodAssessment
from adapter.load.matching import Mismatch, Registrations, match_registrations, registrations
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import FINISHED_PHASES, GONE, Pod, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.samples import time_text
from adapter.load.spec import Policy, Registry

NEVER_READY_SECONDS = 30.0
"""A pod that turned not Ready this soon after its start was never Ready (the HPA's initial readiness delay)."""
CONFIRMING_ROSTERS = 3
ABSENCE_TRUSTED_SECONDS = 300.0
EVIDENCE_TRUSTED_SECONDS = 1800.0
NEWLY_OUT_SECONDS = 60.0
NEWLY_OUT_AT_LEAST = 2
NEWLY_OUT_PERCENT = 30
EMPTY_CONFIRMED_SECONDS = 120.0

KUBERNETES = "kubernetes"
"""The registry without services: readiness gates, EndpointSlices and the annotation alone decide."""
GUARDED_ABSENCE = "guarded absence"
"""The evidence of pods that vanished from a registry, too many at once."""
_STARTING = "STARTING"
"""Eureka's status of an instance that takes no traffic yet."""
_OUT_STATUSES = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}


def service_registry(policy: Policy) -> Registry | None:
    """The service registry that the policy names; None where it names none, or Kubernetes itself."""
    return policy.registry if policy.registry is not None and policy.registry.name != KUBERNETES else None


def classify(
    policy: Policy, pods: Sequence[Pod], memory: Memory, now: float, registered: Registrations | None = None
) -> dict[str, PodAssessment]:
    """Classify each pod, by UID, from the pod itself and a memory that already counts the latest roster.

    `registered`: the registrations of the pods in the latest valid roster; None to match them here.
    """
    registry = service_registry(policy)
    if registered is None:
        registered = registrations(pods, memory.last_valid, registry) if registry and memory.last_valid else {}
    view = _RegistryView(registry, memory, registered, now) if registry else None
    by_uid = {pod.uid: _classify(pod, memory.pod(pod.uid), view) for pod in pods}
    if view is not None:
        _guard_absence(policy, memory, pods, by_uid, now)
    _doubt_if_all_are_out(by_uid)
    return by_uid


def registry_problem(policy: Policy, pods: Sequence[Pod], memory: Memory, now: float) -> str:
    """A sentence about what is wrong with the policy's registry; empty where nothing is."""
    registry, roster = service_registry(policy), memory.last_valid
    if registry is None:
        return ""
    name, service = registry.name, registry.service
    if roster is None:
        return f"registry {name} has not given a valid answer for {service!r} yet"
    if is_set_aside(memory, registry):
        if any(match.mismatch is Mismatch.OLDER for match in match_registrations(pods, roster, registry)):
            return (
                f"registry {name} lists pods of this target only as registered before they started: "
                "its clock is behind, or they do not register"
            )
        return f"registry {name} never listed a pod of this target: check the service name {service!r}"
    if now - roster.at > ABSENCE_TRUSTED_SECONDS:
        return f"registry {name} gave its last valid answer at {time_text(roster.at)}"
    return ""


def _classify(pod: Pod, remembered: PodMemory, view: "_RegistryView | None") -> PodAssessment:
    if pod.deleting:
        return PodAssessment(pod, PodState.TERMINATING, "it is being deleted")
    if pod.phase in FINISHED_PHASES:
        return PodAssessment(pod, PodState.FINISHED, f"its phase is {pod.phase}")
    if not pod.is_ready or pod.started_at is None:
        return _not_ready(pod)
    if pod.pulled_out_annotation:
        return PodAssessment(pod, PodState.PULLED_OUT, "pulled out by hand", "annotation effective-load.io/pulled-out")
    return view.classification(pod, remembered) if view is not None else _by_endpoints(pod, remembered)


def _by_endpoints(pod: Pod, remembered: PodMemory) -> PodAssessment:
    if pod.endpoints_silent and (
        pod.endpoint_serving is False or remembered.out_since is not None or remembered.doubt_since
    ):
        reason = "its endpoints did not serve when the watch of EndpointSlices fell silent"
        return PodAssessment(pod, PodState.DOUBTFUL, reason, "EndpointSlice conditions")
    if pod.endpoint_serving is False:
        reason = "Ready, but its endpoints do not serve"
        return PodAssessment(pod, PodState.PULLED_OUT, reason, "EndpointSlice conditions")
    return PodAssessment(pod, PodState.SERVING, "Ready")


def _not_ready(pod: Pod) -> PodAssessment:
    if any(container.crash_looping for container in pod.containers):
        return PodAssessment(pod, PodState.UNREADY, "a container crash-loops")
    if pod.phase == "Pending" or pod.started_at is None or pod.ready is None:
        return PodAssessment(pod, PodState.STARTING, "it has not started yet")
    since = pod.ready.since
    if since is None or since <= pod.created_at or since - pod.started_at <= NEVER_READY_SECONDS:
        return PodAssessment(pod, PodState.STARTING, "it has not been Ready yet")
    shut = [gate for gate, is_open in pod.gates.items() if not is_open]
    if shut and pod.containers_ready:
        return PodAssessment(pod, PodState.PULLED_OUT, "a readiness gate is shut", f"readiness gate {shut[0]}")
    return PodAssessment(pod, PodState.UNREADY, "not Ready any more")


def _guard_absence(
    policy: Policy, memory: Memory, pods: Sequence[Pod], by_uid: dict[str, PodAssessment], now: float
) -> None:
    """Limit how many pods absence may take out, in all and newly; the other absent pods stay doubtful.

    Pods that are already out come first, then those that have been absent longest.
    """
    absent = [pod for pod in pods if by_uid[pod.uid].by_absence]
    if not absent:
        return
    ready = sum(1 for pod in pods if pod.is_ready and by_uid[pod.uid].state not in GONE | {PodState.STARTING})
    out = {pod.uid: since for pod in absent if (since := memory.pods[pod.uid].out_since) is not None}
    budget = math.floor(ready * policy.pulled_out.max_percent / 100)
    fresh_budget = max(NEWLY_OUT_AT_LEAST, ready * NEWLY_OUT_PERCENT // 100)
    fresh_budget -= sum(1 for since in out.values() if now - since < NEWLY_OUT_SECONDS)
    absent.sort(key=lambda pod: (pod.uid not in out, memory.pods[pod.uid].absent_since or 0.0, pod.name))
    for pod in absent:
        is_new = pod.uid not in out
        if budget > 0 and (fresh_budget > 0 or not is_new):
            budget -= 1
            fresh_budget -= is_new
        else:
            reason = "too many pods vanished from the registry at once"
            by_uid[pod.uid] = PodAssessment(pod, PodState.DOUBTFUL, reason, GUARDED_ABSENCE, guarded=True)


def _doubt_if_all_are_out(by_uid: dict[str, PodAssessment]) -> None:
    """Doubt explicit evidence where it would leave no pod in. Absence has its own guard (`_guard_absence`)."""
    if {assessed.state for assessed in by_uid.values()} & {PodState.SERVING, PodState.DOUBTFUL}:
        return
    for uid, assessed in by_uid.items():
        if assessed.state is PodState.PULLED_OUT and not assessed.by_absence:
            reason = f"every pod would be out ({assessed.reason})"
            by_uid[uid] = PodAssessment(assessed.pod, PodState.DOUBTFUL, reason, assessed.evidence, guarded=True)


class _RegistryView(NamedTuple):
    """Classifies the Ready pods of a target by the latest valid roster and the memory of the pods."""

    registry: Registry
    memory: Memory
    registered: Registrations
    now: float

    def classification(self, pod: Pod, remembered: PodMemory) -> PodAssessment:
        """Classify a Ready pod by this registry."""
        name, roster = self.registry.name, self.memory.last_valid
        if roster is None:
            return PodAssessment(pod, PodState.DOUBTFUL, f"registry {name} has not given a valid answer yet")
        if is_set_aside(self.memory, self.registry):
            reason = f"registry {name} is set aside: it never listed a pod of this target"
            return PodAssessment(pod, PodState.SERVING, reason)
        if instances := self.registered.get(pod.uid):
            return self._registered(pod, instances, roster)
        if not roster.absence_counts:
            return PodAssessment(pod, PodState.SERVING, f"Ready, and registry {name} says nothing of it")
        return self._unregistered(pod, remembered, roster)

    def _registered(self, pod: Pod, instances: tuple[Instance, ...], roster: Roster) -> PodAssessment:
        name, protected = self.registry.name, roster.protected
        word = out_reason_of(instances, self.registry, protected=protected)
        if not word:
            starting = all(instance.status.upper() == _STARTING for instance in instances)
            if starting and self.now - pod.ready_since < self.registry.grace:
                return PodAssessment(pod, PodState.STARTING, "Ready, but registered as STARTING", f"registry {name}")
            return PodAssessment(pod, PodState.SERVING, "registered", f"registry {name}")
        evidence = f"registry {name}: {word}"
        if self.now - roster.at > EVIDENCE_TRUSTED_SECONDS:
            return PodAssessment(pod, PodState.DOUBTFUL, "out, by an answer older than 30 min", evidence)
        # The pod must be out even without the registrations that are no sufficient evidence for now.
        sure = [
            instance for instance in instances if instance.doubtful_until is None or instance.doubtful_until <= self.now
        ]
        is_sure = self.registry.any_out and out_reason_of(sure, self.registry, protected=protected)
        if len(sure) < len(instances) and not is_sure:
            reason = f"the registry says {word}, but has just been restarted"
            return PodAssessment(pod, PodState.DOUBTFUL, reason, evidence)
        return PodAssessment(pod, PodState.PULLED_OUT, f"the registry says {word}", evidence)

    def _unregistered(self, pod: Pod, remembered: PodMemory, roster: Roster) -> PodAssessment:
        if remembered.seen is not None:
            if doubt := self._doubt_of_absence(pod, remembered, roster):
                return PodAssessment(pod, PodState.DOUBTFUL, f"no longer registered, {doubt}", "absence")
            return PodAssessment(pod, PodState.PULLED_OUT, "no longer registered", "confirmed absence", by_absence=True)
        if roster.at < pod.ready_since:
            return PodAssessment(pod, PodState.DOUBTFUL, "Ready only after the registry's last answer")
        if self.now - pod.ready_since < self.registry.grace:
            return PodAssessment(pod, PodState.STARTING, "Ready, but not registered yet")
        never = "never registered, though other pods are"
        if not self.memory.ever_in_roster:
            never = "no pod of this target was ever registered"
        return PodAssessment(pod, PodState.DOUBTFUL, never, "absence")

    def _doubt_of_absence(self, pod: Pod, remembered: PodMemory, roster: Roster) -> str:
        """Why absence is not sufficient evidence yet, empty where it is."""
        if roster.at < pod.ready_since:
            return "by an answer from before it was Ready"
        if remembered.registration_lost:
            return "since the registry lost its data or its connection"
        if self.now - roster.at > ABSENCE_TRUSTED_SECONDS:
            return "by an answer older than 5 min"
        since = remembered.absent_since if remembered.absent_since is not None else roster.at
        if remembered.absent_count < CONFIRMING_ROSTERS or roster.at - since < self.registry.absent:
            return "not confirmed yet"
        empty = self.memory.empty_since
        is_confirmed = roster.alive and empty is not None and roster.at - empty >= EMPTY_CONFIRMED_SECONDS
        return "" if roster.instances or is_confirmed else "in an empty answer"


def out_reason_of(instances: Iterable[Instance], registry: Registry, *, protected: bool) -> str:
    """Why a pod with these registrations takes no traffic; empty where it does.

    `protected`: the registry currently reports unhealthy instances as healthy, so health is not considered.
    """
    health_counts = registry.unhealthy_is_out and not protected
    words = [
        out_reason(instance) or ("unhealthy" if health_counts and not instance.healthy else "")
        for instance in instances
    ]
    out = any(words) if registry.any_out else all(words)
    return next(word for word in words if word) if out else ""


def out_reason(instance: Instance) -> str:
    """Why a registration takes no traffic, not considering its health; empty where it does."""
    if not instance.enabled:
        return "disabled"
    if instance.isolated:
        return "isolated"
    if instance.weight is not None and instance.weight <= 0:
        return "weight 0"
    return instance.status if instance.status.upper() in _OUT_STATUSES else ""


def is_set_aside(memory: Memory, registry: Registry) -> bool:
    """Whether the registry is ignored: enough rosters over enough time listed no pod of the target."""
    last, since = memory.last_valid, memory.rosters_since
    if memory.ever_in_roster or last is None or since is None or not last.absence_counts:
        return False
    return memory.rosters >= CONFIRMING_ROSTERS and last.at - since >= registry.grace
