"""Reads the `behavior` of an HPA, and writes it for one that follows a policy."""

from fractions import Fraction
from typing import Any, NamedTuple

from adapter.migrate.notes import NoteKind
from adapter.migrate.original import Fields
from adapter.migrate.pair import quantity, tolerance_text
from adapter.policy.hpa import DEFAULT_TOLERANCE

_LONGEST_WINDOW = 3600
_LONGEST_PERIOD = 1800
_MOST = 2**31 - 1


class Behavior(NamedTuple):
    """The behavior of the new HPA as data, and the original's tolerances (ratios)."""

    data: dict[str, Any]
    up: Fraction
    down: Fraction


def read_behavior(spec: Fields, key: str = "behavior") -> Behavior:
    """Read an HPA's `behavior`; the new one has tolerance 0 in both directions, for the policy has the tolerance."""
    if not spec.has(key):
        spec.notes.add(
            NoteKind.DIFFERS, spec.at(key), None,
            "without behavior the HPA may double the count, or go to 4, at each sync; the new one needs behavior for "
            "its tolerance, and may double the count or add 4 pods in 15 s",
        )  # fmt: skip
    behavior = spec.section(key)
    up, down = (_direction(behavior.section(name)) for name in ("scaleUp", "scaleDown"))
    behavior.rest("behavior")
    return Behavior({"scaleUp": up[0], "scaleDown": down[0]}, up[1], down[1])


def _direction(rules: Fields) -> tuple[dict[str, Any], Fraction]:
    data: dict[str, Any] = {"tolerance": "0"}
    tolerance = rules.quantity("tolerance")
    if tolerance is not None and tolerance < 0:
        rules.fault("tolerance", rules.get("tolerance"), "must not be negative")
        tolerance = None
    window = rules.optional_integer("stabilizationWindowSeconds", 0, _LONGEST_WINDOW)
    if window is not None:
        data["stabilizationWindowSeconds"] = window
    select = rules.get("selectPolicy")
    if select not in (None, "", "Max", "Min", "Disabled"):
        rules.fault("selectPolicy", select, "write Max, Min or Disabled")
    elif select:
        data["selectPolicy"] = select
    policies = [_scaling_policy(one) for one in rules.sections("policies", 50)]
    if policies:
        data["policies"] = policies
    elif rules.has("policies"):
        rules.fault("policies", [], "must have at least one policy")
    rules.rest("behavior")
    return data, DEFAULT_TOLERANCE if tolerance is None else tolerance


def _scaling_policy(fields: Fields) -> dict[str, Any]:
    kind = fields.get("type")
    if kind not in ("Pods", "Percent"):
        fields.fault("type", kind, "write Pods or Percent")
    for key in ("value", "periodSeconds"):
        if not fields.has(key):
            fields.fault(key, None, "is required")
    policy = {
        "type": kind,
        "value": fields.integer("value", 1, 1, _MOST),
        "periodSeconds": fields.integer("periodSeconds", 15, 1, _LONGEST_PERIOD),
    }
    fields.rest("policies")
    return policy


def policy_tolerance(spec: Fields, behavior: Behavior, path: str = "behavior") -> str:
    """The policy's one tolerance: that of the way up where they differ, for a late scale-up hurts more."""
    if behavior.up != behavior.down:
        spec.notes.add(
            NoteKind.DIFFERS, f"{spec.at(path)}.scaleUp.tolerance", quantity(behavior.up),
            "a policy has one tolerance for both directions; it is that of the way up",
        )  # fmt: skip
    return tolerance_text(spec.notes, f"{spec.at(path)}.scaleUp.tolerance", behavior.up)
