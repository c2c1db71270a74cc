"""Reads a DataDog WatermarkPodAutoscaler (datadoghq.com/v1alpha1), with its controller's defaults and roundings."""

import math
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.read import (
    MOST_SECONDS,
    Draft,
    Fields,
    Goal,
    NoteKind,
    Refusal,
    Servers,
    placeholder,
    quantity,
    read_annotations,
    read_draft,
    rounded_up,
)

API_GROUP = "datadoghq.com"
KIND = "WatermarkPodAutoscaler"
_READER = "the controller"
_SMALLEST = Fraction(1, 10**9)
_MOST_PERCENT = 10_000
_LIFECYCLE = "wpa.datadoghq.com/lifecycle-control.enabled"
_OWNERS = "wpa.datadoghq.com/skip-owner-check"
_ANNOTATIONS = {
    _LIFECYCLE: (
        NoteKind.LOST,
        (
            "scaling no longer stops while a DatadogMonitor is not OK; the annotation effective-load.io/hold-until "
            "holds the count, by hand or from a webhook of the monitor"
        ),
    ),
    _OWNERS: (NoteKind.DIFFERS, "of a Deployment or Rollout only its own pods count"),
}
_SECONDS = {
    "upscaleForbiddenWindowSeconds": ("cooldown", "scaleUpSeconds", 60),
    "downscaleForbiddenWindowSeconds": ("cooldown", "scaleDownSeconds", 300),
    "upscaleDelayAboveWatermarkSeconds": ("delay", "scaleUpSeconds", 0),
    "downscaleDelayBelowWatermarkSeconds": ("delay", "scaleDownSeconds", 0),
}


def read(root: Fields, servers: Servers) -> Draft:
    """Read one object into a draft. Raises Refusal."""
    spec = root.section("spec")
    draft = read_draft(root, ("minReplicas", "maxReplicas"), (1, 0))
    annotations = read_annotations(root, _ANNOTATIONS)
    for key, (kind, sentence) in _ANNOTATIONS.items():
        if key in annotations:
            root.note(kind, f"metadata.annotations[{key}]", annotations[key], sentence)
    if draft.minimum == 0:
        spec.note(NoteKind.DIFFERS, "minReplicas", 0, "the controller does not scale a target of 0 pods; it is 1 here")
        draft.minimum = 1
    if spec.has("recommender"):
        raise Refusal("spec.recommender: answers of a recommender have no equivalent; only metrics can be migrated")
    _passage(root, draft)
    algorithm = spec.text("algorithm", "absolute")
    if algorithm not in {"absolute", "average"}:
        spec.note(NoteKind.DIFFERS, "algorithm", algorithm, f"{_READER} does not know it and takes absolute, as here")
    if algorithm != "average":
        draft.spec["algorithm"] = "Absolute"
    tolerance = _tolerance(spec, draft)
    for fields in spec.sections("metrics"):
        _metric(fields, draft, tolerance, servers)
    _velocity(spec, draft, "scaleUpLimitFactor", "scaleUpPercent", 50)
    _velocity(spec, draft, "scaleDownLimitFactor", "scaleDownPercent", 20)
    _waits(spec, draft)
    _steps(spec, draft)
    root.name_unread()
    return draft


def _passage(root: Fields, draft: Draft) -> None:
    """What to do first, then, last, and the way back."""
    root.note(
        NoteKind.TO_DO, "", None,
        f"first save the original (kubectl get wpa {draft.name}{draft.where} -o yaml) and, where Argo CD, Flux or "
        f"Helm owns it, remove it from its source, or it is made again and two controllers set the count. Then "
        f"kubectl delete wpa {draft.name}{draft.where} (or set its spec.dryRun), and apply the policy and the HPA. "
        "Last: effective-load check. The way back: delete the new HPA, then apply the saved original",
    )  # fmt: skip


def _waits(spec: Fields, draft: Draft) -> None:
    for key, (part, direction, default) in _SECONDS.items():
        if seconds := spec.whole(key, default):
            draft.spec.setdefault(part, {})[direction] = min(seconds, MOST_SECONDS)
        if seconds > MOST_SECONDS:
            spec.note(NoteKind.DIFFERS, key, seconds, f"it is at most a day here: {MOST_SECONDS} s")
        if seconds and part == "delay":
            sentence = "each metric waits for itself; the controller waits for any of them"
            spec.note(NoteKind.DIFFERS, key, seconds, sentence)


def _tolerance(spec: Fields, draft: Draft) -> int:
    """The tolerance in thousandths, as the controller reads it."""
    given = rounded_up(spec, "tolerance", _READER)
    milli = 100 if given is None else int(given * 1000)
    if milli == 0:
        spec.note(NoteKind.DIFFERS, "tolerance", 0, f"{_READER} takes 0 for its default of 10 %, which is kept")
        milli = 100
    if milli >= 1000:
        spec.note(NoteKind.DIFFERS, "tolerance", quantity(Fraction(milli, 1000)), "it is 99 % here, a policy's most")
        milli = 990
    draft.tolerance = Fraction(milli, 1000)
    return milli


