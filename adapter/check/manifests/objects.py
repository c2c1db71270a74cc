"""The policies, HPAs, workloads and settings among the objects of a folder, each read as the adapter reads it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

import msgspec

from adapter.check.manifests.files import Located
from adapter.check.report import Place, ReportSection, SubjectKind
from adapter.kube.pods import PodDecoder
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
from adapter.kube.targets import BUILT_IN, target_decoder
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.hpa_manifest import HPA_KIND
from adapter.policy.watermark_policy import GROUP, KIND, parse_policy
from adapter.runtime.document_lines import DocumentLines
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.settings import Settings, SettingsError, parse_settings

T = TypeVar("T")

SETTINGS_KEY = "settings.yaml"
"""The key of the ConfigMap that holds the settings file."""
_APP_LABEL, _APP = "app.kubernetes.io/name", "effective-load"
_SETTINGS_NAME = "effective-load-settings"
_HPA_FIELDS = {
    "spec": ("scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior", "targetCPUUtilizationPercentage"),
    "spec.behavior": ("scaleUp", "scaleDown"),
    "spec.behavior.scaleUp": ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"),
    "spec.behavior.scaleDown": ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"),
}


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """An object as it was read, and where it is."""

    at: Located
    read: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What scales: its pods' template as a pod, and its selector. `selector` is None where it has none."""

    namespace: str
    reference: CrossVersionReference
    pod: Pod
    selector: LabelSelector | None = None


@dataclass(slots=True, kw_only=True)
class Objects:
    """The objects that can be read; `faulty` are the (namespace, name) of policies that are not valid."""

    policies: list[Known[Policy]] = field(default_factory=list)
    hpas: list[Known[Hpa]] = field(default_factory=list)
    workloads: list[Known[Workload]] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    faulty: dict[tuple[str, str], str] = field(default_factory=dict)
    has_faulty_settings: bool = False


def section_of(at: Located) -> ReportSection:
    """A section for one object."""
    names = {KIND: ("policy", SubjectKind.POLICY), HPA_KIND: ("HPA", SubjectKind.HPA)}
    word, kind = names.get(at.kind, (at.kind, None))
    return ReportSection(f"{word} {namespace_of(at)}/{at.name} ({at.file})", kind)


def namespace_of(at: Located) -> str:
    """The object's namespace; `default` where the file leaves that to kubectl."""
    metadata = at.data.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    return namespace if isinstance(namespace, str) and namespace else "default"


def read_objects(located: Sequence[Located], settings: Settings | None, sections: dict[str, ReportSection]) -> Objects:
    """Read every object; the faults go into the sections, which are made as they are needed.

    `settings` take the place of those among the objects.
    """
    objects = Objects(settings=[settings] if settings is not None else [])
    for at in located if settings is None else ():
        if _is_settings(at):
            _settings(at, objects, sections)
    tolerance = Fraction(objects.settings[0].kubernetes.hpa_tolerance) if objects.settings else DEFAULT_TOLERANCE
    for at in located:
        if at.patch:
            continue
        if (at.group, at.kind) == (GROUP, KIND):
            policy = _read(at, parse_policy, sections)
            if policy is None:
                objects.faulty[namespace_of(at), at.name] = f"it is not valid (see {at.place()})"
            else:
                objects.policies.append(Known(at, policy))
        elif (at.group, at.kind) == ("autoscaling", HPA_KIND):
            _hpa(at, objects, tolerance, sections)
        elif (workload := _workload(at)) is not None:
            objects.workloads.append(Known(at, workload))
    return objects


def section_for(at: Located, sections: dict[str, ReportSection]) -> ReportSection:
    """The section of an object, made where there is none yet."""
    made = section_of(at)
    return sections.setdefault(f"{made.about}#{at.document}#{at.prefix}", made)


