"""The pods of a target by state: the first rule that matches, in the order of the rules in `classify`.

A pod that could serve is serving where nothing speaks against it, pulled out with sufficient evidence, and else
doubtful. Evidence is *explicit* where the registry says that the pod takes no traffic. Absence from the list is
evidence only if it is confirmed, recent, and fewer than half of the target's Ready pods are absent. Nothing here can
shrink a service: a pod that may be out counts as one pod at least on the way down (`bounds`).
"""

from collections.abc import Iterable, Mapping, Sequence

from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import NEW_POD, PodMemory
from adapter.load.pods import AWAY, FINISHED_PHASES, GONE, Pod, PodAssessment, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy, Registry, Target

NEVER_READY_SECONDS = 30.0
"""A pod that turned not Ready this soon after its start was never Ready (the HPA's initial readiness delay)."""
ABSENCE_TRUSTED_SECONDS = 300.0
EVIDENCE_TRUSTED_SECONDS = 1800.0
YOUNG_SECONDS = 300.0
"""A pod that does not serve may do so soon if it was created, or changed its readiness, less than this ago."""
LONG_DOUBT_SECONDS = 300.0
"""A pod that has been doubtful for this long is replaced where it is taken for out."""
_SETTLED = frozenset({"", "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"})
"""Reasons of the Progressing condition of a target whose rollout does not progress; Kubernetes ends a stuck one."""
KUBERNETES = "kubernetes"
"""The registry without services: readiness gates, EndpointSlices and the annotation alone decide."""
_STARTING = "STARTING"
"""The status of an instance that takes no traffic yet."""
_OUT_STATUSES = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}


def service_registry(policy: Policy) -> Registry | None:
    """The service registry that the policy names; None where it names none, or Kubernetes itself."""
    return policy.registry if policy.registry is not None and policy.registry.name != KUBERNETES else None


def classify(inputs: AssessmentInputs, listed: Mapping[str, Sequence[Instance]]) -> list[PodAssessment]:
    """Classify each pod. The memory counts the roster already; `listed` are the registrations of the pods in it."""
    pods, roster, known = inputs.pods, inputs.roster, inputs.memory.pods
    registry = service_registry(inputs.policy)
    assessed = [_by_kubernetes(pod, known.get(pod.uid, NEW_POD)) for pod in pods]
    if registry is not None:
        ready = [each.pod for each in assessed if each.pod.is_ready and each.state not in GONE]
        absent = sum(known.get(pod.uid, NEW_POD).registered and pod.uid not in listed for pod in ready)
        doubt = "half or more of the pods vanished from the registry" if 2 * absent >= len(ready) else ""
        if roster is not None and roster.valid and inputs.now - roster.at > ABSENCE_TRUSTED_SECONDS:
            doubt = "by an answer older than 5 min"
        for index, each in enumerate(assessed):
            if each.state is PodState.SERVING:
                assessed[index] = _by_registry(each.pod, inputs, registry, listed.get(each.pod.uid, ()), doubt)
    if not any(each.state in {PodState.SERVING, PodState.DOUBTFUL} for each in assessed):
        # No evidence is enough to take out every pod.
        for index, each in enumerate(assessed):
            if each.state is PodState.PULLED_OUT:
                reason = f"every pod would be out ({each.reason})"
                assessed[index] = each._replace(state=PodState.DOUBTFUL, reason=reason)
    return assessed


