"""The state of each pod of a target: the first rule that matches, in the order of the rules in `classify`.

A pod that could serve is serving where nothing speaks against it, pulled out with sufficient evidence, and else
doubtful. Evidence is *explicit* where the registry says that the pod takes no traffic. Absence from the list is
evidence only if it is confirmed, recent, and fewer than half of the target's Ready pods are absent. Nothing here can
shrink a service: a pod that may be out counts as one pod at least on the way down (`bounds`).
"""

from collections.abc import Iterable, Sequence

from adapter.load.matching import Mismatch, Registrations, match_registrations
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import FINISHED_PHASES, GONE, Pod, PodAssessment, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.samples import time_text
from adapter.load.spec import Policy, Registry

NEVER_READY_SECONDS = 30.0
"""A pod that turned not Ready this soon after its start was never Ready (the HPA's initial readiness delay)."""
ABSENCE_TRUSTED_SECONDS = 300.0
EVIDENCE_TRUSTED_SECONDS = 1800.0
YOUNG_SECONDS = 300.0
"""A pod that does not serve may do so soon if it was created, or changed its readiness, less than this ago."""

KUBERNETES = "kubernetes"
"""The registry without services: readiness gates, EndpointSlices and the annotation alone decide."""
_STARTING = "STARTING"
"""Eureka's status of an instance that takes no traffic yet."""
_OUT_STATUSES = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}


def service_registry(policy: Policy) -> Registry | None:
    """The service registry that the policy names; None where it names none, or Kubernetes itself."""
    return policy.registry if policy.registry is not None and policy.registry.name != KUBERNETES else None


def classify(
    policy: Policy, pods: Sequence[Pod], memory: Memory, roster: Roster | None, listed: Registrations, now: float
) -> list[PodAssessment]:
    """Classify each pod. The memory counts the roster already; `listed` are the registrations of the pods in it."""
    registry = service_registry(policy)
    assessed = [_by_kubernetes(pod, memory.pod(pod.uid)) for pod in pods]
    if registry is not None:
        ready = [each.pod for each in assessed if each.pod.is_ready and each.state not in GONE]
        absent = sum(memory.pod(pod.uid).registered and pod.uid not in listed for pod in ready)
        doubt = "half or more of the pods vanished from the registry" if 2 * absent >= len(ready) else ""
        if roster is not None and roster.valid and now - roster.at > ABSENCE_TRUSTED_SECONDS:
            doubt = "by an answer older than 5 min"
        for index, each in enumerate(assessed):
            if each.state is PodState.SERVING:
                assessed[index] = _by_registry(each.pod, memory.pod(each.pod.uid), registry, roster, listed, now, doubt)
    if not any(each.state in {PodState.SERVING, PodState.DOUBTFUL} for each in assessed):
        # No evidence is enough to take out every pod.
        assessed = [
            PodAssessment(each.pod, PodState.DOUBTFUL, f"every pod would be out ({each.reason})", each.evidence)
            if each.state is PodState.PULLED_OUT
            else each
            for each in assessed
        ]
    return assessed


def is_young(assessed: PodAssessment, remembered: PodMemory, now: float) -> bool:
    """Whether a pod that does not serve yet may do so soon."""
    may_start = assessed.state in {PodState.STARTING, PodState.UNREADY} or (
        assessed.state is PodState.DOUBTFUL and not remembered.registered
    )
    return may_start and now - max(assessed.pod.created_at, assessed.pod.ready_since) < YOUNG_SECONDS


def registry_problem(policy: Policy, pods: Sequence[Pod], memory: Memory, roster: Roster | None, now: float) -> str:
    """A sentence about what is wrong with the policy's registry; empty where nothing is."""
    registry = service_registry(policy)
    if registry is None:
        return ""
    name, service = registry.name, registry.service
    if roster is None or not roster.valid:
        return f"registry {name} has not given a valid answer for {service!r} yet"
    if now - roster.at > ABSENCE_TRUSTED_SECONDS:
        return f"registry {name} gave its last valid answer at {time_text(roster.at)}"
    ready = [pod for pod in pods if pod.is_ready and not pod.deleting]
    is_unknown = roster.absence_counts and not any(memory.pod(pod.uid).registered for pod in pods)
    if ready and is_unknown and all(now - pod.ready_since >= registry.registration_grace_seconds for pod in ready):
        if any(match.mismatch is Mismatch.OLDER for match in match_registrations(pods, roster, registry)):
            return (
                f"registry {name} lists pods of this target only as registered before they started: "
                "its clock is behind, or they do not register"
            )
        return f"registry {name} lists no pod of this target: check the service name {service!r}"
    return ""


