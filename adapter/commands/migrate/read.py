"""An original object field by field, with notes on what differs; a draft of what it becomes; PromQL of a policy.

The API server has admitted the objects, so their fields are trusted. A field of a wrong type refuses its object.
"""

import copy
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

import promql_parser as ast

from adapter.load.quantity import NANO, QuantityError, nano_text, parse_quantity
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import Fault
from adapter.usage.promql import PromqlError, parse_inputs, uses_variables

LONGEST_NAME = 63
MOST_SECONDS = 86_400
"""The longest time of a policy: a day."""
DEFAULT_TARGET = Fraction(1, 10)
_LONGEST_QUERY = 4096
_UNKNOWN_URL = "http://prometheus.monitoring.svc:9090"
_ODD = re.compile(r"[^-a-z0-9_]+", re.ASCII)
_TRACKING = (
    "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "helm.sh/",
    "app.kubernetes.io/instance", "app.kubernetes.io/managed-by",
)  # fmt: skip
"""Labels by which Argo CD, Flux or Helm count an object to an application; they prune what is not in its source."""
_WRITTEN_BY_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "DeploymentConfig": "apps.openshift.io/v1",
    "Rollout": "argoproj.io/v1alpha1",
}
_LABELLED = frozenset({"label_replace", "label_join", "absent", "absent_over_time", "info"})
"""Functions whose result may have other labels than their first argument."""


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

    def data(self) -> dict[str, Any]:
        """The note as JSON data."""
        return {"kind": self.kind.value, "field": self.field, "value": self.value, "sentence": self.sentence}


class Refusal(Exception):  # noqa: N818  a result of the command, which goes on with the next object
    """An object that cannot be migrated; the text says why."""


class Fields:
    """A mapping of an original. What is read is taken out of a copy, so that what is left was not read."""

    def __init__(self, data: object, path: str, notes: list[Note]) -> None:
        self.path = path
        self.notes = notes
        if not isinstance(data, dict):
            raise Refusal(f"{path}: must be a mapping, as the API server admits it")
        self._left = data

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Fields":
        """The fields of a whole object, which stays as it is."""
        return cls(copy.deepcopy(dict(data)), "", [])

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str) -> Any:
        """The value of a key, None where absent."""
        return self._left.pop(key, None)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """A text; a number or boolean without quotes is one, too. Raises Refusal."""
        value = self.get(key)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float) and value != "":
            return str(value)
        if required or value not in (None, ""):
            raise Refusal(f"{self.at(key)}: " + ("is required" if value in (None, "") else f"{value!r} is not a text"))
        return default

    def flag(self, key: str) -> bool:
        """Whether a key is true."""
        return self.text(key).lower() in {"true", "t", "1"}

    def whole(self, key: str, default: int) -> int:
        """A whole number. Raises Refusal."""
        text = self.text(key, str(default))
        if not re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII):
            raise Refusal(f"{self.at(key)}: {text[:60]!r} is not a whole number")
        return int(text)

    def quantity(self, key: str) -> Fraction | None:
        """A quantity in units, exactly; None where absent. Raises Refusal."""
        text = self.text(key)
        try:
            return parse_quantity(text) if text else None
        except QuantityError as error:
            raise Refusal(f"{self.at(key)}: {error}") from None

    def section(self, key: str) -> "Fields":
        """The mapping at a key, an empty one where absent. Raises Refusal."""
        if self._left.get(key) is None:
            self._left[key] = {}
        return Fields(self._left[key], self.at(key), self.notes)

    def sections(self, key: str) -> Iterator["Fields"]:
        """The mappings of the list at a key. Raises Refusal."""
        items = self._left.get(key)
        if not isinstance(items, list | None):
            raise Refusal(f"{self.at(key)}: must be a list")
        for index, item in enumerate(items or ()):
            yield Fields(item, f"{self.at(key)}[{index}]", self.notes)

    def has(self, key: str) -> bool:
        """Whether a key that was not read yet has a value."""
        return self._left.get(key) not in (None, "", {}, [])

    def note(self, kind: NoteKind, key: str, value: object, sentence: str) -> None:
        """Add a note on a key (empty: on the mapping itself)."""
        self.notes.append(Note(kind, self.at(key) if key else self.path, value, sentence))

    def lost(self, key: str, sentence: str) -> None:
        """Note a key that has a value as one without an equivalent."""
        if self.has(key):
            self.note(NoteKind.LOST, key, self.get(key), sentence)
        self.get(key)

    def name_unread(self) -> None:
        """Add one note that names every key that was not read."""
        if unread := list(_leaves(self._left, self.path)):
            named = ", ".join(unread)
            self.notes.append(Note(NoteKind.UNREAD, "", None, f"these fields were not read: {named}"))


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
    """One metric of the policy: its `resource` or `query`, and its values in units.

    Either a `target` of the HPA, or watermarks. `total`: the target is for the whole service. `by_pod`: a query with
    one value a pod.
    """

    name: str
    source: Mapping[str, Any]
    target: Fraction | None = None
    high: Fraction | None = None
    low: Fraction | None = None
    total: bool = False
    by_pod: bool = False
    path: str = ""

    @property
    def is_ratio(self) -> bool:
        """Whether its values are shares of a request."""
        return any("relativeTo" in source for source in self.source.values())

    @property
    def is_plain_cpu(self) -> bool:
        """Whether it is cpu in cores, where a policy also looks at the limits."""
        resource = self.source.get("resource", {})
        return resource.get("name") == "cpu" and not self.is_ratio

    def shown(self, value: Fraction) -> str:
        """A value of this metric as a policy has it."""
        percent = value * 100
        whole = self.is_ratio and percent.denominator == 1
        return f"{percent.numerator}%" if whole else quantity(value)


