"""What a check is about: policies, HPAs, workloads and rivals, filled from a cluster or from files."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.commands.check.report import Finding, error, reason, skipped
from adapter.commands.cluster import Cluster, ReportedStatus
from adapter.commands.files import ManifestObject, Place
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import BUILT_IN, target_decoder
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.linking import Links
from adapter.policy.watermark_policy import GROUP, KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import Settings, SettingsError, parse_settings

T = TypeVar("T")
Name = tuple[str, str]
"""Namespace and name."""

RIVALS = {
    "ScaledObject": ("keda.sh", "keda.sh/v1alpha1", "scaledobjects"),
    "WatermarkPodAutoscaler": ("datadoghq.com", "datadoghq.com/v1alpha1", "watermarkpodautoscalers"),
}
"""Other autoscalers of the same target, by kind: group, apiVersion, plural."""
_SETTINGS_KEY = "settings.yaml"


@dataclass(slots=True)
class Read(Generic[T]):
    """An object as the adapter reads it; `value` is None where it is faulty. `at`: where it is in a file."""

    about: str
    value: T | None
    at: ManifestObject | None = None
    faults: Sequence[Fault] = ()
    status: ReportedStatus = field(default_factory=ReportedStatus)

    def place(self, path: str = "") -> Place | None:
        """The place of a field, where the object is in a file."""
        return None if self.at is None else self.at.place(path)

    def findings(self) -> list[Finding]:
        """Why it is not valid; the path is part of the place where there is a file."""
        if self.at is None:
            return [error(self.about, f"it is not valid: {fault}") for fault in self.faults]
        return [
            error(self.about, str(Fault("", one.value, one.advice)), place=self.at.place(one.path))
            for one in self.faults
        ]


class Workload(NamedTuple):
    """A workload of a file, with a pod as its template makes it."""

    reference: CrossVersionReference
    pod: Pod
    selector: LabelSelector | None
    at: ManifestObject

    def __str__(self) -> str:
        return f"{self.reference.kind} {self.reference.name}"


class Rival(NamedTuple):
    """Another autoscaler and what it scales."""

    namespace: str
    kind: str
    name: str
    target: CrossVersionReference
    at: ManifestObject | None


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that is checked. `findings` are about what could not be read; `workloads` are those of files.

    `settings`: those that may apply; empty where none are known.
    """

    is_live: bool
    has_tolerance: bool | None = None
    policies: dict[Name, Read[Policy]] = field(default_factory=dict)
    hpas: dict[Name, Read[Hpa]] = field(default_factory=dict)
    workloads: dict[tuple[str, CrossVersionReference], Workload] = field(default_factory=dict)
    rivals: list[Rival] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def hpa_of(self, policy: Policy) -> Read[Hpa] | None:
        """The HPA that a policy names."""
        return self.hpas.get((policy.namespace, policy.hpa))

    def links(self) -> dict[str, Links]:
        """The links between policies, HPAs and targets, by namespace."""
        links: dict[str, Links] = defaultdict(Links)
        for (namespace, name), hpa in self.hpas.items():
            links[namespace].put_hpa(name, hpa.value)
        for (namespace, name), policy in self.policies.items():
            links[namespace].put_policy(name, policy.value)
        return links


async def read_cluster(cluster: Cluster, namespaces: Sequence[str], has_tolerance: bool | None, only: str) -> World:
    """The world of these namespaces (empty: of all); `only` of one policy's (NAMESPACE/NAME), if given."""
    world, about = World(is_live=True, has_tolerance=has_tolerance), "cluster"
    namespace, _, name = only.partition("/")
    within = [namespace] if only else namespaces
    try:
        for one in await cluster.policies(within):
            faults = [Fault("", None, one.fault)] if one.fault else []
            read = Read(f"policy {one}", one.policy, faults=faults, status=one.status)
            world.policies[one.namespace, one.name] = read
        for hpa in await cluster.hpas(within):
            world.hpas[hpa.namespace, hpa.name] = Read(f"HPA {hpa.namespace}/{hpa.name}", hpa)
        for kind, (_, api_version, plural) in RIVALS.items():
            with contextlib.suppress(Forbidden):  # a rival's HPA is found all the same
                for data in await cluster.objects(api_version, plural, within):
                    _add_rival(world, kind, data, None)
        if only and (namespace, name) not in world.policies:
            world.findings.append(error(about, f"there is no WatermarkPolicy {name} in namespace {namespace}"))
    except Forbidden as fault:
        world.findings.append(skipped(about, f"policies and HPAs, for {reason(fault)}"))
    except NotFound:
        remedy = "apply the definition (kubectl apply -k manifests/crd)"
        world.findings.append(error(about, "the API server has no WatermarkPolicy", remedy))
    except KubeError as fault:
        world.findings.append(error(about, f"policies and HPAs cannot be read: {fault}"))
    return world


