"""Whether a policy is valid, answered, and acts: Accepted, Ready and Active, and the conditions of inputs and pods.

The serving pods have to run one version, except while a rollout progresses or is paused. A version is a pod template
(its hash, or the controller revision), named by its pods' version label.
"""

from http import HTTPStatus

from adapter.companion.state import Condition, Context
from adapter.load.assessment import HeldBy, Verdict
from adapter.load.explanation import decision_reason, metric_errors
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.spec import HELD, Mode
from adapter.load.states import service_registry
from adapter.policy.conditions import FOUND, TROUBLE_WHILE_TRUE, ConditionType
from adapter.policy.watermark_policy import HOLD_UNTIL
from adapter.runtime.faults import first_names
from adapter.runtime.times import format_micro_time

VERSION_LABELS = ("app.kubernetes.io/version", "version")
_PAUSED, _STALLED = {"DeploymentPaused", "RolloutPaused"}, "ProgressDeadlineExceeded"
"""Reasons of the Progressing condition of a rollout: somebody paused it, or it failed."""

_MODES = {
    Mode.ACTIVE: Condition(True, "Deciding", "the policy is in mode Active and not held"),
    Mode.OBSERVE: Condition(False, "Observed", "mode Observe: all is computed, and the current count is asked for"),
    Mode.PAUSED: Condition(False, "Paused", "mode Paused: the current count is asked for"),
}


def accepted(context: Context) -> Condition:
    """Whether the policy waits for no change, of itself or of the settings; its other metrics may decide meanwhile."""
    view, problem = context.view, context.view.problem
    if problem is not None and (problem.reason == "Invalid" or not view.policy.metrics):
        return Condition(False, "Refused", problem.message)
    if undefined := view.undefined_metrics:
        return Condition(False, "Refused", metric_errors(undefined))
    unsure = "the policy is valid by itself; whether the settings have what it names shows once it is assessed"
    sure = "the policy is valid, and the settings have what it names"
    return Condition(True, "Valid", unsure if context.silent else sure)


def ready(context: Context) -> Condition:
    decision, problem, hpa = context.decision, context.view.problem, context.hpa
    if decision is None:
        return Condition(False, problem.reason if problem else "NotAssessed", context.problem_text)
    if decision.error is not None:
        return Condition(False, context.view.reason_of_error, decision.error)
    if hpa is not None and hpa.inactive and hpa.depends_on(context.view.policy.name):
        message = f"a count is decided, and HPA {hpa.name} does not follow: {hpa.inactive}"
        return Condition(False, "HPAInactive", message)
    return Condition(True, "Decided", "a count is decided")


def active(context: Context) -> Condition | None:
    """Whether the metrics decide. What stands in the way outside of the policy is in condition Ready."""
    policy, problem = context.view.policy, context.view.problem
    if not policy.metrics:
        return None
    if problem is not None and context.hpa is None and problem.code == HTTPStatus.NOT_FOUND:
        message = f"no HPA acts for the policy: there is no HorizontalPodAutoscaler {policy.hpa}"
        return Condition(False, "HPAMissing", message)
    if problem is not None:
        return Condition(False, "NotDeciding", "nothing is decided; condition Ready says why")
    if policy.mode_at(context.now) == HELD:
        until = format_micro_time(policy.hold_until or 0.0).replace(".000000", "")
        message = f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
        return Condition(False, "Held", message)
    return _MODES[policy.mode]


def routes(context: Context) -> Condition | None:
    """Whether the settings have the routes that the policy names, if it names any."""
    named, namespace = context.view.policy.notify, context.key.namespace
    served = [route.name for route in context.settings.notifications.routes if route.serves(namespace)]
    if lacking := ", ".join(name for name in named if name not in served):
        message = f"notify names {lacking}, which the settings do not define for namespace {namespace}"
        return Condition(False, "UnknownRoute", message)
    return Condition(True, "Known", "the settings define every route that the policy names") if named else None


