"""Reads a KEDA ScaledObject (keda.sh/v1alpha1): its HPA, its triggers, and what KEDA does by itself.

Triggers prometheus, cpu and memory become metrics, cron becomes schedules; the others are named.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from adapter.commands.migrate.hpa import read_behavior, resource_goal
from adapter.commands.migrate.queries import missing_answers, one_number
from adapter.commands.migrate.read import MOST_SECONDS, Draft, Fields, Goal, NoteKind, Refusal, read_draft
from adapter.settings.base import header_faults, url_faults

API_GROUP = "keda.sh"
KIND = "ScaledObject"
_PAUSED, PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
_ONE_WAY = {
    "autoscaling.keda.sh/paused-scale-in": "scaleDownPercent",
    "autoscaling.keda.sh/paused-scale-down": "scaleDownPercent",
    "autoscaling.keda.sh/paused-scale-out": "scaleUpPercent",
}
_OWN = (_PAUSED, "autoscaling.keda.sh/force-activation", "scaledobject.keda.sh/", "validations.keda.sh/")
"""Beginnings of its annotations."""
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}
_CRON = re.compile(r"[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}", re.ASCII)
_SUNDAY_AS_7 = re.compile(r"(^|[,-])7([,-]|$)", re.ASCII)


def read(root: Fields) -> Draft:
    """Read one object into a draft. Raises Refusal."""
    spec, advanced = root.section("spec"), root.section("spec").section("advanced")
    if advanced.has("scalingModifiers"):
        sentence = "a formula over triggers has no equivalent; write one PromQL query"
        raise Refusal(f"{advanced.at('scalingModifiers')}: {sentence}")
    draft = read_draft(root, "minReplicaCount", "maxReplicaCount", (0, 100), _OWN)
    triggers = [(trigger.text("type", required=True), trigger) for trigger in spec.sections("triggers")]
    _zero(spec, draft, {kind for kind, _ in triggers})
    if advanced.flag("restoreToOriginalReplicaCount"):
        sentence = "set it to false before you delete the original, or the count of long ago is set"
        advanced.note(NoteKind.TO_DO, "restoreToOriginalReplicaCount", sentence)
    own_hpa = advanced.section("horizontalPodAutoscalerConfig")
    if name := own_hpa.text("name"):
        own_hpa.differs("name", f"the new HPA's name is {draft.name}", name)
    read_behavior(own_hpa, draft)
    for place, (kind, fields) in enumerate(triggers):
        match kind:
            case "prometheus":
                _prometheus(place, fields, draft)
            case "cpu" | "memory":
                _resource(kind, fields, draft)
            case "cron":
                _cron(place, fields, draft)
            case _:
                remedy = "write its PromQL (docs/migrate.md has it for many)"
                sentence = f"trigger {kind}: the count no longer follows it; {remedy}"
                fields.note(NoteKind.LOST, "", sentence)
                draft.reasons.append(f"trigger {kind}: only prometheus, cpu and memory become metrics")
                for key in ("metadata", "name", "metricType", "authenticationRef", "useCachedMetrics"):
                    fields.get(key)
    polling = spec.whole("pollingInterval", 30)
    if spec.has("fallback"):
        _fallback(spec.section("fallback"), draft, polling)
    _pauses(draft)
    return draft


def _zero(spec: Fields, draft: Draft, triggers: set[str]) -> None:
    """KEDA's way to 0 or an idle count, which an HPA does not go."""
    idle = spec.has("idleReplicaCount")
    draft.sleeps = idle or (draft.minimum == 0 and not triggers <= {"cpu", "memory"})
    draft.minimum = max(1, draft.minimum)
    if draft.sleeps:
        key = "idleReplicaCount" if idle else "minReplicaCount"
        gate = "an HPA goes to 0 only with the feature gate HPAScaleToZero (on from Kubernetes 1.37) and minReplicas: 0"
        spec.note(NoteKind.LOST, key, f"the count stays at {draft.minimum} without load; {gate}", spec.get(key) or 0)
    for key in ("cooldownPeriod", "initialCooldownPeriod"):  # without that way they mean nothing
        if spec.get(key) is not None and draft.sleeps:
            spec.note(NoteKind.LOST, key, "it delays only KEDA's way to 0 or to the idle count")