def read_manifests(objects: Iterable[ManifestObject], given: Settings | None) -> World:
    """The world of files; the settings that are `given` replace those among the files."""
    objects, world = list(objects), World(is_live=False, settings=[given] if given is not None else [])
    for at in objects if given is None else ():
        _add_settings(world, at)
    tolerance = Fraction(world.settings[0].kubernetes.hpa_tolerance) if world.settings else DEFAULT_TOLERANCE
    for at in objects:
        if (at.group, at.kind) == (GROUP, KIND):
            _put(world, world.policies, at, "policy", parse_policy)
        elif (at.group, at.kind) == ("autoscaling", "HorizontalPodAutoscaler"):
            _put(world, world.hpas, at, "HPA", lambda data: parse_hpa(data, tolerance))
        elif at.kind in RIVALS and at.group == RIVALS[at.kind][0]:
            _add_rival(world, at.kind, at.data, at)
        elif (workload := _workload(at)) is not None:
            world.workloads.setdefault((at.namespace, workload.reference.identity), workload)
    return world


def _put(
    world: World,
    into: dict[Name, Read[T]],
    at: ManifestObject,
    what: str,
    parse: Callable[[Mapping[str, Any]], T],
) -> None:
    """Add an object. Of one that stands twice in the files, as in overlays, the second is read for its faults alone."""
    read: Read[T] = Read(f"{what} {at.namespace}/{at.name}", None, at)
    try:
        read.value = parse(at.data)
    except FaultyDocument as faulty:
        read.faults = faulty.faults
    if into.setdefault((at.namespace, at.name), read) is not read:
        world.findings += read.findings()


def _add_settings(world: World, at: ManifestObject) -> None:
    """Read the settings of an installation's ConfigMap: known by its name, or by its label and key."""
    is_labelled = mapping_at(at.metadata, "labels").get("app.kubernetes.io/name") == "effective-load"
    text = mapping_at(at.data, "data").get(_SETTINGS_KEY)
    if at.kind != "ConfigMap" or not isinstance(text, str) or not (is_labelled or at.name == "effective-load-settings"):
        return
    try:
        world.settings.append(parse_settings(text))
    except SettingsError as faulty:
        about, place = f"ConfigMap {at.namespace}/{at.name}", at.place(f"data.{_SETTINGS_KEY}")
        world.findings += [error(about, str(fault), place=place) for fault in faulty.faults]


def _add_rival(world: World, kind: str, data: Mapping[str, Any], at: ManifestObject | None) -> None:
    """Add a ScaledObject (of a Deployment unless it says otherwise) or a WatermarkPodAutoscaler."""
    metadata, reference = mapping_at(data, "metadata"), mapping_at(data, "spec", "scaleTargetRef")
    version, of_kind = reference.get("apiVersion") or "apps/v1", reference.get("kind") or "Deployment"
    target = CrossVersionReference(str(version), str(of_kind), str(reference.get("name")))
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name"))
    world.rivals.append(Rival(namespace, kind, name, target.identity, at))


def _workload(at: ManifestObject) -> Workload | None:
    """The workload that an object is; None for one without a template of pods."""
    inner = mapping_at(at.data, "spec", "template", "spec")
    if not inner.get("containers"):
        return None
    labels = mapping_at(at.data, "spec", "template", "metadata", "labels")
    metadata = {"name": at.name, "namespace": at.namespace, "labels": labels}
    try:
        pod = PodDecoder()(msgspec.json.encode({"metadata": metadata, "spec": inner}))
        body = msgspec.json.encode({key: value for key, value in at.data.items() if key != "status"})
        scale = target_decoder(at.api_version, at.kind, BUILT_IN)(body).scale
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None
    selector = None
    if scale is not None and scale.selector:
        with contextlib.suppress(SelectorError):
            selector = parse_selector(scale.selector)
    return Workload(CrossVersionReference(at.api_version, at.kind, at.name), pod, selector, at)
