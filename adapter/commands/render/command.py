"""The command `render`: from the text of a file to manifests, as YAML with remarks or as JSON."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from adapter.commands.migrate import migration, native_hpa
from adapter.commands.migrate.original import (
    KNOWN_VERSIONS,
    Document,
    Fields,
    MigrationError,
    NoteKind,
    Notes,
    Resolver,
    SelectedMetric,
    read_objects,
)
from adapter.commands.migrate.pair import Draft, Migrated, Style, write
from adapter.load.spec import Bounds, Policy, Strategy
from adapter.policy.behavior import SHIPPED_PACE, following_behavior, hpa_manifest
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import DEFAULT_TOLERANCE, DESIRED_REPLICAS, CrossVersionReference, parse_hpa
from adapter.policy.linking import reference_faults
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import Fault, FaultyDocument, first_faults

_TITLE = "the policies cannot be rendered"

_HPA_TITLE = "the HPA cannot be rendered"
_DIGITS = 3
_PERCENT = Fraction(1, 100)
_ADVICE = (
    "is served by another adapter, and an HPA does not say what it asks for; `effective-load migrate` reads the HPA "
    "together with the rules of prometheus-adapter"
)


def fewest_replicas(policy: Policy) -> int:
    """The least minReplicas with which no metric's watermarks flap; of strategy Step its `step.minPods`, at least 1."""
    least = policy.step.min_pods if policy.strategy is Strategy.STEP else 1
    for metric in policy.metrics:
        if metric.high is not None and metric.low is not None and metric.low < metric.high:
            least = max(least, math.ceil(metric.low / (metric.high - metric.low)))
    return max(1, least)


def most_replicas(policy: Policy) -> int | None:
    """The largest maximum of the policy's schedules; None where it names none."""
    return max((schedule.maximum for schedule in policy.schedules if schedule.maximum is not None), default=None)


def hpa_of(
    policy: Policy, metadata: Mapping[str, Any], target: CrossVersionReference, bounds: Bounds, *, tolerance: bool
) -> dict[str, Any]:
    """The manifest of the policy's HPA. It goes down at the pace that we ship, unless strategy Step waits by itself.

    `tolerance`: whether the cluster's HPAs have that field.
    """
    waits = policy.strategy is Strategy.STEP and policy.cooldown.down
    manifest = hpa_manifest(metadata, policy.name, target, bounds, {})
    behavior = following_behavior(policy, manifest, down=None if waits else SHIPPED_PACE, tolerance=tolerance)
    return hpa_manifest(metadata, policy.name, target, bounds, behavior)


