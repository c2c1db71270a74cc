"""What a check is about: policies, HPAs, workloads and rivals, filled from a cluster or from files."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

import msgspec

from adapter.commands.check.report import Section, reason
from adapter.commands.cluster import Cluster, ClusterError, ReportedStatus
from adapter.commands.files import ManifestObject, Place
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.pods import PodDecoder
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
from adapter.kube.targets import BUILT_IN, target_decoder
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.linking import Links
from adapter.policy.watermark_policy import GROUP, KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import Settings, SettingsError, parse_settings

T = TypeVar("T")
Name = tuple[str, str]
"""Namespace and name."""

HPA_KIND = "HorizontalPodAutoscaler"
RIVALS = {
    "ScaledObject": ("keda.sh", "keda.sh/v1alpha1", "scaledobjects"),
    "WatermarkPodAutoscaler": ("datadoghq.com", "datadoghq.com/v1alpha1", "watermarkpodautoscalers"),
}
"""Other autoscalers of the same target, by kind: group, apiVersion, plural."""
_SETTINGS_KEY = "settings.yaml"
_AT_ONCE = 8


@dataclass(slots=True)
class Read(Generic[T]):
    """An object as the adapter reads it; `value` is None where it is faulty. `at`: where it is in a file."""

    value: T | None
    at: ManifestObject | None = None
    faults: Sequence[Fault] = ()
    status: ReportedStatus = field(default_factory=ReportedStatus)

    def place(self, path: str = "") -> Place | None:
        """The place of a field, where the object is in a file."""
        return None if self.at is None else self.at.place(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What an HPA scales. `pods`: those that run, or one as the template of a file makes it.

    `replicas`: None in files. `others`: pods of other controllers that the selector matches.
    """

    reference: CrossVersionReference
    pods: tuple[Pod, ...]
    replicas: int | None = None
    others: tuple[Pod, ...] = ()
    selector: LabelSelector | None = None
    at: ManifestObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another autoscaler and what it scales."""

    namespace: str
    kind: str
    name: str
    target: CrossVersionReference
    at: ManifestObject | None = None


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that is checked. `problems` are sections about what could not be read.

    `settings`: those that may apply; empty where none are known. `troubles` says by policy why its workload is unknown.
    """

    is_live: bool
    has_tolerance: bool | None = None
    policies: dict[Name, Read[Policy]] = field(default_factory=dict)
    hpas: dict[Name, Read[Hpa]] = field(default_factory=dict)
    workloads: dict[tuple[str, CrossVersionReference], Workload] = field(default_factory=dict)
    rivals: list[Rival] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    troubles: dict[Name, str] = field(default_factory=dict)
    problems: list[Section] = field(default_factory=list)

    def hpa_of(self, policy: Policy) -> Read[Hpa] | None:
        """The HPA that a policy names."""
        return self.hpas.get((policy.namespace, policy.hpa))

    def workload_of(self, hpa: Hpa) -> Workload | None:
        """What an HPA scales."""
        return self.workloads.get((hpa.namespace, hpa.target.identity))

    def workload_of_policy(self, policy: Policy) -> Workload | None:
        """What a policy's HPA scales."""
        hpa = self.hpa_of(policy)
        return self.workload_of(hpa.value) if hpa is not None and hpa.value is not None else None

    def links(self) -> dict[str, Links]:
        """The links between policies, HPAs and targets, by namespace."""
        links: dict[str, Links] = defaultdict(Links)
        for (namespace, name), hpa in self.hpas.items():
            links[namespace].put_hpa(name, hpa.value)
        for (namespace, name), policy in self.policies.items():
            links[namespace].put_policy(name, policy.value)
        return links


# --- a cluster ---


async def read_cluster(cluster: Cluster, namespaces: Iterable[str], has_tolerance: bool | None, only: str) -> World:
    """The world of these namespaces (empty: of all); `only` a policy (NAMESPACE/NAME) and its neighbours if given."""
    world, section = World(is_live=True, has_tolerance=has_tolerance), Section("cluster")
    namespace, _, name = only.partition("/")
    try:
        await _read_objects(world, cluster, [namespace] if only else list(namespaces))
        if only and (namespace, name) not in world.policies:
            section.error(f"there is no WatermarkPolicy {name} in namespace {namespace}")
    except Forbidden as error:
        section.skipped(f"policies and HPAs, for {reason(error)}")
    except NotFound:
        section.error("the API server has no WatermarkPolicy: apply the definition (kubectl apply -k manifests/crd)")
    except KubeError as error:
        section.error(f"policies and HPAs cannot be read: {error}")
    slots = asyncio.Semaphore(_AT_ONCE)

    async def add_workload(policy: Policy) -> None:
        read = world.hpa_of(policy)
        if read is None or read.value is None:
            return
        try:
            async with slots:
                found = await cluster.pods(policy, read.value)
        except (KubeError, ClusterError) as error:
            world.troubles[policy.namespace, policy.name] = reason(error)
            return
        reference = read.value.target
        world.workloads[policy.namespace, reference.identity] = Workload(
            reference=reference, pods=found.pods, replicas=found.replicas, others=found.others
        )

    wanted = [one.value for key, one in world.policies.items() if one.value and only in {"", "/".join(key)}]
    await asyncio.gather(*map(add_workload, wanted))
    world.problems += [section] * bool(section.findings)
    return world


