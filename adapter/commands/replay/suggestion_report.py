"""Suggestions as text and as JSON data; a candidate is printed as the patch that a person may apply."""

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.commands.replay.patch import patch_text
from adapter.commands.replay.service import Summary
from adapter.commands.replay.suggest import Candidate, Plan, Suggestions, watermark_text
from adapter.load.quantity import nano_text
from adapter.load.spec import Policy
from adapter.policy.hpa import ScalingRules

_HOUR = 3600


def lines(suggestions: Suggestions, manifest: Mapping[str, Any]) -> Iterator[str]:
    """The front as a table, then a patch for each candidate but the present policy."""
    present, *others = suggestions.candidates
    metric = present.policy.metrics[0]
    measure = suggestions.yardstick
    yield (
        f"Suggestions: {suggestions.tried} plans were played, all judged by {measure.name}: "
        f"{watermark_text(metric, measure.load)} of {metric.name} for each pod"
    )
    yield (
        "Chosen on the first part of the history; LATER is the rest, which the choice has not seen."
        if present.checked
        else "The history is too short to check them on a part that the choice has not seen."
    )
    yield suggestions.recommendation()
    yield ""
    rows = [_TITLES, *(_row(known) for known in suggestions.candidates)]
    kept = [index for index in range(len(_TITLES)) if any(row[index] for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in kept}
    for row in rows:
        yield "  ".join(row[index].ljust(widths[index]) for index in kept).rstrip()
    yield ""
    for known in others:
        yield f"# Candidate {known.name}. Nothing is applied: kubectl patch --type merge --patch-file"
        yield from (f"# Warning: {warning}" for warning in known.warnings)
        yield from patch_text(present.policy, known.plan, manifest).splitlines()
        yield "---"


def sentence(suggestions: Suggestions) -> str:
    """The recommendation with all that it needs to be judged by hand: watermarks, pace, and what speaks against it."""
    best = suggestions.recommended
    if best is None:
        return suggestions.recommendation()
    metric = best.policy.metrics[0]
    marks = f"highWatermark {watermark_text(metric, metric.high)}, lowWatermark {watermark_text(metric, metric.low)}"
    pace = "; ".join(f"{name} {text}" for name, text in behavior_texts(best.plan).items())
    return " ".join(
        [suggestions.recommendation(), f"{metric.name}: {marks}; {pace}.", *(f"But {one}." for one in best.warnings)]
    )


_TITLES = (
    "CANDIDATE", "HIGH", "LOW", "SATURATION", "SCALE UP", "SCALE DOWN", "POD-HOURS", "MINUTES OVER",
    "SHORTFALL", "FLAPS",
    "LATER: POD-HOURS", "MINUTES OVER", "FLAPS",
)  # fmt: skip


def _row(known: Candidate) -> tuple[str, ...]:
    policy = known.policy
    metric = policy.metrics[0]
    learned, later = known.learned, known.checked
    return (
        known.name,
        watermark_text(metric, metric.high),
        watermark_text(metric, metric.low),
        *behavior_texts(known.plan).values(),
        f"{learned.pod_seconds / _HOUR:.1f}",
        f"{learned.over_high / 60:.1f}",
        "" if learned.shortfall is None else f"{100 * learned.shortfall:.3f} %",
        str(learned.flaps),
        *(("", "", "") if later is None else _later(later)),
    )


def behavior_texts(plan: Plan) -> dict[str, str]:
    """What a plan says besides watermarks, by the name of the field."""
    return {
        "saturationFactor": f"{float(plan.policy.saturation_factor):g}",
        "scaleUp": "as now" if plan.up is None else f"{plan.up}s",
        "scaleDown": pace_text(plan.down),
    }


def pace_text(down: ScalingRules | None) -> str:
    """How an HPA scales down: its window and its policies; as now where a plan has no pace of its own."""
    if down is None:
        return "as now"
    policies = [f"{one.value} {'%' if one.kind == 'Percent' else 'pods'}/{one.period}s" for one in down.policies]
    return ", ".join([f"{down.stabilization}s", *policies])


def _later(summary: Summary) -> tuple[str, str, str]:
    return f"{summary.pod_seconds / _HOUR:.1f}", f"{summary.over_high / 60:.1f}", str(summary.flaps)


def data(suggestions: Suggestions, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The suggestions as JSON data. Watermarks are as policies write them, durations seconds."""
    present = suggestions.candidates[0].policy
    measure = suggestions.yardstick
    return {
        "judgedBy": "Capacity" if measure.is_capacity else "HighWatermark",
        "judgedByLoad": watermark_text(present.metrics[0], measure.load),
        "recommendation": suggestions.recommendation(),
        "aimRatio": suggestions.aim,
        "policiesPlayed": suggestions.tried,
        "candidates": [_candidate(known, present, manifest) for known in suggestions.candidates],
    }


def _candidate(known: Candidate, present: Policy, manifest: Mapping[str, Any]) -> dict[str, Any]:
    policy = known.policy
    metric = policy.metrics[0]
    return {
        "name": known.name,
        "isPresent": known.is_present,
        "highWatermark": watermark_text(metric, metric.high) or None,
        "lowWatermark": watermark_text(metric, metric.low) or None,
        "velocity": {"scaleUpPercent": policy.velocity.up, "scaleDownPercent": policy.velocity.down},
        "cooldown": {"scaleUpSeconds": policy.cooldown.up, "scaleDownSeconds": policy.cooldown.down},
        "isRecommended": known.is_recommended,
        "saturationFactor": float(policy.saturation_factor),
        "scaleUp": None if known.plan.up is None else {"stabilizationWindowSeconds": known.plan.up},
        "scaleDown": None
        if known.plan.down is None
        else {
            "stabilizationWindowSeconds": known.plan.down.stabilization,
            "policies": [one._asdict() for one in known.plan.down.policies],
        },
        "chosenOn": _figures(known.learned),
        "checkedOn": None if known.checked is None else _figures(known.checked),
        "warnings": list(known.warnings),
        "patch": None if known.is_present else patch_text(present, known.plan, manifest),
    }


def _figures(summary: Summary) -> dict[str, Any]:
    return {
        "seconds": summary.seconds,
        "podHours": round(summary.pod_seconds / _HOUR, 3),
        "overSeconds": summary.over_high,
        "shortfallRatio": summary.shortfall,
        "lostLoadSeconds": None if summary.shortfall is None else nano_text(summary.lost),
        "flaps": summary.flaps,
    }
