"""Writes a WatermarkPolicy and its HPA from what was read of an original, and holds both against our own readers."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.original import MigrationError, Note, NoteKind, Notes, ObjectIdentity, quantity
from adapter.load.spec import Bounds
from adapter.policy.behavior import following_behavior, hpa_manifest
from adapter.policy.conditions import Reason
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, Hpa, parse_hpa
from adapter.policy.watermark_policy import API_VERSION, KIND, MOST_METRICS, parse_policy
from adapter.runtime.faults import Fault

LONGEST_NAME = 63
LARGEST = 2**60
LARGEST_RATIO = 10
_ODD = re.compile(r"[^-a-z0-9_]+", re.ASCII)
_MOST_TOLERANCE = Fraction(99, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One metric of the policy. `source` is its `resource` or `query`; values are in units, exact.

    Either a `target`, as the stock HPA has one, or the watermarks.
    """

    name: str
    source: Mapping[str, Any]
    target: Fraction | None = None
    high: Fraction | None = None
    low: Fraction | None = None

    @property
    def is_ratio(self) -> bool:
        """Whether its values are shares of a capacity."""
        return any("relativeTo" in source for source in self.source.values())

    def manifest(self, low_percent: int | None) -> dict[str, Any]:
        """The metric as a policy has it; `low_percent` makes two watermarks of a target."""
        values = {"target": self.target, "highWatermark": self.high, "lowWatermark": self.low}
        if self.target is not None and low_percent is None:
            values = {"target": self.target}
        elif self.target is not None and low_percent is not None:
            values = {"highWatermark": self.target, "lowWatermark": self.target * low_percent / 100}
        metric: dict[str, Any] = {"name": self.name, **self.source}
        for key, value in values.items():
            if value is not None:
                percent = value * 100
                whole = self.is_ratio and percent.denominator == 1
                metric[key] = f"{percent.numerator}%" if whole else quantity(value)
        return metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a target becomes a policy: strategy Ratio; or watermarks, the low one at `low_percent` of the target.

    `tolerance`: whether HPAs have that field.
    """

    low_percent: int | None = None
    tolerance: bool = True


@dataclass(slots=True, kw_only=True)
class Draft:
    """What was read of an original. `spec` holds further fields of the policy, `behavior` the HPA's (None: as the
    policy needs it). `kept` are metrics that stay in the HPA. `stock` is the original as an HPA, where it is one.
    """

    place: str
    source: str
    identity: ObjectIdentity
    target: CrossVersionReference
    minimum: int
    maximum: int
    notes: Notes
    goals: list[Goal] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    behavior: dict[str, Any] | None = None
    kept: list[dict[str, Any]] = field(default_factory=list)
    stock: Hpa | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """A migrated pair, with the notes on what it was made of. `source` is the kind of the original."""

    place: str
    source: str
    namespace: str
    name: str
    policy: Mapping[str, Any]
    hpa: Mapping[str, Any]
    notes: tuple[Note, ...]


def metric_name(wanted: str, taken: Iterable[str]) -> str:
    """A name that a policy's metric may have, close to the wanted one and not yet taken."""
    used = {"pods", *taken}
    plain = _ODD.sub("_", wanted.lower()[:1000]).strip("-_")[: LONGEST_NAME - 4].strip("-_") or "metric"
    numbered = (plain if number == 1 else f"{plain}-{number}" for number in range(1, 2 * MOST_METRICS + len(used)))
    return next(name for name in numbered if name not in used)


def tolerance_text(notes: Notes, path: str, tolerance: Fraction) -> str:
    """A policy's tolerance; it has to be below 100 %."""
    if tolerance > _MOST_TOLERANCE:
        notes.add(NoteKind.DIFFERS, path, quantity(tolerance), "a policy's tolerance is below 100 %; it is 99 % here")
        tolerance = _MOST_TOLERANCE
    percent = tolerance * 100
    return f"{percent.numerator}%" if percent.denominator == 1 else quantity(tolerance)


def write(draft: Draft, style: Style) -> Migrated:
    """The pair of a draft. Raises MigrationError where there is no valid one."""
    name = draft.identity.name
    if len(name) > LONGEST_NAME:
        # The same for every run, and different for two long names with the same beginning.
        name = f"{name[: LONGEST_NAME - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        sentence = f"a policy's name has at most 63 characters; it is {name}"
        draft.notes.add(NoteKind.DIFFERS, "metadata.name", draft.identity.name, sentence)
    advice = f"has {len(draft.goals)} metrics; a policy has at most {MOST_METRICS}"
    if not draft.goals or len(draft.goals) > MOST_METRICS:
        none = "none of its metrics can be migrated, so there would be no policy"
        raise MigrationError([Fault(draft.place, None, advice if draft.goals else none)])
    by_target = any(goal.target is not None for goal in draft.goals)
    policy = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": draft.identity.metadata(name),
        "spec": {
            **({} if name == draft.identity.name else {"hpa": draft.identity.name}),
            **({"strategy": "Ratio"} if by_target and style.low_percent is None else {}),
            **draft.spec,
            "metrics": [goal.manifest(style.low_percent) for goal in draft.goals],
        },
    }
    # With the original's name, so that a new HPA takes the place of an old one.
    metadata = draft.identity.metadata(draft.identity.name)
    bounds = Bounds(minimum=draft.minimum, maximum=draft.maximum)
    hpa = hpa_manifest(metadata, name, draft.target, bounds, draft.behavior or {}, draft.kept)
    try:
        parsed = parse_policy(policy)
        if draft.behavior is None:
            hpa["spec"]["behavior"] = following_behavior(parsed, hpa, tolerance=style.tolerance)
        elif not style.tolerance:
            for rules in hpa["spec"]["behavior"].values():
                rules.pop("tolerance", None)
        # Steps that the controller's tolerance suppresses, where HPAs have none of their own.
        read = parse_hpa(hpa, DEFAULT_TOLERANCE)
        for flaw in flaws(Wiring(policy=parsed, hpa=read, has_tolerance=style.tolerance)):
            if flaw.reason is Reason.TOLERANCE:
                draft.notes.add(NoteKind.TO_DO, "spec.tolerance", None, flaw.message)
    except PolicyError as error:
        raise MigrationError([fault.within(draft.place, ": ") for fault in error.faults]) from error
    return Migrated(
        place=draft.place,
        source=draft.source,
        namespace=draft.identity.namespace,
        name=name,
        policy=policy,
        hpa=hpa,
        notes=draft.notes.all(),
    )


def stock_hpa(identity: ObjectIdentity, spec: Mapping[str, Any], faults: list[Fault]) -> Hpa | None:
    """An original's HPA as the controller reads it; None where it or the original is faulty, with its faults."""
    if faults:
        return None
    metadata = {"name": identity.name, "namespace": identity.namespace or "default"}
    try:
        return parse_hpa({"metadata": metadata, "spec": spec})
    except PolicyError as error:
        faults += error.faults
        return None