def _resource(kind: str, fields: Fields, draft: Draft) -> None:
    metadata = fields.section("metadata")
    target_kind = fields.text("metricType") or metadata.text("type", "Utilization")
    key = "averageUtilization" if target_kind == "Utilization" else "averageValue"
    target = {"type": target_kind, key: metadata.text("value", required=True)}
    source = Fields({"target": target}, metadata.path, draft.notes)
    draft.goals.append(resource_goal(source, draft, kind, metadata.text("containerName")))


def _cron(place: int, fields: Fields, draft: Draft) -> None:
    """Times with a least count: KEDA's HPA does not go below `desiredReplicas` between `start` and `end`."""
    metadata = fields.section("metadata")
    keys = ("start", "end", "timezone", "desiredReplicas")
    start, end, zone, replicas = (metadata.text(key, required=True) for key in keys)
    start, end = (" ".join(text.replace("?", "*").split()) for text in (start, end))  # KEDA reads ? as *
    invalid = [text for text in (start, end) if not _CRON.fullmatch(text) or _SUNDAY_AS_7.search(text.split()[-1])]
    seconds, reason = 0, ""
    if invalid:
        reason = f"KEDA refuses {invalid[0]!r} (five fields, weekdays from 0 to 6), so it has no HPA of this object"
    elif not replicas.isdecimal() or int(replicas) == 0:
        reason = f"KEDA refuses desiredReplicas {replicas}, so it has no HPA of this object"
    elif not (seconds := _duration(start, end)):
        reason = "its start and end are not two times of the same days, so its times may not last equally long"
    draft.reasons.append(f"trigger cron: {reason or 'becomes a schedule, which a policy has beside its metrics'}")
    if reason:
        shown = f"{start} to {end}, {replicas} replicas"
        fields.note(NoteKind.LOST, "", f"trigger cron: {reason}; write `schedules` by hand", shown)
        return
    schedule = {"name": f"cron-{place}", "cron": start, "timeZone": zone, "durationSeconds": seconds}
    draft.spec.setdefault("schedules", []).append({**schedule, "minReplicas": int(replicas)})
    metadata.differs("end", f"a schedule has a beginning and a duration: {seconds} s")
    if int(replicas) > draft.maximum:
        metadata.differs("desiredReplicas", f"the HPA's maxReplicas {draft.maximum} is the most, as with KEDA")


def _duration(start: str, end: str) -> int:
    """How long each time of a cron trigger lasts, in seconds; 0 where that is not plain from two times of a day."""
    (minute, hour, *days), (last_minute, last_hour, *last_days) = start.split(), end.split()
    period = MOST_SECONDS
    if hour == last_hour == "*":
        hour, last_hour, period = "0", "0", 3600
    if days != last_days or not all(part.isdecimal() for part in (minute, hour, last_minute, last_hour)):
        return 0
    seconds = (int(last_hour) - int(hour)) * 3600 + (int(last_minute) - int(minute)) * 60
    return seconds % period if days == ["*"] * 3 else max(0, seconds)


