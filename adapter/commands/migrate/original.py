"""Reads an original object field by field, so that none goes unsaid, with its metadata and its documents."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol, Self

from adapter.commands.migrate.field_reader import FieldReader, UnparsedObject, listed_objects
from adapter.load.quantity import NANO, QuantityError, nano_text, parse_quantity
from adapter.policy.documents import MAX_NAME_LENGTH
from adapter.policy.hpa import CrossVersionReference
from adapter.policy.watermark_policy import MOST_REPLICAS
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, first_faults

_WRITTEN_BY_TOOLS = ("kubectl.kubernetes.io/last-applied-configuration",)
_TITLE = "the objects cannot be migrated"


class NoteKind(StrEnum):
    """What became of a field."""

    DIFFERS = "Differs"
    """It was carried over, and works differently."""
    LOST = "Lost"
    """It has no equivalent."""
    KEPT = "Kept"
    """It stays in the HPA as it was."""
    TO_DO = "ToDo"
    """Somebody has to do something."""
    UNREAD = "Unread"
    """It was not read."""


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence on one field of the original: `field` is its path (empty: the whole object), with its value."""

    kind: NoteKind
    field: str
    value: object
    sentence: str

    def __str__(self) -> str:
        return printable(f"{self.kind.value}: {Fault(self.field, self.value, self.sentence)}")

    def data(self) -> dict[str, Any]:
        """The note as JSON data."""
        return {"kind": self.kind.value, "field": self.field, "value": _finite(self.value), "sentence": self.sentence}


def _finite(value: Any) -> Any:
    """The value with numbers that JSON does not have as texts."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def printable(text: str) -> str:
    """The text with everything that is no printable character escaped, so that it stays on one line."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class Notes:
    """Collects the notes on one object."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._known: set[tuple[NoteKind, str, str]] = set()
        self._unread: list[str] = []

    def add(self, kind: NoteKind, field: str, value: object, sentence: str) -> None:
        """Add a note, once."""
        if (kind, field, sentence) not in self._known:
            self._known.add((kind, field, sentence))
            self._notes.append(Note(kind, field, value, sentence))

    def add_unread(self, paths: Iterable[str]) -> None:
        """Add fields that were not read; one note names all of them."""
        self._unread += paths

    def all(self) -> tuple[Note, ...]:
        """The notes by kind: what to do first, then what is lost, what differs, what is kept, and what was not read."""
        order = (NoteKind.TO_DO, NoteKind.LOST, NoteKind.DIFFERS, NoteKind.KEPT, NoteKind.UNREAD)
        notes = [note for kind in order for note in self._notes if note.kind is kind]
        if self._unread:
            notes.append(Note(NoteKind.UNREAD, "", None, f"these fields have no effect: {', '.join(self._unread)}"))
        return tuple(notes)


class MigrationError(FaultyDocument):
    """The input cannot be migrated; `faults` lists every fault."""


class Fields(FieldReader):
    """A FieldReader of an original: beside faults it collects notes, and what it is not asked for it names."""

    def __init__(self, data: object, path: str, faults: list[Fault], notes: Notes) -> None:
        super().__init__(data, path, faults)
        self.notes = notes

    def section(self, key: str) -> "Fields":
        """The mapping at `key`, an empty one where absent."""
        return Fields(self.get(key), self.at(key), self.faults, self.notes)

    def sections(self, key: str, most: int) -> Iterator["Fields"]:
        """The mappings of the list at `key`."""
        for index, section in enumerate(self.sequence(key, most)):
            yield Fields({} if section is None else section, f"{self.at(key)}[{index}]", self.faults, self.notes)

    def note(self, kind: NoteKind, key: str, sentence: str) -> None:
        """Add a note on the value of `key` (empty: on the mapping itself)."""
        self.notes.add(kind, self.at(key) if key else self.path, self.get(key) if key else None, sentence)

    def lost(self, key: str, sentence: str) -> None:
        """Note a key that has a value as having no equivalent."""
        if self.has(key):
            self.note(NoteKind.LOST, key, sentence)
        self.get(key)

    def rest(self) -> None:
        """Note every key that was not read."""
        unread = (key for key, value in self._data.items() if key not in self._read and value is not None)
        self.notes.add_unread(self.at(str(key)) for key in unread)
        self._read |= self._data.keys()

    def quantity(self, key: str) -> Fraction | None:
        """A quantity, exactly, with its sign; None where absent or faulty. A number with a fraction is one, too."""
        value = self.get(key)
        if isinstance(value, float) and math.isfinite(value):
            self.note(NoteKind.DIFFERS, key, "is a number with a fraction; it is read as a quantity")
            return Fraction(repr(value))
        text = self.quantity_text(key)
        try:
            return parse_quantity(text) if text else None
        except QuantityError as error:
            self.fault(key, text, str(error))
            return None

    @property
    def data(self) -> Mapping[str, Any]:
        """The whole mapping, for a note on all of it."""
        return self._data


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(UnparsedObject):
    """One object of the input, with the place that faults name: the file, and its number where there are several."""

    place: str

    @property
    def full_name(self) -> str:
        """Its namespace and name, as far as it has them, for people."""
        values = (self.metadata.get(key) for key in ("namespace", "name"))
        return "/".join(str(value)[:MAX_NAME_LENGTH] for value in values if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIdentity:
    """The metadata that the migrated objects share with the original. `namespace` is empty where it names none."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of a new object of this name."""
        namespace = {"namespace": self.namespace} if self.namespace else {}
        return {"name": name, **namespace, **({"labels": dict(self.labels)} if self.labels else {})}


