"""Reads the policies, HPAs, workloads and settings of files, each as the adapter reads it, with its place."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
import yaml

from adapter.commands.check.report import Place, ReportSection, SubjectKind
from adapter.kube.pods import PodDecoder
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
from adapter.kube.targets import BUILT_IN, target_decoder
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.behavior import HPA_KIND
from adapter.policy.field_reader import UnparsedObject, listed_objects, mapping_at
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.watermark_policy import GROUP, KIND, parse_policy
from adapter.runtime import document_text
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

_HEAD = ("apiVersion", "kind", "metadata")
_SUFFIXES = {".yaml", ".yml", ".json"}

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_INDEX = re.compile(r"\[([0-9]+)\]")
_BLOCK = ("|", ">")


class DocumentLines:
    """The lines of one text, by the number of the document and the field's path (`spec.metrics[0].name`)."""

    def __init__(self, text: str) -> None:
        self._text = text

    def line(self, document: int, path: str) -> int | None:
        """The line (from 1) of a field, or of its nearest parent that is there; None where the text has no lines."""
        nodes = list(self._nodes(document, path))
        return nodes[-1].start_mark.line + 1 if nodes else None

    def block_start(self, document: int, path: str) -> int | None:
        """The line before the first one of a block of text (`|`); None where the field is no such block."""
        nodes = list(self._nodes(document, path))
        if not nodes or not isinstance(nodes[-1], yaml.ScalarNode) or nodes[-1].style not in _BLOCK:
            return None
        return int(nodes[-1].start_mark.line) + 1

    @cached_property
    def _roots(self) -> list[yaml.Node]:
        try:
            found = list(yaml.compose_all(self._text, Loader=_Loader))
        except (yaml.YAMLError, RecursionError):  # JSON that is no YAML
            return []
        return [root for root in found if root is not None and root.tag != _NULL]

    def _nodes(self, document: int, path: str) -> Iterator[yaml.Node]:
        """The nodes on the way to a field, as far as they exist: of a mapping its keys, then the value."""
        if document >= len(self._roots):
            return
        node = self._roots[document]
        yield node
        while path:
            entries: list[tuple[str, yaml.Node, yaml.Node]] = []
            if isinstance(node, yaml.SequenceNode) and (index := _INDEX.match(path)):
                entries = [(index[0], item, item) for item in node.value[int(index[1]) :][:1]]
            elif isinstance(node, yaml.MappingNode):  # whose keys may have dots
                entries = [
                    (key, label, value)
                    for label, value in node.value
                    for key in (str(label.value), f"[{label.value}]")
                    if key and path.startswith(key) and path[len(key) :][:1] in {"", ".", "["}
                ]
            if not entries:
                return
            key, label, node = max(entries, key=lambda entry: len(entry[0]))
            path = path[len(key) :].removeprefix(".")
            yield label
        if isinstance(node, yaml.ScalarNode) and node.style in _BLOCK:
            yield node


@dataclass(frozen=True, slots=True, kw_only=True)
class Located(UnparsedObject):
    """An object and where it is. `prefix` is its place in a List (`items[2]`)."""

    file: str
    document: int
    lines: DocumentLines = field(repr=False, compare=False)
    prefix: str = ""

    @property
    def name(self) -> str:
        """Its name; empty without one."""
        name = self.metadata.get("name")
        return name if isinstance(name, str) else ""

    @property
    def namespace(self) -> str:
        """Its namespace; `default` where the file leaves that to kubectl."""
        namespace = self.metadata.get("namespace")
        return namespace if isinstance(namespace, str) and namespace else "default"

    def place(self, path: str = "") -> Place:
        """The place of one of its fields."""
        whole = ".".join(filter(None, (self.prefix, path)))
        return Place(file=self.file, line=self.lines.line(self.document, whole), field=path)


