"""Reads a DataDog WatermarkPodAutoscaler (datadoghq.com/v1alpha1)."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.original import (
    Fields,
    NoteKind,
    ObjectIdentity,
    note_annotations,
    quantity,
    read_bounds,
    read_identity,
    read_target,
)
from adapter.commands.migrate.pair import LARGEST, Draft, Goal, metric_name, tolerance_text
from adapter.commands.migrate.queries import SettingsPart
from adapter.policy.watermark_policy import MOST_METRICS, MOST_REPLICAS

API_GROUP = "datadoghq.com"
KIND = "WatermarkPodAutoscaler"

_DAY = 86_400
_MOST_SECONDS = 2**31 - 1
_MOST_PERCENT = 10_000
_MOST_MULTIPLE = 1000
_SMALLEST = Fraction(1, 10**9)
_ANNOTATIONS = {
    "wpa.datadoghq.com/lifecycle-control.enabled": (
        NoteKind.LOST,
        (
            "scaling no longer stops while a DatadogMonitor is not OK; mode Paused or the annotation "
            "effective-load.io/hold-until holds the count, by hand or from a webhook of the monitor"
        ),
    ),
    "wpa.datadoghq.com/skip-owner-check": (
        NoteKind.DIFFERS,
        "of a Deployment or Rollout only its own pods count; of other kinds every pod that the selector matches",
    ),
}
"""The annotations that the controller reads."""
_CONVERGE = {"highwatermark": "High", "lowwatermark": "Low"}


def read(place: str, root: Fields, part: SettingsPart) -> Draft:
    """Read one object into a draft; faults and notes go where the fields have them."""
    identity = read_identity(root)
    spec = root.section("spec")
    note_annotations(root.notes, identity.annotations, _ANNOTATIONS)
    draft = _Reader(spec, part).draft(place, identity)
    spec.rest()
    root.get("apiVersion"), root.get("kind")
    root.rest()
    where = f" -n {identity.namespace}" if identity.namespace else ""
    root.notes.add(
        NoteKind.TO_DO, "", None,
        f"two controllers would set the count of {draft.target.kind} {draft.target.name}: delete the original first "
        f"(kubectl delete wpa {identity.name}{where}), or set its spec.dryRun to true",
    )  # fmt: skip
    return draft


class _Reader:
    """Reads the spec of one object."""

    def __init__(self, spec: Fields, part: SettingsPart) -> None:
        self._spec = spec
        self._part = part
        self._policy: dict[str, Any] = {}
        self._goals: list[Goal] = []

    def draft(self, place: str, identity: ObjectIdentity) -> Draft:
        spec = self._spec
        target = read_target(spec)
        minimum, maximum = read_bounds(spec)
        algorithm = spec.optional_text("algorithm")
        if algorithm not in {"", "absolute", "average"}:
            spec.note(NoteKind.DIFFERS, "algorithm", "is unknown to the controller, which takes it for absolute")
        if algorithm != "average":
            self._policy["algorithm"] = "Absolute"
        tolerance = self._tolerance()
        if spec.has("recommender"):
            spec.fault("recommender", None, "a recommender's answers have no equivalent; only metrics can be migrated")
        spec.get("recommender")
        for fields in spec.sections("metrics", MOST_METRICS):
            self._metric(fields, tolerance)
        if not spec.sequence("metrics", MOST_METRICS) and not spec.has("recommender"):
            advice = "there is no metric; the controller shrinks such a target step by step to its minimum"
            spec.fault("metrics", None, advice)
        self._factor("scaleUpLimitFactor", "scaleUpPercent", 50)
        self._factor("scaleDownLimitFactor", "scaleDownPercent", 20)
        self._seconds("upscaleForbiddenWindowSeconds", "cooldown", "scaleUpSeconds", 60)
        self._seconds("downscaleForbiddenWindowSeconds", "cooldown", "scaleDownSeconds", 300)
        self._seconds("upscaleDelayAboveWatermarkSeconds", "delay", "scaleUpSeconds", 0)
        self._seconds("downscaleDelayBelowWatermarkSeconds", "delay", "scaleDownSeconds", 0)
        self._steps()
        return Draft(
            place=place,
            source=KIND,
            identity=identity,
            target=target,
            minimum=max(1, minimum),
            maximum=maximum,
            notes=spec.notes,
            goals=self._goals,
            spec=self._policy,
        )

    def _steps(self) -> None:
        """What rounds, bends or stops a step."""
        spec, policy = self._spec, self._policy
        multiple = spec.integer("replicaScalingAbsoluteModulo", 1, 1, MOST_REPLICAS)
        if multiple > _MOST_MULTIPLE:
            spec.fault("replicaScalingAbsoluteModulo", multiple, f"replicaMultiple is at most {_MOST_MULTIPLE}")
        elif multiple > 1:
            policy["replicaMultiple"] = multiple
        self._converge()
        policy["acceptZeroUsage"] = spec.flag("tolerateZero", default=False)
        percent = spec.integer("minAvailableReplicaPercentage", 0, 0, 100)
        if spec.has("minAvailableReplicaPercentage"):
            policy["minServingPercent"] = percent
            sentence = "here it only keeps the count from falling; the controller does not scale up either"
            spec.note(NoteKind.DIFFERS, "minAvailableReplicaPercentage", sentence)
        delay = spec.integer("readinessDelaySeconds", 0, 0, _MOST_SECONDS)
        if delay:
            spec.note(
                NoteKind.DIFFERS, "readinessDelaySeconds",
                "no delay is needed: a pod without a sample since it became Ready is filled in, against the direction",
            )  # fmt: skip
        if spec.flag("dryRun", default=False):
            policy["mode"] = "Observe"

    def _tolerance(self) -> int:
        """The tolerance in milli-units, as the controller reads it: rounded up, and 0 is its default."""
        spec = self._spec
        given = spec.quantity("tolerance")
        milli = 100 if given is None else math.ceil(given * 1000)
        if not 0 <= milli <= 1000:
            spec.fault(
                "tolerance", spec.get("tolerance"), "must be more than 0 and at most 1; the controller refuses it"
            )
            milli = 100
        if milli == 0:
            spec.note(NoteKind.DIFFERS, "tolerance", "the controller takes 0 for its default of 10 %, which is kept")
            milli = 100
        if given is not None and given * 1000 != milli and given:
            spec.note(NoteKind.DIFFERS, "tolerance", f"the controller rounds it up to {milli}m, which is kept")
        self._policy["tolerance"] = tolerance_text(spec.notes, spec.at("tolerance"), Fraction(milli, 1000))
        return milli

    def _metric(self, fields: Fields, tolerance: int) -> None:
        kind = fields.get("type")
        if kind not in ("External", "Resource") or not isinstance(kind, str):
            fields.fault("type", kind, "write External or Resource; the controller knows no other")
            return
        source = fields.section(kind.lower())
        taken, resource = [goal.name for goal in self._goals], source.get("name") if kind == "Resource" else ""
        if kind == "External":
            wanted = source.text("metricName", required="the metric's name")
            selector = _selector_text(source)
            name = metric_name(wanted or "metric", taken)
            query = self._part.placeholder(name)
            source.notes.add(
                NoteKind.TO_DO, source.at("metricName"), wanted,
                f"a Datadog query cannot become PromQL: write query {query} of the settings (prometheus.queries), one "
                f"number that is what {wanted or 'the metric'} is{selector}; until it has an answer the count stays",
            )  # fmt: skip
            reference: dict[str, Any] = {"query": {"name": query}}
        else:
            if resource not in ("cpu", "memory") or not isinstance(resource, str):
                source.fault("name", resource, "write cpu or memory")
                resource = "cpu"
            if selector := _selector_text(source):
                sentence = f"the usage is that of the target's own pods, not of all that are{selector}"
                source.note(NoteKind.DIFFERS, "metricSelector", sentence)
            name, reference = metric_name(resource, taken), {"resource": {"name": resource}}
        marks = _watermarks(source)
        source.rest()
        fields.rest()
        if marks is None:
            return
        high, low = marks
        # The controller widens the band in whole milli-units; a policy does so exactly.
        for key, mark, sign in (("highWatermark", high, 1), ("lowWatermark", low, -1)):
            if mark and mark * tolerance % 1000:
                theirs = mark + sign * (mark * tolerance // 1000)
                ours = Fraction(mark * (1000 + sign * tolerance), 10**6)
                source.note(
                    NoteKind.DIFFERS, key,
                    f"with the tolerance the controller acts beyond {quantity(Fraction(theirs, 1000))}, truncated to "
                    f"milli-units; here it is exactly {quantity(ours)}",
                )  # fmt: skip
        upper = Fraction(high, 1000) if high else None
        lower = Fraction(low, 1000) - (_SMALLEST if low == high else 0) if low else None
        self._goals.append(Goal(name=name, source=reference, high=upper, low=lower))

    def _factor(self, key: str, ours: str, default: int) -> None:
        """A limit factor, as the policy's whole percentage."""
        spec, is_up = self._spec, ours == "scaleUpPercent"
        given = spec.quantity(key)
        percent = Fraction(default) if given is None else Fraction(math.ceil(given * 1000), 1000)
        if percent < 0 or (not is_up and percent >= 100):
            within = "0 or more" if is_up else "from 0 to below 100"
            spec.fault(key, spec.get(key), f"must be {within} percent; the controller refuses it")
            return
        whole = math.floor(percent) if percent >= 1 else math.ceil(percent)
        if percent != whole:
            spec.note(NoteKind.DIFFERS, key, f"a velocity is a whole percentage: {whole} %")
        if whole > _MOST_PERCENT:
            spec.note(NoteKind.DIFFERS, key, "is no limit in practice, and none is written")
        else:
            self._policy.setdefault("velocity", {})[ours] = whole

    def _seconds(self, key: str, ours: str, direction: str, default: int) -> None:
        spec = self._spec
        seconds = spec.integer(key, default, 0 if ours == "delay" else 1, _MOST_SECONDS)
        if seconds > _DAY:
            spec.note(NoteKind.DIFFERS, key, f"is at most a day here: {_DAY} s")
        if seconds:
            self._policy.setdefault(ours, {})[direction] = min(seconds, _DAY)
        if seconds and ours == "delay":
            spec.note(
                NoteKind.DIFFERS, key,
                "each metric waits for itself; the controller waits until any of them was beyond its watermark so long",
            )  # fmt: skip

    def _converge(self) -> None:
        spec = self._spec
        towards = spec.optional_text("convergeTowardsWatermark")
        if not towards:
            return
        if towards not in _CONVERGE:
            spec.note(NoteKind.DIFFERS, "convergeTowardsWatermark", "is unknown to the controller, which ignores it")
            return
        marks = [goal.high if towards == "highwatermark" else goal.low for goal in self._goals]
        if not any(marks):
            spec.note(NoteKind.LOST, "convergeTowardsWatermark", "no metric has that watermark")
            return
        self._policy["convergeTowards"] = _CONVERGE[towards]
        if "replicaMultiple" in self._policy:
            sentence = "a step towards the watermark is rounded up to a multiple as well"
            spec.note(NoteKind.DIFFERS, "convergeTowardsWatermark", sentence)