def quantity(value: Fraction) -> str:
    """A value in units as a canonical quantity, rounded down to nano-units."""
    return nano_text(value * NANO)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedMetric:
    """A Pods, Object or External metric of an HPA: what its adapter has to find a query for.

    `labels` are the metric selector's matchLabels, `expressions` its matchExpressions; `described` is the Object's
    (apiVersion, kind, name).
    """

    kind: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    described: tuple[str, str, str] = ("", "", "")

    @classmethod
    def read(cls, kind: str, source: Fields) -> Self:
        """The metric of a source of this kind."""
        identifier = source.section("metric")
        name = identifier.text("name", required="the metric's name")
        selector = identifier.section("selector")
        labels = selector.get("matchLabels")
        expressions = []
        for section in selector.sections("matchExpressions", 50):
            values = tuple(str(value) for value in section.sequence("values", 50) if isinstance(value, str))
            expressions.append((section.text("key", required="a label's name"), str(section.get("operator")), values))
            section.rest()
        texts = isinstance(labels, Mapping) and all(isinstance(value, str) for value in labels.values())
        if labels is not None and not texts:
            selector.fault("matchLabels", labels, "write a mapping of texts")
        selector.rest()
        identifier.rest()
        described = ("", "", "")
        if kind == "Object":
            reference = source.section("describedObject")
            described = (
                reference.optional_text("apiVersion"),
                reference.text("kind", required="the kind of the described object"),
                reference.text("name", required="the name of the described object"),
            )
            reference.rest()
        labels = dict(labels) if texts and isinstance(labels, Mapping) else {}
        return cls(kind=kind, name=name, labels=labels, expressions=tuple(expressions), described=described)

    def external(self, value: Fraction, *, average: bool) -> dict[str, Any]:
        """The External metric as an HPA has it, with this target."""
        selector: dict[str, Any] = {"matchLabels": dict(self.labels)} if self.labels else {}
        expressions = [
            {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
            for key, operator, values in self.expressions
        ]
        if expressions:
            selector["matchExpressions"] = expressions
        target = {"type": "Value", "value": quantity(value)}
        if average:
            target = {"type": "AverageValue", "averageValue": quantity(value)}
        return {"metric": {"name": self.name, **({"selector": selector} if selector else {})}, "target": target}


class Resolver(Protocol):
    """Finds the queries of an HPA's metrics by the configuration of the adapter that serves them."""

    def find(self, metric: SelectedMetric, fields: Fields) -> Mapping[str, Any] | str:
        """The query, as the source of a policy's metric, or a sentence why there is none."""

    def served_by(self) -> str:
        """The adapter that serves the metrics today; empty where no adapter's metrics are taken over."""
        return ""

    def close(self) -> None:
        """Note what no metric used."""
        return


def read_objects(texts: Sequence[tuple[str, str]]) -> list[Document]:
    """The objects of several texts, each with its file's name; lists are taken apart. Raises MigrationError."""
    objects: list[Document] = []
    faults: list[Fault] = []
    for file, text in texts:
        try:
            documents = document_text.read_documents(text)
        except document_text.TextError as error:
            faults += [fault.within(file, ": ") for fault in error.faults]
            continue
        for number, document in enumerate(documents):
            place = f"{file}[{number}]" if len(documents) > 1 else file
            for inner, data in listed_objects(document):
                where = f"{place}.{inner}" if inner else place
                if isinstance(data, Mapping):
                    objects.append(Document(place=where, data=data))
                else:
                    faults.append(Fault(where, data, "is no object; write apiVersion, kind, metadata and spec"))
    if not objects and not faults:
        faults.append(Fault("", None, "there is no object in the input"))
    if faults:
        raise MigrationError(first_faults(faults), _TITLE)
    return objects


def read_identity(root: Fields) -> ObjectIdentity:
    """Read `metadata`; annotations are left to the caller, who notes those that it does not know."""
    metadata = root.section("metadata")
    name = metadata.text("name", required="an object needs a name")
    namespace = metadata.text("namespace")
    labels = _texts(metadata, "labels")
    if metadata.has("ownerReferences"):
        metadata.note(NoteKind.TO_DO, "ownerReferences", "its owner writes the object again; change it there")
    annotations = _texts(metadata, "annotations")
    root.get("status")
    return ObjectIdentity(name=name, namespace=namespace, labels=labels, annotations=annotations)


def _texts(fields: Fields, key: str) -> dict[str, str]:
    mapping = fields.get(key)
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping) or not all(isinstance(value, str) for value in mapping.values()):
        fields.fault(key, mapping, "write a mapping of texts")
        return {}
    return dict(mapping)