def _read(at: Located, reader: Callable[[Mapping[str, Any]], T], sections: dict[str, ReportSection]) -> T | None:
    section = section_for(at, sections)
    try:
        return reader(at.data)
    except FaultyDocument as error:
        for fault in error.faults:
            section.wrong(_sentence(fault), place=at.place(fault.path))
        return None


def _sentence(fault: Fault) -> str:
    """The fault without its path, which its place has."""
    return str(Fault("", fault.value, fault.advice))


def _hpa(at: Located, objects: Objects, tolerance: Fraction, sections: dict[str, ReportSection]) -> None:
    hpa = _read(at, lambda data: parse_hpa(data, tolerance), sections)
    if hpa is None:
        return
    for path, sentence in _unknown(at.data):
        section_for(at, sections).wrong(sentence, place=at.place(path))
    objects.hpas.append(Known(at, hpa))


def _unknown(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of an HPA that the API server would drop: their path, and a sentence."""
    for path, known in _HPA_FIELDS.items():
        inner: object = data
        for key in path.split("."):
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        for key in inner if isinstance(inner, Mapping) else ():
            if key not in known:
                names = ", ".join(one for one in known if one != "targetCPUUtilizationPercentage")
                yield f"{path}.{key}", f"is no field of an HPA{closest(str(key), known)}; there are {names}"


def _workload(at: Located) -> Workload | None:
    """The workload; None for an object without a template of pods."""
    spec = at.data.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    inner = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("containers"), list) or not at.name:
        return None
    metadata = {"name": at.name, "namespace": namespace_of(at), "labels": _labels(template)}
    version = str(at.data.get("apiVersion"))
    try:
        pod = PodDecoder()(msgspec.json.encode({"metadata": metadata, "spec": inner}))
        scale = target_decoder(version, at.kind, BUILT_IN)(msgspec.json.encode(_without_status(at.data))).scale
    except (msgspec.MsgspecError, TypeError):
        return None
    selector = None
    with contextlib.suppress(SelectorError):
        selector = parse_selector(scale.selector) if scale is not None and scale.selector else None
    reference = CrossVersionReference(version, at.kind, at.name)
    return Workload(namespace=namespace_of(at), reference=reference, pod=pod, selector=selector)


def _labels(template: object) -> Mapping[str, str]:
    metadata = template.get("metadata") if isinstance(template, Mapping) else None
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return {key: one for key, one in labels.items() if isinstance(one, str)} if isinstance(labels, Mapping) else {}


def _without_status(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "status"}


def _is_settings(at: Located) -> bool:
    """Whether it is the ConfigMap of an installation: by its name or label, and the key of the settings."""
    data = at.data.get("data")
    if at.kind != "ConfigMap" or not isinstance(data, Mapping) or not isinstance(data.get(SETTINGS_KEY), str):
        return False
    metadata = at.data.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return at.name == _SETTINGS_NAME or (isinstance(labels, Mapping) and labels.get(_APP_LABEL) == _APP)


def _settings(at: Located, objects: Objects, sections: dict[str, ReportSection]) -> None:
    text = at.data["data"][SETTINGS_KEY]
    section = section_for(at, sections)
    try:
        objects.settings.append(parse_settings(text))
    except SettingsError as error:
        objects.has_faulty_settings = True
        for fault in error.faults:
            section.wrong(_sentence(fault), place=_place_in_text(at, text, fault.path))
    else:
        section.ok("the settings are valid")


def _place_in_text(at: Located, text: str, path: str) -> Place:
    """The place of a field of the settings: its line in the file that holds their ConfigMap."""
    outer = f"data.{SETTINGS_KEY}"
    whole = ".".join(filter(None, (at.prefix, outer)))
    before, inner = at.lines.block_start(at.document, whole), DocumentLines(text).line(0, path)
    line = before + inner if before is not None and inner is not None else at.place(outer).line
    return Place(file=at.file, line=line, field=f"data[{SETTINGS_KEY}]: {path}".rstrip(": "))
