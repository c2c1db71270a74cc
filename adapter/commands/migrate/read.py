"""An original object field by field with the notes on it, and the draft that every source becomes.

The API server has admitted the objects, so their fields are trusted. A field of a wrong type refuses its object.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from adapter.load.quantity import NANO, QuantityError, nano_text, parse_quantity
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference
from adapter.runtime.faults import Fault

LONGEST_NAME = 63
MOST_SECONDS = 86_400
"""The longest time of a policy: a day."""
_ODD = re.compile(r"[^-a-z0-9_]+", re.ASCII)
_TRACKING = (
    "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "helm.sh/",
    "app.kubernetes.io/instance", "app.kubernetes.io/managed-by",
)  # fmt: skip
"""Labels by which Argo CD, Flux or Helm count an object to an application; they prune what is not in its source."""
_BY_SERVER = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers",
)  # fmt: skip
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class NoteKind(StrEnum):
    """What became of a field, in the order of the output."""

    TO_DO = "ToDo"
    LOST = "Lost"
    DIFFERS = "Differs"
    KEPT = "Kept"
    UNREAD = "Unread"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence on a field of the original; `field` is its path (empty: the whole object)."""

    kind: NoteKind
    field: str
    value: object
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {Fault(self.field, self.value, self.sentence)}"


class Refusal(Exception):  # noqa: N818  a result of the command, which goes on with the next object
    """An object that cannot be migrated; the text says why."""


class Fields:
    """A mapping of an original. What is read is taken out of a copy, so that what is left was not read."""

    def __init__(self, data: object, path: str, notes: list[Note]) -> None:
        if not isinstance(data, dict):
            raise Refusal(f"{path}: must be a mapping, as the API server admits it")
        self.path, self.notes = path, notes
        self._left, self._given = data, dict(data)

    @classmethod
    def of(cls, data: object) -> "Fields":
        """The fields of a whole object, which stays as it is. What YAML's aliases share is read once for each."""
        return cls(json.loads(json.dumps(data)), "", [])

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def __iter__(self) -> Iterator[str]:
        """Its keys."""
        return iter([key for key in self._given if isinstance(key, str)])

    def has(self, key: str) -> bool:
        """Whether a key that was not read yet has a value."""
        return self._left.get(key) not in (None, "", {}, [])

    def get(self, key: str) -> Any:
        """The value of a key, None where absent."""
        return self._left.pop(key, None)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """A text; a number or boolean without quotes is one, too. Raises Refusal."""
        value = self.get(key)
        if required and value in (None, ""):
            raise Refusal(f"{self.at(key)}: is required")
        text = default if value is None or value == "" else str(value)
        return text.lower() if isinstance(value, bool) else text

    def texts(self, key: str) -> dict[str, str]:
        """The texts of the mapping at a key. Raises Refusal."""
        section = self.section(key)
        return {name: section.text(name) for name in section}

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether a key is true."""
        return self.text(key, str(default)).lower() in {"true", "t", "1"}

    def whole(self, key: str, default: int = 0) -> int:
        """A whole number. Raises ValueError."""
        return int(self.text(key, str(default)))

    def quantity(self, key: str) -> Fraction | None:
        """A quantity in units, exactly; None where absent. Raises Refusal."""
        text = self.text(key)
        try:
            return parse_quantity(text) if text else None
        except QuantityError as error:
            raise Refusal(f"{self.at(key)}: {error}") from None

    def milli(self, key: str, whole: Callable[[Fraction], int] = math.ceil) -> Fraction | None:
        """A quantity in whole thousandths, rounded up as HPAs do, or as said; None where absent. Raises Refusal."""
        given = self.quantity(key)
        if given is None:
            return None
        milli = whole(given * 1000)
        if milli != given * 1000:
            self.differs(key, f"its controller rounds it to {milli}m, which is kept")
        return Fraction(milli, 1000)

    def section(self, key: str) -> "Fields":
        """The mapping at a key, an empty one where absent. Raises Refusal."""
        if self._left.get(key) is None:
            self._left[key] = {}
        return Fields(self._left[key], self.at(key), self.notes)

    def sections(self, key: str) -> Iterator["Fields"]:
        """The mappings of the list at a key. Raises Refusal."""
        for index, item in enumerate(self._left.get(key) or ()):
            yield Fields(item, f"{self.at(key)}[{index}]", self.notes)

    def note(self, kind: NoteKind, key: str, sentence: str, value: object = None) -> None:
        """Add a note on a key (empty: on the mapping itself), with this value or else that of the key."""
        self.notes.append(Note(kind, self.at(key), value or self._given.get(key), sentence))

    def differs(self, key: str, sentence: str, value: object = None) -> None:
        """Note what works differently."""
        self.note(NoteKind.DIFFERS, key, sentence, value)

    def name_unread(self, where: str = "") -> None:
        """Add one note that names every key that was not read."""
        if unread := ", ".join(_leaves(self._left, self.path)):
            self.note(NoteKind.UNREAD, "", f"{where}these fields were not read: {unread}")


def _leaves(data: object, path: str) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, dict) for item in data):
        for index, item in enumerate(data):
            yield from _leaves(item, f"{path}[{index}]")
    elif data not in (None, []):
        yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One metric of the policy, a `resource` or a `query` to a `server` of the settings; values are in units.

    `values`: a `target`, or watermarks. `total`: the target is for the whole service. `by_pod`: a query with one value
    a pod. `path` is its place in the original.
    """

    name: str
    path: str
    resource: Mapping[str, Any] | None = None
    query: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Fraction]
    total: bool = False
    by_pod: bool = False

    @property
    def is_ratio(self) -> bool:
        """Whether its values are shares of a request."""
        return self.resource is not None and "relativeTo" in self.resource

    def shown(self, value: Fraction) -> str:
        """A value of this metric as a policy has it."""
        percent = value * 100
        return f"{percent}%" if self.is_ratio and percent.denominator == 1 else quantity(value)


