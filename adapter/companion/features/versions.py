"""Whether all serving pods run one version, except while a rollout progresses.

A version is a pod template: the template's hash, or the controller revision. Its name comes from a label, the images,
or the registry.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from adapter.companion.state import Context, PolicyCondition
from adapter.load.assessment import Assessment
from adapter.load.matching import registrations
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.states import service_registry
from adapter.policy.conditions import ConditionType, Reason
from adapter.runtime.faults import first_names

VERSION_LABELS = ("app.kubernetes.io/version", "version")
VERSION_METADATA = ("version", "app.version", "appVersion")
_REVISION_LABEL = "controller-revision-hash"
_STALLED = {"DeploymentPaused", "RolloutPaused", "ProgressDeadlineExceeded"}
"""Reasons of the Progressing condition of a rollout that is stalled."""
_SHOWN = 5


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """VersionsConsistent, once the policy is assessed."""
    view, now = context.view, context.now
    if view.assessment is None:
        return
    by_revision: dict[str, list[Pod]] = {}
    for reading in view.assessment.pods:
        revision = reading.pod.template_hash or reading.pod.labels.get(_REVISION_LABEL, "")
        if reading.state is PodState.SERVING and revision:
            by_revision.setdefault(revision, []).append(reading.pod)
    if len(by_revision) <= 1:
        yield PolicyCondition(
            ConditionType.VERSIONS_CONSISTENT, True, Reason.ONE_VERSION, "the serving pods run one version"
        )
        return
    versions = _listed(view.assessment, view.inputs.roster if view.inputs is not None else None, by_revision)
    # A rollout last progressed when a pod of the newest template turned Ready. Pods that did so after the target had
    # reported a stalled rollout do not count.
    newest = max(by_revision.values(), key=lambda pods: min(map(attrgetter("created_at"), pods)))
    moves, target, stalled_at = [pod.ready_since for pod in newest], view.target, None
    if target is not None and target.progressing in _STALLED:
        stalled_at = target.progressing_since
    since = max(moves)
    if stalled_at is not None:
        since = max((at for at in moves if at <= stalled_at), default=stalled_at)
    quiet = context.settings.version_mismatch_seconds
    if now - since < quiet:
        message = f"{versions}; a rollout progressed within the last {quiet:g} s"
        yield PolicyCondition(ConditionType.VERSIONS_CONSISTENT, True, Reason.ROLLING_OUT, message)
    else:
        message = f"{versions}; no rollout has progressed for {quiet:g} s"
        yield PolicyCondition(ConditionType.VERSIONS_CONSISTENT, False, Reason.VERSION_MISMATCH, message)


def _listed(assessment: Assessment, roster: Roster | None, by_revision: Mapping[str, Sequence[Pod]]) -> str:
    """The versions with their pods, named by the first source that tells any two of them apart."""
    samples = {revision: pods[0] for revision, pods in by_revision.items()}
    images = {revision: {one.name: one.image for one in pod.containers} for revision, pod in samples.items()}
    # The tags of the images that are not the same in all templates.
    common = set.intersection(*(set(by_name.items()) for by_name in images.values()))
    tags = {
        revision: "+".join(tag(image) for name, image in by_name.items() if image and (name, image) not in common)
        for revision, by_name in images.items()
    }
    sources = [{revision: pod.labels.get(label, "") for revision, pod in samples.items()} for label in VERSION_LABELS]
    sources.append(tags)
    registry = service_registry(assessment.policy)
    if registry is not None and roster is not None:
        registered = registrations(samples.values(), roster, registry)
        sources.extend(
            {
                revision: next((one.metadata[key] for one in registered.get(pod.uid, ()) if key in one.metadata), "")
                for revision, pod in samples.items()
            }
            for key in VERSION_METADATA
        )
    names = next((names for names in sources if len(set(names.values())) > 1), {})
    versions = []
    for revision, pods in sorted(by_revision.items(), key=lambda version: (-len(version[1]), version[0])):
        name, count = names.get(revision, ""), "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
        versions.append(f"{name} ({revision}, {count})" if name else f"{revision} ({count})")
    return f"the serving pods run {len(versions)} versions: {first_names(versions, _SHOWN)}"


def tag(image: str) -> str:
    """The tag of an image, else the beginning of its digest, else `latest`."""
    name, _, digest = image.partition("@")
    _, colon, label = name.rpartition("/")[2].partition(":")
    if colon:
        return label
    return digest.partition(":")[2][:12] if digest else "latest"
