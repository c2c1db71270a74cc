"""Reads a DataDog WatermarkPodAutoscaler (datadoghq.com/v1alpha1), with its controller's defaults and roundings."""

import math
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.hpa import UNKNOWN_URL
from adapter.commands.migrate.queries import placeholder
from adapter.commands.migrate.read import MOST_SECONDS, Draft, Fields, Goal, NoteKind, Refusal, read_draft

API_GROUP = "datadoghq.com"
KIND = "WatermarkPodAutoscaler"
_SMALLEST = Fraction(1, 10**9)
_MOST_PERCENT = 10_000
_LIFECYCLE, _OWNERS = "wpa.datadoghq.com/lifecycle-control.enabled", "wpa.datadoghq.com/skip-owner-check"
_ANNOTATIONS = {
    _LIFECYCLE: "scaling no longer stops while a DatadogMonitor is not OK; effective-load.io/hold-until holds it",
    _OWNERS: "of a Deployment or Rollout only its own pods count",
}
_SECONDS = {
    "upscaleForbiddenWindowSeconds": ("cooldown", "scaleUpSeconds", 60),
    "downscaleForbiddenWindowSeconds": ("cooldown", "scaleDownSeconds", 300),
    "upscaleDelayAboveWatermarkSeconds": ("delay", "scaleUpSeconds", 0),
    "downscaleDelayBelowWatermarkSeconds": ("delay", "scaleDownSeconds", 0),
}
_FACTORS = {"scaleUpLimitFactor": ("scaleUpPercent", 50), "scaleDownLimitFactor": ("scaleDownPercent", 20)}
_MARKS = {"highwatermark": "High", "lowwatermark": "Low"}


def read(root: Fields) -> Draft:
    """Read one object into a draft. Raises Refusal."""
    spec = root.section("spec")
    draft = read_draft(root, "minReplicas", "maxReplicas", known=(*_ANNOTATIONS,))
    policy = draft.spec
    for key in sorted(_ANNOTATIONS.keys() & draft.annotations.keys()):
        root.differs(f"metadata.annotations[{key}]", _ANNOTATIONS[key], draft.annotations[key])
    if draft.minimum == 0:
        spec.differs("minReplicas", "the controller does not scale a target of 0 pods; it is 1 here", 0)
        draft.minimum = 1
    if spec.has("recommender"):
        raise Refusal("spec.recommender: answers of a recommender have no equivalent; only metrics can be migrated")
    if spec.text("algorithm") != "average":
        policy["algorithm"] = "Absolute"
    _pacing(spec, draft)
    for fields in spec.sections("metrics"):
        _metric(fields, draft)
    if (multiple := spec.whole("replicaScalingAbsoluteModulo", 1)) > 1:
        policy["replicaMultiple"] = multiple
    if (towards := spec.text("convergeTowardsWatermark").lower()) in _MARKS:
        policy["convergeTowards"] = _MARKS[towards]
    policy["acceptZeroUsage"] = spec.flag("tolerateZero")
    if spec.has("minAvailableReplicaPercentage"):
        policy["minServingPercent"] = spec.whole("minAvailableReplicaPercentage")
        sentence = "below it the count does not fall here; the controller does not raise it either"
        spec.differs("minAvailableReplicaPercentage", sentence)
    if spec.whole("readinessDelaySeconds"):
        sentence = "nothing is to be set: a pod counts once its sample is whole, and is filled in until then"
        spec.differs("readinessDelaySeconds", sentence)
    policy |= {"mode": "Observe"} if spec.flag("dryRun") else {}
    return draft


def _pacing(spec: Fields, draft: Draft) -> None:
    """The tolerance, the velocity and the waits."""
    draft.tolerance = spec.milli("tolerance") or Fraction(0)
    if draft.tolerance == 0:
        spec.differs("tolerance", "the controller takes 0, or none, for its default of 10 %, which is kept")
        draft.tolerance = Fraction(1, 10)
    elif draft.tolerance >= 1:
        spec.differs("tolerance", "it is 99 % here, a policy's most")
        draft.tolerance = Fraction(99, 100)
    for key, (ours, default) in _FACTORS.items():
        given = spec.milli(key)
        percent = Fraction(default) if given is None else given
        whole = min(_MOST_PERCENT, math.floor(percent) if percent >= 1 else math.ceil(percent))
        if percent != whole:
            spec.differs(key, f"a velocity is a whole percentage of at most {_MOST_PERCENT}: {whole} %")
        draft.spec.setdefault("velocity", {})[ours] = whole
    for key, (part, direction, default) in _SECONDS.items():
        seconds = spec.whole(key, default)
        if seconds:
            draft.spec.setdefault(part, {})[direction] = min(seconds, MOST_SECONDS)
        if seconds > MOST_SECONDS:
            spec.differs(key, f"it is at most a day here: {MOST_SECONDS} s")
        if seconds and part == "delay":
            spec.differs(key, "each metric waits for itself; the controller waits for any of them")


def _metric(fields: Fields, draft: Draft) -> None:
    kind = fields.text("type", required=True)
    if kind not in {"External", "Resource"}:
        raise Refusal(f"{fields.at('type')}: {kind} is not External or Resource")
    source = fields.section(kind.lower())
    selector = source.section("metricSelector")
    words = [f"{key}={value}" for key, value in selector.texts("matchLabels").items()]
    words += [
        f"{one.text('key')} {one.text('operator')} {one.get('values')}" for one in selector.sections("matchExpressions")
    ]
    labelled = f" for {', '.join(words)}" if words else ""
    wanted = source.text("metricName" if kind == "External" else "name", required=True)
    name = draft.free_name(wanted)
    reference: dict[str, Any] = {"resource": {"name": wanted}}
    if kind == "External":
        reference = {"query": placeholder(name), "server": {"url": UNKNOWN_URL}}
        number = f"PromQL with one number that is {wanted}{labelled}"
        sentence = f"write {number} in the place of {reference['query']}; until then the count stays"
        source.note(NoteKind.TO_DO, "metricName", sentence)
    elif wanted not in {"cpu", "memory"}:
        raise Refusal(f"{source.at('name')}: {wanted} is not cpu or memory")
    elif words:
        sentence = f"the usage is that of the target's own pods, not of all pods{labelled}"
        source.differs("metricSelector", sentence, ", ".join(words))
    high, low = _watermarks(source)
    values = {"highWatermark": high, **({"lowWatermark": low} if low else {})}
    draft.goals.append(Goal(name=name, values=values, path=source.path, **reference))


def _watermarks(source: Fields) -> tuple[Fraction, Fraction]:
    """The high and the low watermark as the controller reads them: one that is absent is the other one."""
    high, low = (source.milli(key) for key in ("highWatermark", "lowWatermark"))
    if None in (high, low):
        absent = "highWatermark" if high is None else "lowWatermark"
        source.differs(absent, "is absent: the controller takes the other watermark for it, as here")
    high, low = high if high is not None else low, low if low is not None else high
    if not high or low is None or not 0 <= low <= high:
        raise Refusal(f"{source.path}: needs a highWatermark above 0, and a lowWatermark that is not above it")
    if low == 0:
        source.differs("lowWatermark", "nothing is below 0, so none is written: the count never falls")
    if low == high:
        source.differs("lowWatermark", "equals the high watermark; a policy's has to be below: it is a billionth lower")
        low -= _SMALLEST
    return high, low
