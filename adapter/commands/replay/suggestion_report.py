"""Suggestions as text and as JSON data; a candidate is printed as the patch that a person may apply."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import yaml

from adapter.commands.replay.service import Summary
from adapter.commands.replay.suggest import Plan, Suggestions, watermark_text
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import nano_text
from adapter.load.spec import Policy
from adapter.policy.behavior import policies_json
from adapter.policy.watermark_policy import API_VERSION, KIND

_TITLES = (
    "CANDIDATE", "HIGH", "LOW", "SATURATION", "SCALE UP", "SCALE DOWN", "POD-HOURS", "MINUTES OVER",
    "SHORTFALL", "FLAPS",
    "LATER: POD-HOURS", "MINUTES OVER", "FLAPS",
)  # fmt: skip
WRITTEN = frozenset({"metrics", "saturation_factor"})
"""The fields of a policy that a patch writes."""


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
    rows: list[tuple[str, ...]] = [_TITLES]
    for candidate in suggestions.candidates:
        learned, later, searched = candidate.learned, candidate.checked, candidate.policy.metrics[0]
        checked = ("", "", "")
        if later is not None:
            checked = (f"{later.pod_hours:.1f}", f"{later.minutes_over:.1f}", str(later.flaps))
        row = (
            candidate.name,
            watermark_text(searched, searched.high),
            watermark_text(searched, searched.low),
            *behavior_texts(candidate.plan).values(),
            f"{learned.pod_hours:.1f}",
            f"{learned.minutes_over:.1f}",
            "" if learned.shortfall is None else f"{100 * learned.shortfall:.3f} %",
            str(learned.flaps),
        )
        rows.append((*row, *checked))
    yield from aligned(rows, left=True)
    yield ""
    for candidate in others:
        yield f"# Candidate {candidate.name}. Nothing is applied: kubectl patch --type merge --patch-file"
        yield from (f"# Warning: {warning}" for warning in candidate.warnings)
        yield from patch_text(present.policy, candidate.plan, manifest).splitlines()
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
        [
            suggestions.recommendation(),
            f"{metric.name}: {marks}; {pace}.",
            *(f"But {warning}." for warning in best.warnings),
        ]
    )


def behavior_texts(plan: Plan) -> dict[str, str]:
    """What a plan says besides watermarks, by the name of the field; as now where it has no pace of its own."""
    pace = ["as now"]
    if plan.down is not None:
        policies = (
            f"{rule.value} {'%' if rule.kind == 'Percent' else 'pods'}/{rule.period}s" for rule in plan.down.policies
        )
        pace = [f"{plan.down.stabilization}s", *policies]
    return {
        "saturationFactor": f"{float(plan.policy.saturation_factor):g}",
        "scaleUp": "as now" if plan.up is None else f"{plan.up}s",
        "scaleDown": ", ".join(pace),
    }


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
        "candidates": [
            {
                "name": candidate.name,
                "isPresent": candidate.is_present,
                "highWatermark": watermark_text(candidate.policy.metrics[0], candidate.policy.metrics[0].high) or None,
                "lowWatermark": watermark_text(candidate.policy.metrics[0], candidate.policy.metrics[0].low) or None,
                "velocity": {
                    "scaleUpPercent": candidate.policy.velocity.up,
                    "scaleDownPercent": candidate.policy.velocity.down,
                },
                "cooldown": {
                    "scaleUpSeconds": candidate.policy.cooldown.up,
                    "scaleDownSeconds": candidate.policy.cooldown.down,
                },
                "isRecommended": candidate.is_recommended,
                "saturationFactor": float(candidate.policy.saturation_factor),
                "scaleUp": None if candidate.plan.up is None else {"stabilizationWindowSeconds": candidate.plan.up},
                "scaleDown": None
                if candidate.plan.down is None
                else {
                    "stabilizationWindowSeconds": candidate.plan.down.stabilization,
                    "policies": [rule._asdict() for rule in candidate.plan.down.policies],
                },
                "chosenOn": _figures(candidate.learned),
                "checkedOn": None if candidate.checked is None else _figures(candidate.checked),
                "warnings": list(candidate.warnings),
                "patch": None if candidate.is_present else patch_text(present, candidate.plan, manifest),
            }
            for candidate in suggestions.candidates
        ],
    }


def _figures(summary: Summary) -> dict[str, Any]:
    return {
        "seconds": summary.seconds,
        "podHours": round(summary.pod_hours, 3),
        "overSeconds": summary.over_high,
        "shortfallRatio": summary.shortfall,
        "lostLoadSeconds": None if summary.shortfall is None else nano_text(summary.lost),
        "flaps": summary.flaps,
    }


def patch_text(present: Policy, plan: Plan, manifest: Mapping[str, Any]) -> str:
    """What changes `present` into the plan's policy, and the behavior of its HPA if the plan has another one.

    `manifest` is the present policy's object, whose metrics are kept. Raises ValueError for a plan that changes a field
    of the policy that no patch writes: its text would not be what was played.
    """
    wanted = plan.policy
    kept = [field.name for field in fields(Policy) if field.name not in WRITTEN]
    if unwritten := [name for name in kept if getattr(wanted, name) != getattr(present, name)]:
        raise ValueError(f"a patch cannot write {', '.join(unwritten)}")
    metrics = [dict(metric) for metric in manifest["spec"]["metrics"]]
    if wanted.metrics[0] != present.metrics[0]:
        metric = wanted.metrics[0]
        marks = {"highWatermark": metric.high, "lowWatermark": metric.low}
        metrics[0] |= {key: watermark_text(metric, value) for key, value in marks.items() if value is not None}
    spec: dict[str, Any] = {"metrics": metrics}
    if wanted.saturation_factor != present.saturation_factor:
        spec["saturationFactor"] = f"{float(wanted.saturation_factor):g}"
    metadata = {"namespace": present.namespace, "name": present.name}
    patches = [{"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}]
    behavior: dict[str, Any] = {}
    if plan.up is not None:
        behavior["scaleUp"] = {"stabilizationWindowSeconds": plan.up}
    if plan.down is not None:
        policies = policies_json(plan.down.policies) or None
        behavior["scaleDown"] = {"stabilizationWindowSeconds": plan.down.stabilization, "policies": policies}
    if behavior:
        patches.append(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {**metadata, "name": present.hpa},
                "spec": {"behavior": behavior},
            }
        )
    text: str = yaml.safe_dump_all(patches, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    return text