@dataclass(slots=True, kw_only=True)
class Draft:
    """What was read of an original. `spec` holds further fields of the policy.

    `behavior`: the HPA's (None: as the policy needs it). `kept`: metrics that stay in the HPA. `reasons`: why
    others are not among the goals.
    """

    kind: str
    name: str
    target: CrossVersionReference
    minimum: int
    maximum: int
    notes: list[Note]
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    behavior: dict[str, Any] | None = None
    tolerance: Fraction = DEFAULT_TARGET
    kept: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of a new object of this name."""
        namespace = {"namespace": self.namespace} if self.namespace else {}
        return {"name": name, **namespace, **({"labels": dict(self.labels)} if self.labels else {})}

    @property
    def where(self) -> str:
        """The option of kubectl that names the namespace, empty without one."""
        return f" -n {self.namespace}" if self.namespace else ""

    @property
    def policy_name(self) -> str:
        """The policy's name: the original's, cut where it is longer than a policy's may be."""
        if len(self.name) <= LONGEST_NAME:
            return self.name
        return f"{self.name[: LONGEST_NAME - 9].rstrip('-.')}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    def free_name(self, wanted: str) -> str:
        """A name that the policy's next metric may have, close to the wanted one."""
        used = {"pods", *(goal.name for goal in self.goals)}
        plain = _ODD.sub("_", wanted.lower()).strip("-_")[: LONGEST_NAME - 4].strip("-_") or "metric"
        numbered = (f"{plain}-{number}" for number in range(2, len(used) + 3))
        return next(name for name in (plain, *numbered) if name not in used)


def read_draft(root: Fields, bounds: tuple[str, str], defaults: tuple[int, int | None] = (1, None)) -> Draft:
    """What all originals have: metadata, target and bounds, which are at the keys `bounds`. Raises Refusal."""
    kind, metadata, spec = root.text("kind"), root.section("metadata"), root.section("spec")
    root.get("apiVersion"), root.get("status")
    name, namespace = metadata.text("name", required=True), metadata.text("namespace")
    labels = metadata.get("labels") or {}
    tracked = [label for label in labels if label.startswith(_TRACKING)]
    if tracked:
        metadata.note(
            NoteKind.DIFFERS, "labels", ", ".join(tracked),
            "are left out: the tool that counts objects by them would delete the new ones, which its source lacks",
        )  # fmt: skip
    if owners := metadata.get("ownerReferences"):
        owner = ", ".join(f"{one.get('kind')} {one.get('name')}" for one in owners)
        metadata.note(NoteKind.TO_DO, "ownerReferences", owner, "the owner writes the object again; change it there")
    for key in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers"):
        metadata.get(key)
    reference = spec.section("scaleTargetRef")
    target_kind = reference.text("kind", "Deployment")
    version = reference.text("apiVersion") or _VERSIONS.get(target_kind, "")
    if not version:
        raise Refusal(f"{reference.at('apiVersion')}: is required for kind {target_kind}")
    least, most = (spec.whole(key, default or 0) for key, default in zip(bounds, defaults, strict=True))
    if most < max(1, least):
        raise Refusal(f"{spec.at(bounds[1])}: {most} must be at least 1 and at least {bounds[0]} ({least})")
    return Draft(
        kind=kind,
        name=name,
        namespace=namespace,
        labels={label: value for label, value in labels.items() if label not in tracked},
        target=CrossVersionReference(version, target_kind, reference.text("name", required=True)),
        minimum=least,
        maximum=most,
        notes=root.notes,
    )


def read_annotations(root: Fields, known: Iterable[str] = ()) -> dict[str, str]:
    """The annotations; one note names those that are neither known nor kubectl's own."""
    metadata = root.section("metadata")
    annotations: dict[str, str] = metadata.get("annotations") or {}
    others = [key for key in annotations if key not in {*known, _WRITTEN_BY_KUBECTL}]
    if others:
        sentence = "are not carried over; add those that a tool needs to the new objects"
        metadata.note(NoteKind.LOST, "annotations", ", ".join(others), sentence)
    return annotations


def quantity(value: Fraction) -> str:
    """A value in units as a canonical quantity, rounded down to nano-units."""
    return nano_text(math.floor(value * NANO))


