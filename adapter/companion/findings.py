"""Whether a policy is valid, answered, and acts: Accepted, Ready and Active, and the conditions of inputs and pods.

The serving pods have to run one version, except while a rollout progresses or is paused. A version is a pod template
(its hash, or the controller revision), named by its pods' version label.
"""

from collections.abc import Iterable, Iterator
from http import HTTPStatus

from adapter.companion.state import Context, PolicyCondition
from adapter.load.assessment import Assessment, HeldBy, Verdict
from adapter.load.explanation import decision_reason, metric_errors
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.spec import HELD, Mode
from adapter.load.states import service_registry
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.watermark_policy import HOLD_UNTIL
from adapter.runtime.faults import first_names
from adapter.runtime.times import format_micro_time

VERSION_LABELS = ("app.kubernetes.io/version", "version")
_REVISION_LABEL = "controller-revision-hash"
_PAUSED = {"DeploymentPaused", "RolloutPaused"}
_STALLED = "ProgressDeadlineExceeded"
"""Reasons of the Progressing condition of a rollout: somebody paused it, or it failed."""
_SHOWN = 5
FEWEST_OUT = 2
"""Fewer pods than this are no mass pull-out, whatever share they are."""

_MODES = {
    Mode.ACTIVE: (Reason.DECIDING, "the count is decided by the metrics"),
    Mode.OBSERVE: (Reason.OBSERVED, "mode Observe: everything is computed, and the current count is asked for"),
    Mode.PAUSED: (Reason.PAUSED, "mode Paused: the current count is asked for"),
}


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Accepted and Ready always; Active for every valid policy; those of inputs and pods once it is assessed."""
    yield _accepted(context)
    yield _ready(context)
    if context.view.policy.metrics:
        yield _active(context)
    if context.silent:
        yield PolicyCondition(ConditionType.INPUTS_FRESH, False, Reason.WATCH_SILENT, context.problem_text)
    assessment = context.view.assessment
    if assessment is None:
        return
    for type_ in ConditionType:
        trouble, healthy = assessment.conditions.get(type_), type_.healthy
        if type_ is ConditionType.REGISTRY_DATA_VALID and service_registry(context.view.policy) is None:
            message = "the policy names no registry: Kubernetes says which pods serve"
            yield PolicyCondition(type_, True, Reason.NO_REGISTRY, message)
        elif healthy is not None and trouble is None:
            yield PolicyCondition(type_, True, healthy.reason, healthy.message)
        elif trouble is not None:
            reason = type_.value if healthy is None else healthy.reason_of_trouble
            yield PolicyCondition(type_, type_.is_trouble_while, reason, trouble)
    yield _versions(context, assessment.pods)
    found = {
        ConditionType.MASS_PULL_OUT: _mass_pull_out(assessment, context.settings.notifications.mass_pull_out_percent),
        ConditionType.AT_MAXIMUM: _at_maximum(context),
    }
    yield from (PolicyCondition(type_, True, type_.value, message) for type_, message in found.items() if message)


def _accepted(context: Context) -> PolicyCondition:
    """Whether the policy waits for no change, of itself or of the settings; its other metrics may decide meanwhile."""
    view, problem = context.view, context.view.problem
    if problem is not None and (problem.reason is Reason.INVALID or not view.policy.metrics):
        return PolicyCondition(ConditionType.ACCEPTED, False, Reason.REFUSED, problem.message)
    if undefined := view.undefined_metrics:
        message = metric_errors(undefined)
        return PolicyCondition(ConditionType.ACCEPTED, False, Reason.REFUSED, message)
    message = "the policy is valid, and the settings have what it names"
    if context.silent:
        message = "the policy is valid by itself; whether the settings have what it names shows once it is assessed"
    return PolicyCondition(ConditionType.ACCEPTED, True, Reason.VALID, message)


def _ready(context: Context) -> PolicyCondition:
    decision, problem = context.decision, context.view.problem
    if decision is None:
        reason = problem.reason if problem else Reason.NOT_ASSESSED
        return PolicyCondition(ConditionType.READY, False, reason, context.problem_text)
    if decision.error is not None:
        return PolicyCondition(ConditionType.READY, False, context.view.reason_of_error, decision.error)
    hpa = context.hpa
    if hpa is not None and hpa.inactive and hpa.depends_on(context.view.policy.name):
        message = f"a count is decided, and HPA {hpa.name} does not follow: {hpa.inactive}"
        return PolicyCondition(ConditionType.READY, False, Reason.HPA_INACTIVE, message)
    return PolicyCondition(ConditionType.READY, True, Reason.DECIDED, "a count is decided")


def _active(context: Context) -> PolicyCondition:
    """Whether the metrics decide. What stands in the way outside of the policy is in condition Ready."""
    policy, problem = context.view.policy, context.view.problem
    if problem is not None and context.hpa is None and problem.code == HTTPStatus.NOT_FOUND:
        message = f"no HPA acts for the policy: there is no HorizontalPodAutoscaler {policy.hpa}"
        return PolicyCondition(ConditionType.ACTIVE, False, Reason.HPA_MISSING, message)
    if problem is not None:
        message = "nothing is decided; condition Ready says why"
        return PolicyCondition(ConditionType.ACTIVE, False, Reason.NOT_DECIDING, message)
    mode = policy.mode_at(context.now)
    if mode == HELD:
        assert policy.hold_until is not None
        until = format_micro_time(policy.hold_until).replace(".000000", "")
        message = f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
        reason = Reason.HELD
    else:
        reason, message = _MODES[policy.mode]
    return PolicyCondition(ConditionType.ACTIVE, mode == Mode.ACTIVE.value, reason, message)


def _versions(context: Context, pods: Iterable[PodAssessment]) -> PolicyCondition:
    """Whether all serving pods run one version."""
    target = context.view.target
    by_revision: dict[str, list[Pod]] = {}
    for one in pods:
        revision = one.pod.template_hash or one.pod.labels.get(_REVISION_LABEL, "")
        if one.state is PodState.SERVING and revision:
            by_revision.setdefault(revision, []).append(one.pod)
    type_, quiet = ConditionType.VERSIONS_CONSISTENT, context.settings.version_mismatch_seconds
    if len(by_revision) <= 1:
        return PolicyCondition(type_, True, Reason.ONE_VERSION, "the serving pods run one version")
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
    versions = f"the serving pods run {len(listed)} versions: {first_names(listed, _SHOWN)}"
    if target is not None and target.progressing in _PAUSED:
        return PolicyCondition(type_, True, Reason.ROLLING_OUT, f"{versions}; the rollout is paused")
    if context.now - since < quiet:
        message = f"{versions}; a rollout progressed within the last {quiet:g} s"
        return PolicyCondition(type_, True, Reason.ROLLING_OUT, message)
    message = f"{versions}; no rollout has progressed for {quiet:g} s"
    return PolicyCondition(type_, False, Reason.VERSION_MISMATCH, message)


def _mass_pull_out(assessment: Assessment, percent: int) -> str:
    """The pods that are pulled out, with those that are doubtful only because too many would be; empty for few."""
    registry, none_serves = service_registry(assessment.policy), not assessment.counts.get(PodState.SERVING)
    confirmed = assessment.at - (registry.absence_confirmation_seconds if registry is not None else 0.0)
    kept, out = 0, list[PodAssessment]()
    for one in assessment.pods:
        pod = assessment.memory.pod(one.pod.uid)
        is_absent = pod.registered and pod.absent_since is not None and pod.absent_since <= confirmed
        is_kept = one.state is PodState.DOUBTFUL and (is_absent if one.evidence == "absence" else none_serves)
        is_kept = is_kept and bool(one.evidence)
        kept += is_kept
        out += [one] if is_kept or one.state is PodState.PULLED_OUT else []
    running = sum(
        assessment.counts.get(state, 0) for state in (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL)
    )
    if len(out) < FEWEST_OUT or len(out) * 100 < running * percent:
        return ""
    doubtful, example = f", {kept} of them are kept as doubtful" if kept else "", out[0]
    return f"{len(out)} of {running} running pods are pulled out{doubtful}; {example.pod.name}: {example.reason}"


def _at_maximum(context: Context) -> str:
    """Why more than the HPA's maximum is needed; empty where it is not."""
    assessment, decision, bounds = context.view.assessment, context.decision, context.view.bounds
    if assessment is None or decision is None or bounds is None or decision.desired != bounds.maximum:
        return ""
    if decision.held_by is not HeldBy.BOUNDS or decision.verdict is not Verdict.ABOVE:
        return ""
    return f"more is needed than the HPA's maximum of {bounds.maximum}: {decision_reason(assessment, decision)}"
