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
    Mode.ACTIVE: (True, Reason.DECIDING, "the count is decided by the metrics"),
    Mode.OBSERVE: (False, Reason.OBSERVED, "mode Observe: everything is computed, and the current count is asked for"),
    Mode.PAUSED: (False, Reason.PAUSED, "mode Paused: the current count is asked for"),
}

Found = tuple[bool, Reason | str, str]
"""Whether a condition is true, its reason, and its message."""


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Accepted and Ready always; Active for every valid policy; those of inputs and pods once it is assessed."""
    found: dict[ConditionType, Found | None] = {
        ConditionType.ACCEPTED: _accepted(context),
        ConditionType.READY: _ready(context),
        ConditionType.ACTIVE: _active(context),
    }
    if context.silent:
        found[ConditionType.INPUTS_FRESH] = False, Reason.WATCH_SILENT, context.problem_text
    if (assessment := context.view.assessment) is not None:
        for type_ in ConditionType:
            if type_.is_found:
                found[type_] = _finding(type_, context, assessment.conditions.get(type_))
        found[ConditionType.VERSIONS_CONSISTENT] = _versions(context, assessment.pods)
        found[ConditionType.MASS_PULL_OUT] = _mass_pull_out(context, assessment)
        found[ConditionType.AT_MAXIMUM] = _at_maximum(context, assessment)
    yield from (PolicyCondition(type_, *one) for type_, one in found.items() if one is not None)


def _accepted(context: Context) -> Found:
    """Whether the policy waits for no change, of itself or of the settings; its other metrics may decide meanwhile."""
    view, problem = context.view, context.view.problem
    if problem is not None and (problem.reason is Reason.INVALID or not view.policy.metrics):
        return False, Reason.REFUSED, problem.message
    if undefined := view.undefined_metrics:
        return False, Reason.REFUSED, metric_errors(undefined)
    message = "the policy is valid, and the settings have what it names"
    if context.silent:
        message = "the policy is valid by itself; whether the settings have what it names shows once it is assessed"
    return True, Reason.VALID, message


def _ready(context: Context) -> Found:
    decision, problem, hpa = context.decision, context.view.problem, context.hpa
    if decision is None:
        return False, problem.reason if problem else Reason.NOT_ASSESSED, context.problem_text
    if decision.error is not None:
        return False, context.view.reason_of_error, decision.error
    if hpa is not None and hpa.inactive and hpa.depends_on(context.view.policy.name):
        message = f"a count is decided, and HPA {hpa.name} does not follow: {hpa.inactive}"
        return False, Reason.HPA_INACTIVE, message
    return True, Reason.DECIDED, "a count is decided"


def _active(context: Context) -> Found | None:
    """Whether the metrics decide. What stands in the way outside of the policy is in condition Ready."""
    policy, problem = context.view.policy, context.view.problem
    if not policy.metrics:
        return None
    if problem is not None and context.hpa is None and problem.code == HTTPStatus.NOT_FOUND:
        message = f"no HPA acts for the policy: there is no HorizontalPodAutoscaler {policy.hpa}"
        return False, Reason.HPA_MISSING, message
    if problem is not None:
        return False, Reason.NOT_DECIDING, "nothing is decided; condition Ready says why"
    if policy.mode_at(context.now) == HELD:
        until = format_micro_time(policy.hold_until or 0.0).replace(".000000", "")
        message = f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
        return False, Reason.HELD, message
    return _MODES[policy.mode]


def _finding(type_: ConditionType, context: Context, trouble: str | None) -> Found | None:
    """A condition that an assessment finds, with its trouble."""
    healthy = type_.healthy
    if type_ is ConditionType.REGISTRY_DATA_VALID and service_registry(context.view.policy) is None:
        return True, Reason.NO_REGISTRY, "the policy names no registry: Kubernetes says which pods serve"
    if trouble is None:
        return None if healthy is None else (True, healthy.reason, healthy.message)
    return type_.is_trouble_while, type_.value if healthy is None else healthy.reason_of_trouble, trouble


def _versions(context: Context, pods: Iterable[PodAssessment]) -> Found:
    """Whether all serving pods run one version."""
    target, quiet = context.view.target, context.settings.version_mismatch_seconds
    by_revision: dict[str, list[Pod]] = {}
    for one in pods:
        revision = one.pod.template_hash or one.pod.labels.get(_REVISION_LABEL, "")
        if one.state is PodState.SERVING and revision:
            by_revision.setdefault(revision, []).append(one.pod)
    if len(by_revision) <= 1:
        return True, Reason.ONE_VERSION, "the serving pods run one version"
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
        return True, Reason.ROLLING_OUT, f"{versions}; the rollout is paused"
    if context.now - since < quiet:
        return True, Reason.ROLLING_OUT, f"{versions}; a rollout progressed within the last {quiet:g} s"
    return False, Reason.VERSION_MISMATCH, f"{versions}; no rollout has progressed for {quiet:g} s"


def _mass_pull_out(context: Context, assessment: Assessment) -> Found | None:
    """The pods that are pulled out, with those that are doubtful only because too many would be; None for few."""
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
    if len(out) < FEWEST_OUT or len(out) * 100 < running * context.settings.notifications.mass_pull_out_percent:
        return None
    doubtful, example = f", {kept} of them are kept as doubtful" if kept else "", out[0]
    message = f"{len(out)} of {running} running pods are pulled out{doubtful}; {example.pod.name}: {example.reason}"
    return True, ConditionType.MASS_PULL_OUT.value, message


def _at_maximum(context: Context, assessment: Assessment) -> Found | None:
    """Whether more than the HPA's maximum is needed."""
    decision, bounds = context.decision, context.view.bounds
    if decision is None or bounds is None or decision.desired != bounds.maximum:
        return None
    if decision.held_by is not HeldBy.BOUNDS or decision.verdict is not Verdict.ABOVE:
        return None
    message = f"more is needed than the HPA's maximum of {bounds.maximum}: {decision_reason(assessment, decision)}"
    return True, ConditionType.AT_MAXIMUM.value, message