def read_folder(folder: str) -> tuple[list[Located], list[ReportSection]]:
    """The objects of a folder (or of one file), and a section for each file that cannot be read.

    Raises FaultyDocument.
    """
    root = Path(folder)
    if not root.exists():
        raise FaultyDocument([Fault("--manifests", folder, "does not exist; name a folder or a file")])
    files = [root]
    if root.is_dir():
        files = []
        for inner, names, found in os.walk(root):
            names[:] = [name for name in names if not name.startswith(".")]
            files += [Path(inner, name) for name in found if Path(name).suffix.lower() in _SUFFIXES]
    located: list[Located] = []
    sections: list[ReportSection] = []
    for file in sorted(files):
        section = ReportSection(f"file {file}", SubjectKind.FILE)
        try:
            located += _objects(str(file), file.read_text(encoding="utf-8"), section)
        except (OSError, UnicodeDecodeError) as error:
            section.skipped(f"it cannot be read: {error}", place=Place(file=str(file)))
        if section.findings:
            sections.append(section)
    return located, sections


def read_stream(text: str) -> tuple[list[Located], list[ReportSection]]:
    """As `read_folder`, of one text from standard input."""
    section = ReportSection("file -", SubjectKind.FILE)
    located = list(_objects("-", text, section))
    return located, [section] if section.findings else []


def _objects(file: str, text: str, section: ReportSection) -> Iterator[Located]:
    """The objects of one text; what hides them is a finding of the section."""
    lines = DocumentLines(text)
    try:
        documents = document_text.read_documents(text)
    except document_text.TextError as error:
        for fault in error.faults:
            if error.document is None:
                section.wrong(str(fault), place=Place(file=file))
                continue
            path = fault.path.removeprefix(f"[{error.document}]").removeprefix(".")
            place = Place(file=file, line=lines.line(error.document, path), field=path)
            section.wrong(_sentence(fault), place=place)
        return
    for number, document in enumerate(documents):
        for prefix, data in listed_objects(document):
            if not isinstance(data, Mapping) or data.keys().isdisjoint(_HEAD):  # of another tool
                continue
            located = Located(data=data, file=file, document=number, lines=lines, prefix=prefix)
            lack = "apiVersion" if "apiVersion" not in data else "kind" if "kind" not in data else ""
            if lack and isinstance(data.get("metadata"), Mapping):  # what has no metadata is no object
                section.wrong(f"has no {lack}, so the API server refuses it", place=located.place())
            yield located


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """An object as it was read, and where it is."""

    at: Located
    value: T


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWorkload:
    """What scales: its pods' template as a pod, and its selector. `selector` is None where it has none."""

    namespace: str
    reference: CrossVersionReference
    pod: Pod
    selector: LabelSelector | None = None

    @classmethod
    def of(cls, at: Located) -> Self | None:
        """The workload that an object is; None for one without a template of pods."""
        template = mapping_at(at.data, "spec", "template")
        inner = mapping_at(template, "spec")
        if not isinstance(inner.get("containers"), list) or not at.name:
            return None
        labels = {key: one for key, one in mapping_at(template, "metadata", "labels").items() if isinstance(one, str)}
        metadata = {"name": at.name, "namespace": at.namespace, "labels": labels}
        version = str(at.data.get("apiVersion"))
        try:
            pod = PodDecoder()(msgspec.json.encode({"metadata": metadata, "spec": inner}))
            without_status = {key: value for key, value in at.data.items() if key != "status"}
            scale = target_decoder(version, at.kind, BUILT_IN)(msgspec.json.encode(without_status)).scale
        except (msgspec.MsgspecError, TypeError):
            return None
        selector = None
        with contextlib.suppress(SelectorError):
            selector = parse_selector(scale.selector) if scale is not None and scale.selector else None
        reference = CrossVersionReference(version, at.kind, at.name)
        return cls(namespace=at.namespace, reference=reference, pod=pod, selector=selector)