def _by_kubernetes(pod: Pod, remembered: PodMemory) -> PodAssessment:
    """The state by the pod itself; SERVING where only a registry can say more."""
    if pod.deleting or pod.phase in FINISHED_PHASES:
        gone = PodState.TERMINATING if pod.deleting else PodState.FINISHED
        return PodAssessment(pod, gone, "it is being deleted" if pod.deleting else f"its phase is {pod.phase}")
    if not pod.is_ready or pod.started_at is None or any(each.crash_looping for each in pod.containers):
        return _not_ready(pod)
    if pod.pulled_out_annotation:
        return PodAssessment(pod, PodState.PULLED_OUT, "pulled out by hand", "annotation effective-load.io/pulled-out")
    was_away = remembered.state in {PodState.PULLED_OUT, PodState.DOUBTFUL}
    state, reason = PodState.SERVING, "Ready"
    if pod.endpoints_silent and (pod.endpoint_serving is False or was_away):
        state, reason = PodState.DOUBTFUL, "its endpoints did not serve when the watch of EndpointSlices fell silent"
    elif pod.endpoint_serving is False:
        state, reason = PodState.PULLED_OUT, "Ready, but its endpoints do not serve"
    return PodAssessment(pod, state, reason, "" if state is PodState.SERVING else "EndpointSlice conditions")


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


def _by_registry(
    pod: Pod,
    remembered: PodMemory,
    registry: Registry,
    roster: Roster | None,
    listed: Registrations,
    now: float,
    doubt: str,
) -> PodAssessment:
    """The state of a Ready pod by its registry. `doubt`: why absence is no evidence now; empty where it is."""
    name, in_grace = registry.name, now - pod.ready_since < registry.registration_grace_seconds
    if roster is None or not roster.valid:
        return PodAssessment(pod, PodState.DOUBTFUL, f"registry {name} has not given a valid answer yet")
    if instances := listed.get(pod.uid):
        return _registered(pod, instances, registry, roster, now)
    if not roster.absence_counts:
        return PodAssessment(pod, PodState.SERVING, f"Ready, and registry {name} says nothing of it")
    if in_grace and roster.at >= pod.ready_since:
        return PodAssessment(pod, PodState.STARTING, "Ready, but not registered yet")
    if not remembered.registered:
        reason = "never registered" if roster.at >= pod.ready_since else "Ready only after the registry's last answer"
        return PodAssessment(pod, PodState.DOUBTFUL, reason, "absence")
    return _absent(pod, remembered, registry, roster, doubt)


def _absent(pod: Pod, remembered: PodMemory, registry: Registry, roster: Roster, doubt: str) -> PodAssessment:
    """The state of a pod that was registered and is not any more."""
    since = remembered.absent_since
    if not doubt and (since is None or roster.at - since < registry.absence_confirmation_seconds):
        doubt = "not confirmed yet"
    if doubt:
        return PodAssessment(pod, PodState.DOUBTFUL, f"no longer registered, {doubt}", "absence")
    return PodAssessment(pod, PodState.PULLED_OUT, "no longer registered", "confirmed absence")


def _registered(
    pod: Pod, instances: tuple[Instance, ...], registry: Registry, roster: Roster, now: float
) -> PodAssessment:
    name, protected = registry.name, roster.protected
    word = out_reason_of(instances, registry, protected=protected)
    if not word:
        is_starting = all(instance.status.upper() == _STARTING for instance in instances)
        if is_starting and now - pod.ready_since < registry.registration_grace_seconds:
            return PodAssessment(pod, PodState.STARTING, "Ready, but registered as STARTING", f"registry {name}")
        return PodAssessment(pod, PodState.SERVING, "registered", f"registry {name}")
    evidence = f"registry {name}: {word}"
    if now - roster.at > EVIDENCE_TRUSTED_SECONDS:
        return PodAssessment(pod, PodState.DOUBTFUL, "out, by an answer older than 30 min", evidence)
    # The pod must be out even without the registrations that are no sufficient evidence for now.
    sure = [instance for instance in instances if instance.doubtful_until is None or instance.doubtful_until <= now]
    is_sure = registry.any_instance_out and out_reason_of(sure, registry, protected=protected)
    if len(sure) < len(instances) and not is_sure:
        reason = f"the registry says {word}, but has just been restarted"
        return PodAssessment(pod, PodState.DOUBTFUL, reason, evidence)
    return PodAssessment(pod, PodState.PULLED_OUT, f"the registry says {word}", evidence)


def out_reason_of(instances: Iterable[Instance], registry: Registry, *, protected: bool) -> str:
    """Why a pod with these registrations takes no traffic; empty where it does.

    `protected`: the registry currently reports unhealthy instances as healthy, so health is not considered.
    """
    health_counts = registry.treat_unhealthy_as_out and not protected
    words = [
        out_reason(instance) or ("unhealthy" if health_counts and not instance.healthy else "")
        for instance in instances
    ]
    out = any(words) if registry.any_instance_out else all(words)
    return next((word for word in words if word), "") if out else ""


def out_reason(instance: Instance) -> str:
    """Why a registration takes no traffic, not considering its health; empty where it does."""
    if not instance.enabled:
        return "disabled"
    if instance.isolated:
        return "isolated"
    if instance.weight is not None and instance.weight <= 0:
        return "weight 0"
    return instance.status if instance.status.upper() in _OUT_STATUSES else ""