async def _read_objects(world: World, cluster: Cluster, namespaces: Sequence[str]) -> None:
    for listed in await cluster.policies(namespaces):
        fault = [Fault("", None, listed.fault)] if listed.fault else []
        world.policies[listed.namespace, listed.name] = Read(listed.policy, faults=fault, status=listed.status)
    for hpa in await cluster.hpas(namespaces):
        world.hpas[hpa.namespace, hpa.name] = Read(hpa)
    for kind, (_, api_version, plural) in RIVALS.items():
        with contextlib.suppress(Forbidden):  # a rival's HPA is found all the same
            for data in await cluster.objects(api_version, plural, namespaces):
                _add_rival(world, kind, data, None)


# --- files ---


def read_manifests(objects: Iterable[ManifestObject], given: Settings | None) -> World:
    """The world of files; the settings that are `given` replace those among the files."""
    objects, world = list(objects), World(is_live=False, settings=[given] if given is not None else [])
    for at in objects if given is None else ():
        _add_settings(world, at)
    tolerance = Fraction(world.settings[0].kubernetes.hpa_tolerance) if world.settings else DEFAULT_TOLERANCE
    for at in objects:
        key = (at.namespace, at.name)
        if (at.group, at.kind) == (GROUP, KIND):
            _put(world, world.policies, key, _parsed(at, parse_policy))
        elif (at.group, at.kind) == ("autoscaling", HPA_KIND):
            _put(world, world.hpas, key, _parsed(at, lambda data: parse_hpa(data, tolerance)))
        elif at.kind in RIVALS and at.group == RIVALS[at.kind][0]:
            _add_rival(world, at.kind, at.data, at)
        elif (workload := _workload(at)) is not None:
            world.workloads.setdefault((at.namespace, workload.reference.identity), workload)
    return world


def _put(world: World, into: dict[Name, Read[T]], key: Name, read: Read[T]) -> None:
    """Add an object. Of one that stands twice in the files, as in overlays, the second is read for its faults alone."""
    if into.setdefault(key, read) is not read and read.faults:
        section = Section(f"{'HPA' if read.at and read.at.kind == HPA_KIND else 'policy'} {key[0]}/{key[1]}")
        for fault in read.faults:
            section.error(str(fault), read.place(fault.path))
        world.problems.append(section)


def _parsed(at: ManifestObject, parse: Callable[[Mapping[str, Any]], T]) -> Read[T]:
    try:
        return Read(parse(at.data), at)
    except FaultyDocument as error:
        return Read(None, at, error.faults)


def _add_settings(world: World, at: ManifestObject) -> None:
    """Read the settings of an installation's ConfigMap: known by its name, or by its label and key."""
    data, labels = at.data.get("data"), at.metadata.get("labels")
    is_ours = at.name == "effective-load-settings" or (
        isinstance(labels, Mapping) and labels.get("app.kubernetes.io/name") == "effective-load"
    )
    text = data.get(_SETTINGS_KEY) if isinstance(data, Mapping) else None
    if at.kind != "ConfigMap" or not isinstance(text, str) or not is_ours:
        return
    try:
        world.settings.append(parse_settings(text))
    except SettingsError as error:
        section, place = Section(f"ConfigMap {at.namespace}/{at.name}"), at.place(f"data.{_SETTINGS_KEY}")
        for fault in error.faults:
            section.error(str(fault), place)
        world.problems.append(section)


def _add_rival(world: World, kind: str, data: Mapping[str, Any], at: ManifestObject | None) -> None:
    """Add a ScaledObject (of a Deployment unless it says otherwise) or a WatermarkPodAutoscaler."""
    metadata, spec = data.get("metadata"), data.get("spec")
    reference = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
    if isinstance(reference, Mapping) and isinstance(metadata, Mapping):
        target = CrossVersionReference(
            str(reference.get("apiVersion") or "apps/v1"),
            str(reference.get("kind") or "Deployment"),
            str(reference.get("name")),
        )
        namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name"))
        world.rivals.append(Rival(namespace=namespace, kind=kind, name=name, target=target.identity, at=at))


def _workload(at: ManifestObject) -> Workload | None:
    """The workload that an object is, with a pod as its template makes it; None for one without a template."""
    spec = at.data.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    inner = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping) or not isinstance(inner, Mapping) or not inner.get("containers"):
        return None
    given = template.get("metadata")
    labels = dict(given.get("labels") or {}) if isinstance(given, Mapping) else {}
    metadata = {"name": at.name, "namespace": at.namespace, "labels": labels}
    try:
        pod = PodDecoder()(msgspec.json.encode({"metadata": metadata, "spec": inner}))
        body = msgspec.json.encode({key: value for key, value in at.data.items() if key != "status"})
        scale = target_decoder(at.api_version, at.kind, BUILT_IN)(body).scale
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None
    selector = None
    with contextlib.suppress(SelectorError):
        selector = parse_selector(scale.selector) if scale is not None and scale.selector else None
    reference = CrossVersionReference(at.api_version, at.kind, at.name)
    return Workload(reference=reference, pods=(pod,), selector=selector, at=at)