class RenderError(FaultyDocument):
    """There is no HPA for a policy, or the arguments do not fit the input; `faults` say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the arguments say about the HPA of a policy; None: the default.

    `tolerance`: whether HPAs have that field, for either way of rendering.
    """

    target: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    tolerance: bool = True

    def reference(self, policy: Policy) -> CrossVersionReference:
        """What the HPA of a policy scales. Raises RenderError."""
        version, _, name = (self.target or f"Deployment/{policy.hpa}").rpartition("/")
        version, kind = version.rpartition("/")[::2] if "/" in version else ("", version)
        version = version or KNOWN_VERSIONS.get(kind, "")
        faults = list(reference_faults(version, kind, name)) if version else []
        if not version:
            faults = [Fault("", None, "write VERSION/KIND/NAME, such as apps/v1/Deployment/web")]
        if faults:
            raise RenderError([Fault("--target", self.target, str(replace(fault, path=""))) for fault in faults])
        return CrossVersionReference(version, kind, name)

    def bounds(self, policy: Policy) -> Bounds:
        """The bounds of the arguments, else of the policy. Raises RenderError."""
        least = self.minimum or fewest_replicas(policy)
        most = self.maximum or most_replicas(policy)
        if most is None:
            raise RenderError([Fault("--max-replicas", None, "is required: the policy itself names no maximum")])
        if least > most:
            why = "" if self.minimum else ", the least with which this policy is steady"
            advice = f"must be at least minReplicas ({least}{why}); raise it, or give --min-replicas"
            raise RenderError([Fault("--max-replicas", most, advice)])
        return Bounds(minimum=least, maximum=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Manifests that belong together, and a sentence for each thing to know about them."""

    heading: str
    objects: Sequence[dict[str, object]]
    remarks: tuple[str, ...] = ()


def from_policies(file: str, text: str, wanted: Wanted) -> list[Rendered]:
    """The HPA of each policy in a text. Raises MigrationError for what is no object, RenderError for the rest."""
    documents = [located for located in read_objects([(file, text)]) if located.kind == KIND]
    if not documents:
        raise RenderError([Fault(file, None, f"has no {KIND}; give the file of one, or --from-hpa")], _TITLE)
    if len(documents) > 1 and wanted.target is not None:
        advice = f"is for one policy, and {file} has {len(documents)}; give them one by one"
        raise RenderError([Fault("--target", wanted.target, advice)], _TITLE)
    rendered, faults = list[Rendered](), list[Fault]()
    for document in documents:
        try:
            policy = parse_policy(document.data)
            given = document.data["metadata"].get("namespace")
            metadata = {"name": policy.hpa, **({"namespace": given} if given else {})}
            target, bounds, tolerance = wanted.reference(policy), wanted.bounds(policy), wanted.tolerance
            manifest = hpa_of(policy, metadata, target, bounds, tolerance=tolerance)
            wiring = Wiring(policy=policy, hpa=parse_hpa(manifest, DEFAULT_TOLERANCE), has_tolerance=tolerance)
            remarks = tuple(flaw.message for flaw in flaws(wiring))
            rendered.append(Rendered(heading=f"The HPA of {KIND} {policy.name}", objects=[manifest], remarks=remarks))
        except (PolicyError, RenderError) as error:
            faults += [fault.within(document.place, ": ") for fault in error.faults]
    if faults:
        raise RenderError(first_faults(faults), _TITLE)
    return rendered


def from_hpas(file: str, text: str, wanted: Wanted) -> list[Rendered]:
    """The policy and the HPA of each HPA in a text. Raises MigrationError; RenderError for arguments of policies."""
    for option, value in (
        ("--target", wanted.target), ("--min-replicas", wanted.minimum), ("--max-replicas", wanted.maximum),
    ):  # fmt: skip
        if value is not None:
            raise RenderError([Fault(option, value, "is for policies: with --from-hpa the HPA says it")], _HPA_TITLE)
    rendered, faults = list[Rendered](), list[Fault]()
    for document in read_objects([(file, text)]):
        try:
            pair = pair_of(document, Style(tolerance=wanted.tolerance))
        except MigrationError as error:
            faults += error.faults
        else:
            heading = f"In the place of {pair.source} {pair.name}"
            rendered.append(
                Rendered(heading=heading, objects=[{**pair.policy}, {**pair.hpa}], remarks=tuple(map(str, pair.notes)))
            )
    if faults:
        raise MigrationError(first_faults(faults), _HPA_TITLE)
    return rendered


def as_yaml(rendered: Iterable[Rendered]) -> str:
    """The manifests as documents, each group below its remarks as comments."""
    groups = []
    for pair in rendered:
        lines = list(migration.comments((pair.heading, *pair.remarks)))
        documents = "\n---\n".join(migration.dump(manifest) for manifest in pair.objects)
        groups.append("\n".join([*lines, documents]))
    return "\n---\n".join(groups) + "\n"


def as_json(rendered: Iterable[Rendered]) -> str:
    """The groups as JSON: `objects` and `remarks`."""
    data = [{"objects": list(pair.objects), "remarks": list(pair.remarks)} for pair in rendered]
    return json.dumps({"rendered": data}, indent=2) + "\n"


def pair_of(document: Document, style: Style) -> Migrated:
    """The pair of one HPA. Raises MigrationError with every fault, and with what has no equivalent."""
    root, draft = Fields(document.data, "", [], Notes()), None
    if document.kind != native_hpa.KIND:
        root.fault(
            "kind", document.kind or None, f"must be {native_hpa.KIND}; other autoscalers: effective-load migrate"
        )
    else:
        draft = native_hpa.read(document.place, root, lambda _, __: _NoAdapter(root, style), native_hpa.KIND)
        for note in root.notes.all():
            if note.kind is NoteKind.LOST:
                root.fault(note.field, note.value, f"has no equivalent: {note.sentence}")
        if not root.faults and not draft.goals:
            root.fault("spec.metrics", None, "has no metric on cpu or memory, so there is nothing for a policy to do")
    if root.faults or draft is None:
        raise MigrationError([fault.within(document.place, ": ") for fault in root.faults], _HPA_TITLE)
    pair = write(_with_bands(draft, style), style)
    return replace(pair, notes=tuple(note for note in pair.notes if note.kind is not NoteKind.UNREAD))


class _NoAdapter(Resolver):
    """There is no adapter to ask what a metric means: External ones stay in the HPA, others are faults."""

    def __init__(self, root: Fields, style: Style) -> None:
        self._root, self._style = root, style

    def find(self, metric: SelectedMetric, fields: Fields) -> Mapping[str, Any] | str:
        if metric.name == DESIRED_REPLICAS:
            fields.fault("metric.name", metric.name, "the HPA follows a WatermarkPolicy already")
        elif metric.kind != "External":
            fields.fault("metric.name", metric.name, _ADVICE)
        return "what it asks for is not known here"

    def close(self) -> None:
        where = (
            "the watermarks are where this HPA acts today, the low one"
            if self._style.tolerance
            else "the policy acts where this HPA does today, at its target and its tolerance; the low watermark is"
        )
        self._root.notes.add(
            NoteKind.DIFFERS, "spec.metrics", None,
            f"{where} lower where so few pods would flap; between the watermarks the count stays",
        )  # fmt: skip


def _with_bands(draft: Draft, style: Style) -> Draft:
    """The draft with watermarks instead of targets. The band is the tolerance, so that the policy has none."""
    up, down, spec, fewest = Fraction(0), Fraction(0), draft.spec, max(1, draft.minimum)
    if style.tolerance:
        assert draft.stock is not None
        rules = draft.stock.scale_up, draft.stock.scale_down
        up, down = (DEFAULT_TOLERANCE if rule.tolerance is None else rule.tolerance for rule in rules)
        spec = {**draft.spec, "tolerance": "0%"}
    goals = []
    for goal in draft.goals:
        assert goal.target is not None
        high = rounded(goal.target * (1 + up), math.ceil, is_ratio=goal.is_ratio)
        low = min(goal.target * max(Fraction(0), 1 - down), high * fewest / (fewest + 1))
        low = rounded(low, math.floor, is_ratio=goal.is_ratio)
        goals.append(replace(goal, target=None, high=high, low=low if low > 0 else None))
    return replace(draft, goals=goals, spec=spec)


def rounded(value: Fraction, towards: Callable[[Fraction], int], *, is_ratio: bool) -> Fraction:
    """The value up or down (`math.ceil`, `math.floor`) to three digits; a ratio of 10 % or more to whole percents."""
    if value <= 0:
        return Fraction(0)
    exponent = len(str(math.floor(value * 10**9))) - 9 - _DIGITS
    unit = max(Fraction(10) ** exponent, Fraction(1, 10**9))  # a nano-unit at least
    if is_ratio and value >= 10 * _PERCENT:
        unit = _PERCENT
    return towards(value / unit) * unit
