"""What a check is about: policies, HPAs, workloads and rivals, filled from a cluster or from files."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

from adapter.commands.check.report import Finding, error, skipped
from adapter.commands.cluster import list_objects, reason
from adapter.commands.files import ManifestObject, Place, template_pod
from adapter.kube.api import HPAS, WATERMARK_POLICIES, GroupVersionResource
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.session import Session
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
Target = tuple[str, CrossVersionReference]
"""Namespace and identity."""

HPA_KIND = "HorizontalPodAutoscaler"
RIVALS = {
    ("keda.sh", "ScaledObject"): GroupVersionResource("keda.sh/v1alpha1", "scaledobjects"),
    ("datadoghq.com", "WatermarkPodAutoscaler"): GroupVersionResource(
        "datadoghq.com/v1alpha1", "watermarkpodautoscalers"
    ),
}
"""Other autoscalers of the same target, by group and kind."""
_HPA = ("autoscaling", HPA_KIND)
_SETTINGS_KEY = "settings.yaml"


@dataclass(slots=True)
class Read(Generic[T]):
    """An object as the adapter reads it; `value` is None where it is faulty."""

    about: str
    at: ManifestObject
    value: T | None = None
    faults: Sequence[Fault] = ()

    def place(self, path: str = "") -> Place | None:
        """The place of a field, where the object is in a file."""
        return self.at.place(path) if self.at.file else None

    def findings(self) -> list[Finding]:
        """Why it is not valid; the path is part of the place where there is a file."""
        if not self.at.file:
            return [error(self.about, f"it is not valid: {fault}") for fault in self.faults]
        return [
            error(self.about, str(Fault("", one.value, one.advice)), place=self.at.place(one.path))
            for one in self.faults
        ]


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that is checked. `findings` are about what could not be read.

    `only`: the policy (NAMESPACE/NAME) that alone is checked; empty: all. `settings`: those that may apply; of several
    none is known to. `workloads`: those of files, each with a pod as its template makes it. `rivals`: other
    autoscalers. `unread`: the kinds that cannot be read.
    """

    is_live: bool
    only: str = ""
    has_tolerance: bool | None = None
    settings: list[Settings] = field(default_factory=list)
    policies: dict[Name, Read[Policy]] = field(default_factory=dict)
    hpas: dict[Name, Read[Hpa]] = field(default_factory=dict)
    workloads: dict[Target, tuple[ManifestObject, Pod]] = field(default_factory=dict)
    rivals: dict[Target, list[ManifestObject]] = field(default_factory=lambda: defaultdict(list))
    findings: list[Finding] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)

    @property
    def wanted(self) -> list[Read[Policy]]:
        """The policies to check."""
        return [read for key, read in self.policies.items() if self.only in {"", "/".join(key)}]

    @property
    def valid(self) -> list[tuple[Read[Policy], Policy]]:
        """Those of them that can be read."""
        return [(read, read.value) for read in self.wanted if read.value is not None]

    def followers(self, hpa: Read[Hpa]) -> list[tuple[Read[Policy], Policy]]:
        """The checked policies that an HPA belongs to."""
        return [(read, policy) for read, policy in self.valid if self.hpa_of(policy) is hpa]

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

    def add(self, at: ManifestObject) -> None:
        """Read an object of any kind; others than those of a check are passed over."""
        kind = (at.group, at.kind)
        if kind == (GROUP, KIND):
            self._put(self.policies, at, "policy", parse_policy)
        elif kind == _HPA:
            ratio = Fraction(self.settings[0].kubernetes.hpa_tolerance) if self.settings else DEFAULT_TOLERANCE
            self._put(self.hpas, at, "HPA", lambda data: parse_hpa(data, ratio))
        elif kind in RIVALS:
            reference = mapping_at(at.data, "spec", "scaleTargetRef")
            version, of_kind = reference.get("apiVersion") or "apps/v1", reference.get("kind") or "Deployment"
            target = CrossVersionReference(str(version), str(of_kind), str(reference.get("name")))
            self.rivals[at.namespace, target.identity].append(at)
        elif not self.is_live and (pod := template_pod(at)) is not None:
            target = CrossVersionReference(at.api_version, at.kind, at.name)
            self.workloads.setdefault((at.namespace, target.identity), (at, pod))

    def _put(
        self, into: dict[Name, Read[T]], at: ManifestObject, what: str, parse: Callable[[Mapping[str, Any]], T]
    ) -> None:
        """Add an object. Of one that stands twice in files, as in overlays, the second is read for its faults alone."""
        read: Read[T] = Read(f"{what} {at.namespace}/{at.name}", at)
        try:
            read.value = parse(at.data)
        except FaultyDocument as faulty:
            read.faults = faulty.faults
        if into.setdefault((at.namespace, at.name), read) is not read:
            self.findings += read.findings()


async def fill_from_cluster(world: World, session: Session, namespaces: Sequence[str]) -> None:
    """Add the objects of these namespaces (empty: of all), or those of the namespace of the only policy."""
    namespace, _, name = world.only.partition("/")
    for (group, kind), resource in {(GROUP, KIND): WATERMARK_POLICIES, _HPA: HPAS, **RIVALS}.items():
        try:
            for data in await list_objects(session, resource, [namespace] if namespace else namespaces):
                world.add(ManifestObject(data={**data, "apiVersion": resource.api_version, "kind": kind}, file=""))
        except KubeError as fault:
            world.unread.add(kind)
            if isinstance(fault, NotFound) and kind == KIND:
                remedy = "apply the definition (kubectl apply -k manifests/crd)"
                world.findings.append(error("cluster", "the API server has no WatermarkPolicy", remedy))
            elif isinstance(fault, Forbidden | NotFound):  # a rival's HPA is found all the same
                found = [skipped("cluster", f"{resource.plural}, for {reason(fault)}")]
                world.findings += found if (group, kind) not in RIVALS else []
            else:
                world.findings.append(error("cluster", f"{resource.plural} cannot be read: {fault}"))
    if name and KIND not in world.unread and (namespace, name) not in world.policies:
        world.findings.append(error("cluster", f"there is no WatermarkPolicy {name} in namespace {namespace}"))


def read_manifests(objects: Iterable[ManifestObject], given: Settings | None) -> World:
    """The world of files; the settings that are `given` replace those among the files."""
    objects, world = list(objects), World(is_live=False, settings=[given] if given is not None else [])
    for at in objects if given is None else ():
        _add_settings(world, at)
    for at in objects:
        world.add(at)
    return world


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
