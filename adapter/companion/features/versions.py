"""Whether all serving pods run one version, except while a rollout progresses or is paused.

A version is a pod template (its hash, or the controller revision), named by its pods' version label.
"""

from collections.abc import Iterator

from adapter.companion.state import Context, PolicyCondition
from adapter.load.pods import Pod, PodState
from adapter.policy.conditions import ConditionType, Reason
from adapter.runtime.faults import first_names

VERSION_LABELS = ("app.kubernetes.io/version", "version")
_REVISION_LABEL = "controller-revision-hash"
_PAUSED = {"DeploymentPaused", "RolloutPaused"}
_STALLED = "ProgressDeadlineExceeded"
"""Reasons of the Progressing condition of a rollout: somebody paused it, or it failed."""
_SHOWN = 5


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """VersionsConsistent, once the policy is assessed."""
    assessment, target = context.view.assessment, context.view.target
    if assessment is None:
        return
    by_revision: dict[str, list[Pod]] = {}
    for one in assessment.pods:
        revision = one.pod.template_hash or one.pod.labels.get(_REVISION_LABEL, "")
        if one.state is PodState.SERVING and revision:
            by_revision.setdefault(revision, []).append(one.pod)
    type_, quiet = ConditionType.VERSIONS_CONSISTENT, context.settings.version_mismatch_seconds
    if len(by_revision) <= 1:
        yield PolicyCondition(type_, True, Reason.ONE_VERSION, "the serving pods run one version")
        return
    # A rollout last progressed when a pod of the newest template turned Ready, and not after it failed.
    newest = max(by_revision.values(), key=lambda pods: min(pod.created_at for pod in pods))
    since = max(pod.ready_since for pod in newest)
    if target is not None and target.progressing == _STALLED and target.progressing_since is not None:
        since = min(since, target.progressing_since)
    listed = []
    for revision, pods in sorted(by_revision.items(), key=lambda version: (-len(version[1]), version[0])):
        name = next((pods[0].labels[label] for label in VERSION_LABELS if pods[0].labels.get(label)), "")
        count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
        listed.append(f"{name} ({revision}, {count})" if name else f"{revision} ({count})")
    versions = f"the serving pods run {len(listed)} versions: {first_names(listed, _SHOWN)}"
    if target is not None and target.progressing in _PAUSED:
        yield PolicyCondition(type_, True, Reason.ROLLING_OUT, f"{versions}; the rollout is paused")
    elif context.now - since < quiet:
        message = f"{versions}; a rollout progressed within the last {quiet:g} s"
        yield PolicyCondition(type_, True, Reason.ROLLING_OUT, message)
    else:
        message = f"{versions}; no rollout has progressed for {quiet:g} s"
        yield PolicyCondition(type_, False, Reason.VERSION_MISMATCH, message)