def _metric(fields: Fields, draft: Draft, tolerance: int, servers: Servers) -> None:
    kind = fields.text("type", required=True)
    if kind not in {"External", "Resource"}:
        raise Refusal(f"{fields.at('type')}: {kind} is not External or Resource")
    source = fields.section(kind.lower())
    selector = source.section("metricSelector")
    labels = selector.get("matchLabels") or {}
    words = [f"{key}={value}" for key, value in labels.items()]
    words += [
        f"{one.get('key')} {one.get('operator')} {one.get('values')}" for one in selector.get("matchExpressions") or ()
    ]
    labelled = f" for {', '.join(words)}" if words else ""
    if kind == "External":
        wanted = source.text("metricName", required=True)
        name = draft.free_name(wanted)
        query = placeholder(name)
        source.note(
            NoteKind.TO_DO, "metricName", wanted,
            f"a Datadog query does not become PromQL by rule: write, in the place of {query}, PromQL with one number "
            f"that is {wanted}{labelled}; until then the count stays",
        )  # fmt: skip
        reference: dict[str, Any] = {"query": {"promQL": query, "server": servers.name_of()}}
    else:
        wanted = source.text("name", required=True)
        if wanted not in {"cpu", "memory"}:
            raise Refusal(f"{source.at('name')}: {wanted} is not cpu or memory")
        name, reference = draft.free_name(wanted), {"resource": {"name": wanted}}
        if words:
            sentence = f"the usage is that of the target's own pods, not of all pods{labelled}"
            source.note(NoteKind.DIFFERS, "metricSelector", None, sentence)
    high, low = _watermarks(source)
    for key, mark, sign in (("highWatermark", high, 1), ("lowWatermark", low, -1)):
        milli = int(mark * 1000)
        if milli * tolerance % 1000:
            theirs = Fraction(milli + sign * (milli * tolerance // 1000), 1000)
            ours = mark * (1000 + sign * tolerance) / 1000
            source.note(
                NoteKind.DIFFERS, key, quantity(mark),
                f"with the tolerance the controller acts beyond {quantity(theirs)} (it cuts thousandths), a policy "
                f"beyond exactly {quantity(ours)}",
            )  # fmt: skip
    lower = low - (_SMALLEST if low == high else 0)
    draft.goals.append(Goal(name=name, source=reference, high=high, low=lower or None, path=source.path))


def _watermarks(source: Fields) -> tuple[Fraction, Fraction]:
    """The high and the low watermark as the controller reads them: one that is absent is the other one."""
    high, low = (rounded_up(source, key, _READER) for key in ("highWatermark", "lowWatermark"))
    for key, mark in (("highWatermark", high), ("lowWatermark", low)):
        if mark is None:
            source.note(NoteKind.DIFFERS, key, None, f"is absent: {_READER} takes the other watermark for it, as here")
    upper, lower = high if high is not None else low, low if low is not None else high
    if upper is None or lower is None or upper == 0 or lower > upper:
        raise Refusal(f"{source.path}: needs a highWatermark above 0, and a lowWatermark that is not above it")
    if lower == 0:
        source.note(
            NoteKind.DIFFERS, "lowWatermark", 0, "nothing is below 0, so none is written: the count never falls"
        )
    if lower == upper:
        sentence = "equals the high watermark; a policy's has to be below, so it is a billionth lower"
        source.note(NoteKind.DIFFERS, "lowWatermark", quantity(lower), sentence)
    return upper, lower


def _velocity(spec: Fields, draft: Draft, key: str, ours: str, default: int) -> None:
    """A limit factor as a whole percentage; 0 switches the direction off in both."""
    given = rounded_up(spec, key, _READER)
    percent = Fraction(default) if given is None else given
    whole = math.floor(percent) if percent >= 1 else math.ceil(percent)
    if percent != whole:
        spec.note(NoteKind.DIFFERS, key, quantity(percent), f"a velocity is a whole percentage: {whole} %")
    if whole > _MOST_PERCENT:
        spec.note(NoteKind.DIFFERS, key, quantity(percent), "it is no limit in practice, and none is written")
    else:
        draft.spec.setdefault("velocity", {})[ours] = whole


def _steps(spec: Fields, draft: Draft) -> None:
    """What rounds, bends or stops a step, and how zero and unready pods count."""
    policy = draft.spec
    multiple = spec.whole("replicaScalingAbsoluteModulo", 1)
    if multiple > 1:
        policy["replicaMultiple"] = multiple
    towards = spec.text("convergeTowardsWatermark").lower()
    marks = {"highwatermark": "High", "lowwatermark": "Low"}
    if towards in marks:
        policy["convergeTowards"] = marks[towards]
    elif towards:
        spec.note(NoteKind.DIFFERS, "convergeTowardsWatermark", towards, f"{_READER} does not know it and ignores it")
    policy["acceptZeroUsage"] = spec.flag("tolerateZero")
    if spec.has("minAvailableReplicaPercentage"):
        percent = policy["minServingPercent"] = spec.whole("minAvailableReplicaPercentage", 0)
        sentence = "below it the count does not fall here; the controller does not raise it either"
        spec.note(NoteKind.DIFFERS, "minAvailableReplicaPercentage", percent, sentence)
    if delay := spec.whole("readinessDelaySeconds", 0):
        sentence = "nothing is to be set: a pod counts once its sample is whole, and is filled in until then"
        spec.note(NoteKind.DIFFERS, "readinessDelaySeconds", delay, sentence)
    if spec.flag("dryRun"):
        policy["mode"] = "Observe"