def _prometheus(place: int, fields: Fields, draft: Draft) -> None:
    metadata = fields.section("metadata")
    text = metadata.text("query", required=True)
    try:
        query = one_number(text)
    except Refusal as refusal:
        raise Refusal(f"{metadata.at('query')}: {refusal}") from None
    if metadata.get("activationThreshold") is not None and draft.sleeps:
        metadata.note(NoteKind.LOST, "activationThreshold", "it decides only when KEDA leaves 0 or the idle count")
    name = draft.free_name(fields.text("name") or metadata.text("metricName") or f"prometheus-{place}")
    nulls = metadata.flag("ignoreNullValues", True)
    for answer in missing_answers(query):
        if nulls or answer == "NaN":  # which KEDA takes for 0 in any case
            remedy = "where it means no load, write ((QUERY) >= 0) or vector(0)"
            sentence = f"KEDA takes {answer} for 0; here it is an error, and the count stays: {remedy}"
            metadata.differs("ignoreNullValues", sentence, nulls)
    total = fields.text("metricType", "AverageValue") == "Value"
    text = metadata.text("threshold")
    number = Fields({"threshold": "" if text[-1:].isalpha() else text}, metadata.path, draft.notes)
    if not (target := number.milli("threshold", math.floor)) or target < 0:
        raise Refusal(f"{metadata.at('threshold')}: must be a plain number, at least 0.001")
    server = _server(fields, metadata)
    draft.goals.append(
        Goal(name=name, query=query, server=server, values={"target": target}, total=total, path=fields.path)
    )


def _server(fields: Fields, metadata: Fields) -> Mapping[str, Any]:
    """The trigger's Prometheus as the settings have it, without a name. Raises Refusal."""
    server: dict[str, Any] = {"url": metadata.text("serverAddress", required=True)}
    if metadata.flag("unsafeSsl"):
        server["insecureSkipVerify"] = True
    pairs = [header.partition("=") for header in metadata.text("customHeaders").split(",") if header.strip()]
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    if tenant := metadata.text("cortexOrgID"):
        headers["X-Scope-OrgID"] = tenant
    if headers:
        server["headers"] = headers
    faults = [*url_faults(server["url"]), *(header_faults(headers, {}, authorized=False) if headers else ())]
    if faults:
        raise Refusal(f"{metadata.path}: {'; '.join(map(str, faults))}")
    for reader, key in ((fields, "authenticationRef"), (metadata, "authModes")):
        if reader.has(key):
            sentence = (
                "credentials do not come along: give the settings' server passwordFile, bearerTokenFile or headerFiles"
            )
            reader.note(NoteKind.TO_DO, key, sentence)
            reader.get(key)
    return server


def _fallback(fields: Fields, draft: Draft, polling: int) -> None:
    failures, replicas = fields.whole("failureThreshold", 3), fields.whole("replicas")
    behavior = fields.text("behavior", "static")
    if not any(goal.query for goal in draft.goals):
        sentence = "KEDA never falls back for cpu and memory; a policy would, so no fallback is written"
        fields.note(NoteKind.LOST, "replicas", sentence)
    elif behavior in {"currentReplicas", "currentReplicasIfLower"} or replicas <= 0:
        sentence = "a fallback never lowers the count here; none is written, and the count stays without an answer"
        fields.differs("behavior", sentence, behavior)
    else:
        after = min(MOST_SECONDS, max(1, failures * polling))
        draft.spec["fallback"] = {"afterSeconds": after, "replicas": replicas}
        sentence = f"it is {after} s without an answer ({failures} × {polling} s); failures are not counted"
        fields.differs("failureThreshold", sentence, failures)
        if behavior == "static":
            fields.differs("replicas", "it is a least count: a larger one stays, which KEDA's fallback would lower")
        if len(draft.goals) > 1:
            alone = f"While one of several fails, KEDA goes to {replicas}; the policy may only go up by the others"
            fields.differs("replicas", f"it applies only while no metric answers. {alone}")


def _pauses(draft: Draft) -> None:
    """The policy's mode and velocity, by the annotations that pause KEDA. What is not a boolean is true to it."""
    replicas = draft.annotations.get(PAUSED_REPLICAS)
    on = {key for key, value in draft.annotations.items() if value not in _FALSE}
    if replicas is not None:
        sentence = "mode Paused keeps the count as it is; set that count by hand"
        draft.note(NoteKind.TO_DO, sentence, f"metadata.annotations[{PAUSED_REPLICAS}]", replicas)
        draft.sleeps |= replicas == "0"
    if replicas is not None or _PAUSED in on:
        draft.spec["mode"] = "Paused"
    for key, direction in _ONE_WAY.items():
        if key in on:
            draft.spec.setdefault("velocity", {})[direction] = 0