def _watermarks(source: Fields) -> tuple[int, int] | None:
    """The high and the low watermark in milli-units; one that is absent is the other one. None where faulty."""
    if not (source.has("highWatermark") or source.has("lowWatermark")):
        source.fault("", None, "give highWatermark, lowWatermark, or both")
    faults = len(source.faults)
    high, low = _watermark(source, "highWatermark"), _watermark(source, "lowWatermark")
    upper, lower = (high if high is not None else low or 0), (low if low is not None else high or 0)
    if len(source.faults) > faults or high is low is None:
        return None
    if lower > upper:
        source.fault("lowWatermark", source.get("lowWatermark"), "must not be above highWatermark")
        return None
    if upper == 0:
        source.fault("highWatermark", source.get("highWatermark"), "a watermark of 0 never changes the count")
        return None
    if lower == 0:
        source.note(NoteKind.DIFFERS, "lowWatermark", "nothing is below 0, so none is written: the count never falls")
    if lower == upper:
        sentence = "is the high watermark; a policy's has to be below, so it is a billionth lower"
        source.notes.add(NoteKind.DIFFERS, source.at("lowWatermark"), source.get("lowWatermark"), sentence)
    return upper, lower


def _watermark(source: Fields, key: str) -> int | None:
    """A watermark as the controller reads it: milli-units, rounded up. None where absent or faulty."""
    given = source.quantity(key)
    if given is None:
        if not source.has(key):
            source.notes.add(NoteKind.DIFFERS, source.at(key), None, "the controller sets it to the other watermark")
        return None
    milli = math.ceil(given * 1000)
    if not 0 <= given <= LARGEST:
        source.fault(key, source.get(key), "a watermark must be from 0 to 1Ei")
    elif given * 1000 != milli:
        source.note(NoteKind.DIFFERS, key, f"the controller rounds it up to {milli}m, which is kept")
    return milli


def _selector_text(source: Fields) -> str:
    """The metric's selector in words, empty without labels."""
    selector = source.section("metricSelector")
    if not source.has("metricSelector"):
        source.fault("metricSelector", None, "is required: the controller refuses a metric without it")
        return ""
    labels = selector.get("matchLabels")
    parts = [f"{key}={value}" for key, value in labels.items()] if isinstance(labels, Mapping) else []
    for section in selector.sections("matchExpressions", 50):
        values = section.sequence("values", 50)
        parts.append(f"{section.get('key')} {section.get('operator')} ({', '.join(map(str, values))[:200]})")
        section.rest()
    selector.rest()
    return f" for {', '.join(parts)[:400]}" if parts else ""