def rounded_up(fields: Fields, key: str, reader: str) -> Fraction | None:
    """A quantity in whole milli-units, rounded up as its reader does, with a note; None where absent."""
    given = fields.quantity(key)
    if given is None:
        return None
    milli = math.ceil(given * 1000)
    if milli != given * 1000:
        fields.note(NoteKind.DIFFERS, key, quantity(given), f"{reader} rounds it up to {milli}m, which is kept")
    return Fraction(milli, 1000)


# --- queries ---


class Servers:
    """Collects the Prometheus servers that the policies of one run need; equal ones are listed once."""

    def __init__(self, known: Mapping[str, dict[str, Any]] | None = None) -> None:
        self._servers = dict(known or {})

    def copy(self) -> "Servers":
        """A copy that goes its own way."""
        return Servers(self._servers)

    def name_of(self, url: str = "", **options: Any) -> str:
        """The name of the server with this URL (empty: not known) and these options."""
        wanted = {"url": url or _UNKNOWN_URL, **options}
        for name, settings in self._servers.items():
            if settings == wanted:
                return name
        name = f"prometheus-{len(self._servers) + 1}" if self._servers else "prometheus"
        self._servers[name] = wanted
        return name

    def settings(self) -> dict[str, Any]:
        """The keys of the adapter's settings, empty where the policies need none."""
        servers = [{"name": name, **options} for name, options in self._servers.items()]
        return {"prometheus": {"inlineQueries": True, "servers": servers}} if servers else {}


def placeholder(name: str) -> str:
    """PromQL that stands for one that a person has to write: it has no answer, so the count stays."""
    return f"write_here_the_promql_of_{re.sub('[^A-Za-z0-9_]', '_', name)}"


def checked(text: str) -> str:
    """The query, if a policy can have it. Raises Refusal."""
    text = text.strip()
    if len(text) > _LONGEST_QUERY:
        raise Refusal(f"the query has {len(text)} characters, a policy's at most {_LONGEST_QUERY}; record it by a rule")
    try:
        parse_inputs(text)
    except PromqlError as error:
        raise Refusal(f"the query is not valid PromQL: {error}") from None
    return text


def one_number(text: str, *, variables: bool = False) -> str:
    """The query as one number for the service. `variables`: it may hold those of a policy. Raises Refusal."""
    text = checked(text)
    if uses_variables(text) and not variables:
        raise Refusal("the query holds $namespace or $workload, which a policy replaces; rename that label")
    if parse_inputs(text).is_scalar:
        return checked(f"vector({text}\n)" if "#" in text else f"vector({text})")
    tree = ast.parse(text)
    is_number = isinstance(tree, ast.AggregateExpr) and tree.modifier is None and str(tree.op) not in {
        "topk", "bottomk", "limitk", "limit_ratio", "count_values",
    }  # fmt: skip
    if is_number or _default(tree) == "vector":
        return text
    return checked(f"sum({text}\n)" if "#" in text else f"sum({text})")


def missing_answers(text: str) -> list[str]:
    """The answers without a number that a query may give: `an empty answer`, `NaN`.

    `(… >= 0) or vector(0)` has neither.
    """
    tree = ast.parse(text)
    default = _default(tree)
    shown = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`|#.*", "", text)
    divides = re.search(r"[/%](?!\s*[1-9])|histogram_quantile", shown) is not None
    return ["an empty answer"] * (not default) + ["NaN"] * (divides and default not in {"vector", "guarded"})


def _default(tree: ast.Expr) -> str:
    """`vector`: a query is that; `or`: its last alternative is; `guarded`: the first is a comparison; else empty."""
    tree = _bare(tree)
    if isinstance(tree, ast.Call) and tree.func.name == "vector":
        return "vector"
    if isinstance(tree, ast.BinaryExpr) and str(tree.op) == "or" and _default(tree.rhs):
        left = _bare(tree.lhs)
        return "guarded" if isinstance(left, ast.BinaryExpr) and str(left.op)[0] in "<>" else "or"
    if isinstance(tree, ast.AggregateExpr) and tree.modifier is None:
        return _default(tree.expr)
    return ""


def _bare(tree: ast.Expr) -> ast.Expr:
    while isinstance(tree, ast.ParenExpr):
        tree = tree.expr
    return tree


def labels_of(tree: ast.Expr) -> set[str] | None:
    """The labels of a query's result; None where the series decide."""
    if isinstance(tree, ast.ParenExpr | ast.UnaryExpr):
        return labels_of(tree.expr)
    if isinstance(tree, ast.AggregateExpr):
        if tree.modifier is None:
            return set()
        return set(tree.modifier.labels) if tree.modifier.type == ast.AggModifierType.By else None
    if isinstance(tree, ast.BinaryExpr):
        is_number = isinstance(tree.lhs, ast.NumberLiteral)
        return labels_of(tree.rhs if is_number else tree.lhs)
    if isinstance(tree, ast.Call) and tree.func.name not in _LABELLED and tree.args:
        return labels_of(next((part for part in tree.args if not isinstance(part, ast.NumberLiteral)), tree.args[0]))
    return None