def note_annotations(
    notes: Notes, annotations: Mapping[str, str], explanations: Mapping[str, tuple[NoteKind, str]] | None = None
) -> None:
    """Note annotations that the caller did not use; `explanations` says what those mean that the controller reads."""
    explained = explanations or {}
    for key, (kind, sentence) in explained.items():
        if key in annotations:
            notes.add(kind, f"metadata.annotations[{key}]", annotations[key], sentence)
    for key, value in annotations.items():
        if key not in explained and key not in _WRITTEN_BY_TOOLS:
            sentence = "is not carried over; add it to the new objects if a tool needs it"
            notes.add(NoteKind.LOST, f"metadata.annotations[{key}]", value, sentence)


KNOWN_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "DeploymentConfig": "apps.openshift.io/v1",
    "Rollout": "argoproj.io/v1alpha1",
}


def read_target(spec: Fields, default_kind: str = "") -> CrossVersionReference:
    """Read `scaleTargetRef`; an absent apiVersion is that of the well-known kind."""
    reference = spec.section("scaleTargetRef")
    kind = reference.text("kind", required="" if default_kind else "the kind of what is scaled") or default_kind
    name = reference.text("name", required="the name of what is scaled")
    version = reference.optional_text("apiVersion") or KNOWN_VERSIONS.get(kind, "")
    if kind and not version:
        reference.fault("apiVersion", None, f"is required: the API group and version of kind {kind}, such as apps/v1")
    elif kind and "/" not in version and KNOWN_VERSIONS.get(kind) != version:  # no HPA is accepted with that
        reference.fault("apiVersion", version, f"must have the API group of kind {kind}, such as apps/v1")
    reference.rest()
    return CrossVersionReference(version, kind, name)


def read_bounds(spec: Fields) -> tuple[int, int]:
    """Read the least and the most replicas. A least count of 0 is returned as 0."""
    minimum = spec.integer("minReplicas", 1, 0, MOST_REPLICAS)
    if not spec.has("maxReplicas"):
        spec.fault("maxReplicas", None, "is required: the most replicas")
    maximum = spec.integer("maxReplicas", max(minimum, 1), 1, MOST_REPLICAS)
    if minimum > maximum:
        spec.fault("minReplicas", minimum, f"must be at most maxReplicas ({maximum})")
    return minimum, maximum