def _by_kubernetes(pod: Pod, remembered: PodMemory) -> PodAssessment:
    """The state by the pod itself; SERVING where only a registry can say more."""
    since = pod.ready.since if pod.ready is not None else None
    shut = [gate for gate, is_open in pod.gates.items() if not is_open] if pod.containers_ready else []
    is_new = since is None or since <= pod.created_at or since - (pod.started_at or 0.0) <= NEVER_READY_SECONDS
    state, reason, evidence = PodState.SERVING, "Ready", ""
    if pod.deleting or pod.phase in FINISHED_PHASES:
        state = PodState.TERMINATING if pod.deleting else PodState.FINISHED
        reason = "it is being deleted" if pod.deleting else f"its phase is {pod.phase}"
    elif any(container.crash_looping for container in pod.containers):
        state, reason = PodState.UNREADY, "a container crash-loops"
    elif pod.started_at is None or pod.ready is None or (pod.phase == "Pending" and not pod.is_ready):
        state, reason = PodState.STARTING, "it has not started yet"
    elif not pod.is_ready and is_new:
        state, reason = PodState.STARTING, "it has not been Ready yet"
    elif not pod.is_ready and shut:
        state, reason, evidence = PodState.PULLED_OUT, "a readiness gate is shut", f"readiness gate {shut[0]}"
    elif not pod.is_ready:
        state, reason = PodState.UNREADY, "not Ready any more"
    elif pod.pulled_out_annotation:
        state, reason, evidence = PodState.PULLED_OUT, "pulled out by hand", "annotation effective-load.io/pulled-out"
    elif pod.endpoints_silent and (pod.endpoint_serving is False or remembered.state in AWAY):
        reason = "its endpoints did not serve when the watch of EndpointSlices fell silent"
        state, evidence = PodState.DOUBTFUL, "EndpointSlice conditions"
    elif pod.endpoint_serving is False:
        reason = "Ready, but its endpoints do not serve"
        state, evidence = PodState.PULLED_OUT, "EndpointSlice conditions"
    return PodAssessment(pod, state, reason, evidence)


def _by_registry(
    pod: Pod, inputs: AssessmentInputs, registry: Registry, instances: Sequence[Instance], doubt: str
) -> PodAssessment:
    """The state of a Ready pod by its registry. `doubt`: why absence does not count now; empty where it is."""
    roster, remembered, source = inputs.roster, inputs.memory.pod(pod.uid), f"registry {registry.name}"
    if roster is None or not roster.valid:
        return PodAssessment(pod, PodState.DOUBTFUL, f"{source} has not given a valid answer yet")
    in_grace = inputs.now - pod.ready_since < registry.registration_grace_seconds
    if instances:
        word = out_reason_of(instances, registry, roster)
        is_old = inputs.now - roster.at > EVIDENCE_TRUSTED_SECONDS
        if word:
            state = PodState.DOUBTFUL if is_old else PodState.PULLED_OUT
            reason = "out, by an answer older than 30 min" if is_old else f"the registry says {word}"
            return PodAssessment(pod, state, reason, f"{source}: {word}")
        if in_grace and all(instance.status.upper() == _STARTING for instance in instances):
            return PodAssessment(pod, PodState.STARTING, "Ready, but registered as STARTING", source)
        return PodAssessment(pod, PodState.SERVING, "registered", source)
    absent_since, is_newer = remembered.absent_since, roster.at >= pod.ready_since
    state, reason, evidence = PodState.DOUBTFUL, "", "absence"
    if not roster.absence_counts:
        state, reason, evidence = PodState.SERVING, f"Ready, and {source} says nothing of it", ""
    elif in_grace and is_newer:
        state, reason, evidence = PodState.STARTING, "Ready, but not registered yet", ""
    elif not remembered.registered:
        reason = "never registered" if is_newer else "Ready only after the registry's last answer"
    elif doubt:
        reason = f"no longer registered, {doubt}"
    elif absent_since is None or roster.at - absent_since < registry.absence_confirmation_seconds:
        reason = "no longer registered, not confirmed yet"
    else:
        state, reason, evidence = PodState.PULLED_OUT, "no longer registered", "confirmed absence"
    return PodAssessment(pod, state, reason, evidence)


def out_reason_of(instances: Iterable[Instance], registry: Registry, roster: Roster) -> str:
    """Why a pod with these registrations takes no traffic; empty where it does."""
    health_counts, first = registry.treat_unhealthy_as_out and not roster.protected, ""
    for instance in instances:
        word = out_reason(instance) or ("unhealthy" if health_counts and not instance.healthy else "")
        if bool(word) is registry.any_instance_out:
            return word
        first = first or word
    return first