@dataclass(slots=True, kw_only=True)
class Draft:
    """What was read of an original. `spec` holds further fields of the policy.

    `behavior`: the HPA's (None: as the policy needs it). `kept`: metrics that stay in the HPA. `reasons`: why
    others are not among the goals. `sleeps`: the target may stand at 0.
    """

    kind: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    target: CrossVersionReference
    minimum: int
    maximum: int
    notes: list[Note]
    goals: list[Goal] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    behavior: dict[str, Any] | None = None
    tolerance: Fraction = DEFAULT_TOLERANCE
    kept: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    sleeps: bool = False

    def note(self, kind: NoteKind, sentence: str, path: str = "", value: object = None) -> None:
        """Add a note on a field of the original, or on the whole object."""
        self.notes.append(Note(kind, path, value, sentence))

    def free_name(self, wanted: str) -> str:
        """A name that the policy's next metric may have, close to the wanted one."""
        used = {"pods", *(goal.name for goal in self.goals)}
        plain = _ODD.sub("_", wanted.lower()).strip("-_")[: LONGEST_NAME - 4].strip("-_") or "metric"
        numbered = (f"{plain}-{number}" for number in range(2, len(used) + 3))
        return next(name for name in (plain, *numbered) if name not in used)


def read_draft(
    root: Fields, least: str, most: str, defaults: tuple[int, int] = (1, 0), known: tuple[str, ...] = ()
) -> Draft:
    """What all originals have: metadata, target and the bounds at the keys `least` and `most`. Raises Refusal.

    One note names the annotations that do not begin as one that is `known`.
    """
    kind, metadata, spec = root.text("kind"), root.section("metadata"), root.section("spec")
    for fields, key in [(root, "apiVersion"), (root, "status"), *((metadata, key) for key in _BY_SERVER)]:
        fields.get(key)
    labels, annotations = metadata.texts("labels"), metadata.texts("annotations")
    if tracked := [label for label in labels if label.startswith(_TRACKING)]:
        sentence = "are left out: the tool that tracks objects by them would delete the new ones"
        root.differs("", f"metadata.labels: {', '.join(tracked)} {sentence}")
    if others := sorted(key for key in annotations if not key.startswith((_APPLIED, *known))):
        root.note(NoteKind.LOST, "", f"metadata.annotations: {', '.join(others)} are left out; add what a tool needs")
    if owners := ", ".join(f"{one.text('kind')} {one.text('name')}" for one in metadata.sections("ownerReferences")):
        root.note(NoteKind.TO_DO, "", f"metadata.ownerReferences: {owners} writes the object again; change it there")
    metadata.get("ownerReferences")
    reference = spec.section("scaleTargetRef")
    target = (reference.text("apiVersion", "apps/v1"), reference.text("kind", "Deployment"))  # as KEDA reads it
    minimum, maximum = spec.whole(least, defaults[0]), spec.whole(most, defaults[1])
    if maximum < max(1, minimum):
        raise Refusal(f"{spec.at(most)}: {maximum} must be at least 1 and at least {least} ({minimum})")
    return Draft(
        kind=kind,
        name=metadata.text("name", required=True),
        namespace=metadata.text("namespace"),
        labels={label: value for label, value in labels.items() if label not in tracked},
        annotations=annotations,
        target=CrossVersionReference(*target, reference.text("name", required=True)),
        minimum=minimum,
        maximum=maximum,
        notes=root.notes,
    )


def quantity(value: Fraction) -> str:
    """A value in units as a canonical quantity, rounded down to nano-units."""
    return nano_text(math.floor(value * NANO))