@dataclass(slots=True, kw_only=True)
class Objects:
    """The objects that can be read; `faulty` are the (namespace, name) of policies that are not valid.

    `sections` has the findings about each object, by the object's place.
    """

    policies: list[Parsed[Policy]] = field(default_factory=list)
    hpas: list[Parsed[Hpa]] = field(default_factory=list)
    workloads: list[Parsed[DeclaredWorkload]] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    faulty: dict[tuple[str, str], str] = field(default_factory=dict)
    has_faulty_settings: bool = False
    sections: dict[str, ReportSection] = field(default_factory=dict)

    def section(self, at: Located) -> ReportSection:
        """The section of an object, made where there is none yet."""
        names = {KIND: ("policy", SubjectKind.POLICY), HPA_KIND: ("HPA", SubjectKind.HPA)}
        word, kind = names.get(at.kind, (at.kind, None))
        made = ReportSection(f"{word} {at.namespace}/{at.name} ({at.file})", kind)
        return self.sections.setdefault(f"{made.about}#{at.document}#{at.prefix}", made)

    def parsed(self, at: Located, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        """The object as `parse` reads it; None where it is faulty, with its faults in its section."""
        section = self.section(at)
        try:
            return parse(at.data)
        except FaultyDocument as error:
            for fault in error.faults:
                section.wrong(_sentence(fault), place=at.place(fault.path))
            return None


def read_objects(located: Sequence[Located], settings: Settings | None) -> Objects:
    """Read every object; `settings` take the place of those among the objects."""
    objects = Objects(settings=[settings] if settings is not None else [])
    for at in located if settings is None else ():
        _add_settings(at, objects)
    tolerance = Fraction(objects.settings[0].kubernetes.hpa_tolerance) if objects.settings else DEFAULT_TOLERANCE
    for at in located:
        if (at.group, at.kind) == (GROUP, KIND):
            policy = objects.parsed(at, parse_policy)
            if policy is None:
                objects.faulty[at.namespace, at.name] = f"it is not valid (see {at.place()})"
            else:
                objects.policies.append(Parsed(at, policy))
        elif (at.group, at.kind) == ("autoscaling", HPA_KIND):
            _add_hpa(at, objects, tolerance)
        elif (workload := DeclaredWorkload.of(at)) is not None:
            objects.workloads.append(Parsed(at, workload))
    return objects


def _sentence(fault: Fault) -> str:
    """The fault without its path, which its place has."""
    return str(Fault("", fault.value, fault.advice))


def _add_hpa(at: Located, objects: Objects, tolerance: Fraction) -> None:
    hpa = objects.parsed(at, lambda data: parse_hpa(data, tolerance))
    if hpa is None:
        return
    section = objects.section(at)
    if hpa.desired_metrics and at.data.get("apiVersion") != "autoscaling/v2":
        text = "v1 has no metrics, and v2beta1 and v2beta2 ended with Kubernetes 1.25; write autoscaling/v2"
        section.wrong(text, place=at.place("apiVersion"))
    for path, known in _HPA_FIELDS.items():
        names = ", ".join(name for name in known if name != "targetCPUUtilizationPercentage")
        for key in mapping_at(at.data, *path.split(".")):
            if key not in known:  # the API server would drop it
                text = f"is no field of an HPA{closest(str(key), known)}; there are {names}"
                section.wrong(text, place=at.place(f"{path}.{key}"))
    objects.hpas.append(Parsed(at, hpa))


def _add_settings(at: Located, objects: Objects) -> None:
    """Read the settings of an installation's ConfigMap: known by its name or label, and the key of the settings."""
    text = mapping_at(at.data, "data").get(SETTINGS_KEY)
    is_ours = at.name == _SETTINGS_NAME or mapping_at(at.metadata, "labels").get(_APP_LABEL) == _APP
    if at.kind != "ConfigMap" or not isinstance(text, str) or not is_ours:
        return
    section = objects.section(at)
    try:
        objects.settings.append(parse_settings(text))
    except SettingsError as error:
        objects.has_faulty_settings = True
        outer = f"data.{SETTINGS_KEY}"
        before = at.lines.block_start(at.document, ".".join(filter(None, (at.prefix, outer))))
        for fault in error.faults:
            inner = DocumentLines(text).line(0, fault.path)
            line = before + inner if before is not None and inner is not None else at.place(outer).line
            path = f"data[{SETTINGS_KEY}]: {fault.path}".rstrip(": ")
            section.wrong(_sentence(fault), place=Place(file=at.file, line=line, field=path))
    else:
        section.ok("the settings are valid")