def assessed(type_: ConditionType, context: Context) -> Condition | None:
    """A condition that an assessment finds; None without one."""
    assessment, healthy = context.view.assessment, FOUND[type_]
    if context.silent and type_ is ConditionType.INPUTS_FRESH:
        return Condition(False, "WatchSilent", context.problem_text)
    if assessment is None:
        return None
    if type_ is ConditionType.REGISTRY_DATA_VALID and service_registry(context.view.policy) is None:
        return Condition(True, "NoRegistry", "the policy names no registry: Kubernetes says which pods serve")
    if (trouble := assessment.conditions.get(type_)) is None:
        return None if healthy is None else Condition(True, healthy.reason, healthy.message)
    return Condition(type_ in TROUBLE_WHILE_TRUE, healthy.reason_of_trouble if healthy else type_, trouble)


def versions(context: Context) -> Condition | None:
    """Whether all serving pods run one version."""
    target, quiet = context.view.target, context.settings.version_mismatch_seconds
    by_revision: dict[str, list[Pod]] = {}
    if context.view.assessment is None:
        return None
    for one in context.view.assessment.pods:
        revision = one.pod.template_hash or one.pod.labels.get("controller-revision-hash", "")
        if one.state is PodState.SERVING and revision:
            by_revision.setdefault(revision, []).append(one.pod)
    if len(by_revision) <= 1:
        return Condition(True, "OneVersion", "the serving pods run one version")
    # A rollout last progressed when a pod of the newest template turned Ready, and not after it failed.
    newest = max(by_revision.values(), key=lambda pods: min(pod.created_at for pod in pods))
    since = max(pod.ready_since for pod in newest)
    if target is not None and target.progressing == _STALLED and target.progressing_since is not None:
        since = min(since, target.progressing_since)
    listed = []
    for revision, of_it in sorted(by_revision.items(), key=lambda version: (-len(version[1]), version[0])):
        name = next((of_it[0].labels[label] for label in VERSION_LABELS if of_it[0].labels.get(label)), "")
        count = "1 pod" if len(of_it) == 1 else f"{len(of_it)} pods"
        listed.append(f"{name} ({revision}, {count})" if name else f"{revision} ({count})")
    versions = f"the serving pods run {len(listed)} versions: {first_names(listed, 5)}"
    if target is not None and target.progressing in _PAUSED:
        return Condition(True, "RollingOut", f"{versions}; the rollout is paused")
    if context.now - since < quiet:
        return Condition(True, "RollingOut", f"{versions}; a rollout progressed within the last {quiet:g} s")
    return Condition(False, "VersionMismatch", f"{versions}; no rollout has progressed for {quiet:g} s")


def mass_pull_out(context: Context) -> Condition | None:
    """The pods that are pulled out, with those that are doubtful only because too many would be; None for few."""
    if (assessment := context.view.assessment) is None:
        return None
    registry, counts = service_registry(assessment.policy), assessment.counts
    confirmed = assessment.at - (registry.absence_confirmation_seconds if registry is not None else 0.0)
    kept, out = 0, list[PodAssessment]()
    for one in assessment.pods:
        pod = assessment.memory.pod(one.pod.uid)
        is_absent = pod.registered and pod.absent_since is not None and pod.absent_since <= confirmed
        is_doubted = is_absent if one.evidence == "absence" else one.evidence and not counts.get(PodState.SERVING)
        is_kept = one.state is PodState.DOUBTFUL and bool(is_doubted)
        kept += is_kept
        out += [one] if is_kept or one.state is PodState.PULLED_OUT else []
    running = sum(counts.get(state, 0) for state in (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL))
    if len(out) <= 1 or len(out) * 100 < running * context.settings.notifications.mass_pull_out_percent:
        return None
    doubtful, example = f", {kept} of them are kept as doubtful" if kept else "", out[0]
    message = f"{len(out)} of {running} running pods are pulled out{doubtful}; {example.pod.name}: {example.reason}"
    return Condition(True, ConditionType.MASS_PULL_OUT, message)


def at_maximum(context: Context) -> Condition | None:
    """Whether more than the HPA's maximum is needed."""
    assessment, decision, bounds = context.view.assessment, context.decision, context.view.bounds
    if assessment is None or decision is None or bounds is None or decision.desired != bounds.maximum:
        return None
    if decision.held_by is not HeldBy.BOUNDS or decision.verdict is not Verdict.ABOVE:
        return None
    message = f"more is needed than the HPA's maximum of {bounds.maximum}: {decision_reason(assessment, decision)}"
    return Condition(True, ConditionType.AT_MAXIMUM, message)
