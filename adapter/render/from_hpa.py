"""The policy and the HPA that take the place of a stock HPA on cpu or memory, with its target inside the band.

The stock HPA acts when usage leaves target × (1 ± tolerance). The high watermark is the upper of these bounds; the low
one is the lower, or further down where few pods would otherwise flap between two counts (`conformance`): at most
high × n/(n + 1) for n = minReplicas. Both are rounded away from the target, to digits that people can read.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from adapter.migrate import native_hpa
from adapter.migrate.native_hpa import Found, SelectedMetric
from adapter.migrate.notes import NoteKind, Notes
from adapter.migrate.original import Document, Fields, MigrationError
from adapter.migrate.originals import StockHpa
from adapter.migrate.pair import Draft, Goal, Migrated, Style, write
from adapter.policy.hpa import DEFAULT_TOLERANCE, DESIRED_REPLICAS

TITLE = "the HPA cannot be rendered"
_DIGITS = 3
_PERCENT = Fraction(1, 100)
_ADVICE = (
    "is served by another adapter, and an HPA does not say what it asks for; `effective-load migrate` reads the HPA "
    "together with the rules of prometheus-adapter or the annotations of kube-metrics-adapter"
)


def pair_of(document: Document) -> Migrated:
    """The pair of one HPA. Raises MigrationError with every fault, and with what has no equivalent."""
    root = Fields(document.data, "", [], Notes())
    if document.kind != native_hpa.KIND:
        root.fault(
            "kind", document.kind or None, f"must be {native_hpa.KIND}; other autoscalers: effective-load migrate"
        )
        raise _error(document, root)
    draft = native_hpa.read(document.place, root, lambda _, __: _NoAdapter(root), native_hpa.KIND)
    for note in root.notes.all():
        if note.kind is NoteKind.LOST:
            root.fault(note.field, note.value, f"has no equivalent: {note.sentence}")
    if not root.faults and not draft.goals:
        root.fault("spec.metrics", None, "has no metric on cpu or memory, so there is nothing for a policy to do")
    if root.faults:
        raise _error(document, root)
    pair = write(_with_bands(draft), Style())
    return replace(pair, notes=tuple(one for one in pair.notes if one.kind is not NoteKind.IRRELEVANT))


def _error(document: Document, root: Fields) -> MigrationError:
    return MigrationError(
        [replace(one, path=f"{document.place}: {one.path}".rstrip(": ")) for one in root.faults], TITLE
    )


class _NoAdapter:
    """There is no adapter to ask what a metric means: External ones stay in the HPA, others are faults."""

    def __init__(self, root: Fields) -> None:
        self._root = root

    def find(self, metric: SelectedMetric, fields: Fields) -> Found | str:
        if metric.name == DESIRED_REPLICAS:
            fields.fault("metric.name", metric.name, "the HPA follows a WatermarkPolicy already")
        elif metric.kind != "External":
            fields.fault("metric.name", metric.name, _ADVICE)
        return "what it asks for is not known here"

    def served_by(self) -> str:
        return ""

    def keep(self, metric: SelectedMetric) -> Mapping[str, str]:  # noqa: ARG002  the protocol's
        return {}

    def close(self) -> None:
        self._root.notes.add(
            NoteKind.DIFFERS, "spec.metrics", None,
            "the watermarks are where this HPA acts today, the low one lower where so few pods would flap; between "
            "them the count stays",
        )  # fmt: skip


def _with_bands(draft: Draft) -> Draft:
    """The draft with watermarks instead of targets. The band is the tolerance, so that the policy has none."""
    up, down = _tolerances(draft)
    goals = [_with_band(goal, up, down, max(1, draft.minimum)) for goal in draft.goals]
    return replace(draft, goals=goals, spec={**draft.spec, "tolerance": "0%"})


def _tolerances(draft: Draft) -> tuple[Fraction, Fraction]:
    original = draft.original
    assert isinstance(original, StockHpa)
    rules = original.hpa.scale_up, original.hpa.scale_down
    up, down = (DEFAULT_TOLERANCE if one.tolerance is None else one.tolerance for one in rules)
    return up, down


def _with_band(goal: Goal, up: Fraction, down: Fraction, fewest: int) -> Goal:
    assert goal.target is not None
    high = rounded(goal.target * (1 + up), math.ceil, is_ratio=goal.is_ratio)
    low = min(goal.target * max(Fraction(0), 1 - down), high * fewest / (fewest + 1))
    low = rounded(low, math.floor, is_ratio=goal.is_ratio)
    return replace(goal, target=None, high=high, low=low if low > 0 else None)


def rounded(value: Fraction, towards: Callable[[Fraction], int], *, is_ratio: bool) -> Fraction:
    """The value up or down (`math.ceil`, `math.floor`) to three digits; a ratio of 10 % or more to whole percents."""
    if value <= 0:
        return Fraction(0)
    unit = _PERCENT if is_ratio and value >= 10 * _PERCENT else _unit(value)
    return towards(value / unit) * unit


def _unit(value: Fraction) -> Fraction:
    """The power of ten that leaves three digits before the point; at least a nano-unit."""
    exponent = len(str(math.floor(value * 10**9))) - 9 - _DIGITS
    return max(Fraction(10) ** exponent, Fraction(1, 10**9))