def out_reason(instance: Instance) -> str:
    """Why a registration takes no traffic, not considering its health; empty where it does."""
    if not instance.enabled:
        return "disabled"
    if instance.isolated:
        return "isolated"
    if instance.weight is not None and instance.weight <= 0:
        return "weight 0"
    return instance.status if instance.status.upper() in _OUT_STATUSES else ""


class PodGroups:
    """The pods of a target. `idle` ones start or are not Ready, `out` are pulled out. The memory knows their states.

    `in_service`: by UID, when a pod started, turned Ready, was last seen back from being out, or registered late.
    `young` has the UIDs of pods that do not serve yet and may do so soon. `replaceable` counts the pulled-out pods that
    may be replaced, `doubt_replaceable` has the UIDs of doubtful ones. `deletes_out_first`: a scale-down deletes the
    pulled-out pods first. `kept`: how many pods stay in the count whatever they carry. `running`: how many are neither
    terminating nor finished; `started`: those of them that do not start.
    """

    def __init__(self, inputs: AssessmentInputs, assessed: Sequence[PodAssessment]) -> None:
        memory, pulled_out, now, target = inputs.memory, inputs.policy.pulled_out, inputs.now, inputs.target
        by_state: dict[PodState, list[Pod]] = {state: [] for state in PodState}
        self.in_service: dict[str, float] = {}
        young = set()
        for pod, state, *_ in assessed:
            remembered, ready_since = memory.pod(pod.uid), pod.ready.since if pod.ready is not None else None
            by_state[state].append(pod)
            self.in_service[pod.uid] = max(pod.started_at or 0.0, ready_since or 0.0, remembered.back_since or 0.0)
            is_new = state is PodState.DOUBTFUL and not remembered.registered
            if state in {PodState.STARTING, PodState.UNREADY} or is_new:
                young |= {pod.uid} if now - max(pod.created_at, pod.ready_since) < YOUNG_SECONDS else set()
        self.assessed, self.young = assessed, frozenset(young)
        self.counts = {state: len(pods) for state, pods in by_state.items() if pods}
        self.serving, self.doubtful = by_state[PodState.SERVING], by_state[PodState.DOUBTFUL]
        self.idle, self.out = by_state[PodState.STARTING] + by_state[PodState.UNREADY], by_state[PodState.PULLED_OUT]
        self.running = len(self.serving) + len(self.doubtful) + len(self.idle) + len(self.out)
        self.started = self.running - len(by_state[PodState.STARTING])
        may_replace = pulled_out.replace and (target is None or target.progressing in _SETTLED)

        def is_replaced(pod: Pod, after: float) -> bool:
            is_old = now - pod.created_at >= pulled_out.min_age
            return may_replace and is_old and now - memory.pod(pod.uid).since >= after

        self.replaceable = sum(is_replaced(pod, pulled_out.replace_after) for pod in self.out)
        self.doubt_replaceable = frozenset(pod.uid for pod in self.doubtful if is_replaced(pod, LONG_DOUBT_SECONDS))
        self.deletes_out_first = _deletes_out_first(target, assessed)
        self.kept = len(self.doubtful) + (0 if self.deletes_out_first else len(self.out))


def _deletes_out_first(target: Target | None, pods: Sequence[PodAssessment]) -> bool:
    """Whether a scale-down deletes the pulled-out pods first: each has a lower deletion cost than every other pod.

    The cost decides only among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a
    StatefulSet deletes by ordinal.
    """
    alive = [each for each in pods if each.state not in GONE]
    if target is None or target.kind != "Deployment" or len({each.pod.template_hash for each in alive}) != 1:
        return False
    out = [each.pod.deletion_cost for each in alive if each.state is PodState.PULLED_OUT]
    others = [each.pod.deletion_cost for each in alive if each.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
