"""Reads a KEDA ScaledObject (keda.sh/v1alpha1): its HPA, its triggers, and what KEDA does by itself.

Triggers prometheus, cpu and memory become metrics, cron becomes schedules; the others are named, with the PromQL that
counts what the trigger counts.
"""

import itertools
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from cronsim import CronSim, CronSimError

from adapter.commands.migrate.hpa import keep_one_kind, read_behavior, resource_goal
from adapter.commands.migrate.read import (
    MOST_SECONDS,
    Draft,
    Fields,
    Goal,
    NoteKind,
    Refusal,
    Servers,
    missing_answers,
    one_number,
    read_annotations,
    read_draft,
)
from adapter.settings.base import header_faults, url_faults

API_GROUP = "keda.sh"
KIND = "ScaledObject"
_PAUSED, _PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
_ONE_WAY = {
    "autoscaling.keda.sh/paused-scale-in": "scaleDownPercent",
    "autoscaling.keda.sh/paused-scale-down": "scaleDownPercent",
    "autoscaling.keda.sh/paused-scale-out": "scaleUpPercent",
}
_OWN = (
    "scaledobject.keda.sh/transfer-hpa-ownership", "validations.keda.sh/hpa-ownership",
    "scaledobject.keda.sh/hpa-excluded-labels", "autoscaling.keda.sh/force-activation",
)  # fmt: skip
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}
_WEEK = 7 * MOST_SECONDS
_COMPARED = 60
"""How many times of a cron trigger must last equally long: two months of a daily one."""
_CRON = re.compile(r"[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}", re.ASCII)
_SERVERS_OWN = {
    "namespace": "a URL parameter of each query; put the namespace into the query or the server's url",
    "queryParameters": "the server is asked without further parameters",
    "awsRegion": "requests are not signed for AWS; ask through a proxy that signs them",
    "identityOwner": "requests are not signed for AWS; ask through a proxy that signs them",
}


def _sqs(metadata: Mapping[str, str]) -> str:
    flying = _is(metadata, "scaleOnInFlight", True)
    both = " + sum(aws_sqs_approximate_number_of_messages_not_visible_average{queue_name=…})" if flying else ""
    return f"sum(aws_sqs_approximate_number_of_messages_visible_average{{queue_name=…}}){both} of cloudwatch_exporter"


def _rabbitmq(metadata: Mapping[str, str]) -> str:
    labels, page = "{vhost=…, queue=…}", "/metrics/detailed?family=queue_coarse_metrics"
    if metadata.get("mode", metadata.get("queueLength", "")) == "MessageRate":
        return f"sum(rate(rabbitmq_queue_messages_published_total{labels}[1m])) of RabbitMQ's /metrics/per-object"
    ready = f"sum(rabbitmq_detailed_queue_messages_ready{labels})"
    by_http = metadata.get("protocol", "auto") == "http" or metadata.get("host", "").startswith("http")
    if by_http and not _is(metadata, "excludeUnacknowledged", False):
        return f"{ready} + sum(rabbitmq_detailed_queue_messages_unacked{labels}) of RabbitMQ's {page}"
    return f"{ready} of RabbitMQ's {page}" + (
        "" if "protocol" in metadata else " (with protocol http add rabbitmq_detailed_queue_messages_unacked)"
    )


def _kafka(metadata: Mapping[str, str]) -> str:
    lag = "sum(clamp_min(kafka_consumergroup_lag{consumergroup=…, topic=…}, 0))"
    if not _is(metadata, "allowIdleConsumers", False):
        lag = f"clamp_max({lag}, PARTITIONS * {metadata.get('lagThreshold', '10')})"
    return f"{lag} of kafka_exporter, which says -1 of no offset"


def _nats(_: Mapping[str, str]) -> str:
    labels = "{consumer_name=…, is_consumer_leader='true'}"
    parts = " + ".join(f"sum(jetstream_consumer_{name}{labels})" for name in ("num_pending", "num_ack_pending"))
    return f"{parts} of prometheus-nats-exporter with -jsz=all"


RECIPES = {
    "aws-sqs-queue": _sqs,
    "rabbitmq": _rabbitmq,
    "kafka": _kafka,
    "apache-kafka": _kafka,
    "nats-jetstream": _nats,
}
"""The PromQL that counts what a trigger counts, by the trigger's type, from its own metadata."""


def _is(metadata: Mapping[str, str], key: str, default: bool) -> bool:
    return str(metadata.get(key, default)).lower() in {"true", "t", "1"}


def read(root: Fields, servers: Servers) -> Draft:
    """Read one object into a draft. Raises Refusal."""
    spec, advanced = root.section("spec"), root.section("spec").section("advanced")
    if advanced.has("scalingModifiers"):
        raise Refusal(
            f"{advanced.at('scalingModifiers')}: a formula over triggers has no equivalent; write one PromQL query"
        )
    draft = read_draft(root, ("minReplicaCount", "maxReplicaCount"), (0, 100))
    annotations = read_annotations(root, {_PAUSED, _PAUSED_REPLICAS, *_ONE_WAY, *_OWN})
    idle = spec.text("idleReplicaCount")
    triggers = list(spec.sections("triggers"))
    types = [trigger.text("type", required=True) for trigger in triggers]
    sleeps = bool(idle) or (draft.minimum == 0 and any(kind not in {"cpu", "memory"} for kind in types))
    _passage(root, draft, advanced.flag("restoreToOriginalReplicaCount"), sleeps, annotations.get(_PAUSED_REPLICAS))
    if sleeps:
        _no_zero(spec, draft, idle)
    draft.minimum = max(1, draft.minimum)
    read_behavior(advanced.section("horizontalPodAutoscalerConfig"), draft)
    advanced.section("horizontalPodAutoscalerConfig").get("name")
    for place, (kind, fields) in enumerate(zip(types, triggers, strict=True)):
        match kind:
            case "prometheus":
                _prometheus(place, fields, draft, servers, sleeps)
            case "cpu" | "memory":
                _resource(kind, fields, draft)
            case "cron":
                _cron(place, fields, draft)
            case _:
                _other(kind, fields, draft)
    polling = spec.whole("pollingInterval", 30)
    spec.get("cooldownPeriod")
    if spec.has("fallback"):
        _fallback(spec.section("fallback"), draft, polling)
    keep_one_kind(draft)
    _pauses(annotations, draft)
    root.name_unread()
    return draft


def _passage(root: Fields, draft: Draft, restores: bool, sleeps: bool, paused: str | None) -> None:
    """What to do first, then, last, and the way back."""
    restoring = "Set restoreToOriginalReplicaCount to false, or the count of long ago is set. " if restores else ""
    root.note(
        NoteKind.TO_DO, "", None,
        f"first save the original (kubectl get scaledobject {draft.name}{draft.where} -o yaml) and, where Argo CD, "
        f"Flux or Helm owns it, remove it from its source, or it is made again: KEDA's own HPA of "
        f"{draft.target.kind} {draft.target.name} would be a second one, and two HPAs of the same pods do not act. "
        f"{restoring}Then kubectl delete scaledobject {draft.name}{draft.where}, and apply the policy and the HPA. "
        "Last: effective-load check. The way back: delete the new HPA, then apply the saved original",
    )  # fmt: skip
    if sleeps or paused == "0":
        kind = draft.target.kind.lower()
        root.note(
            NoteKind.TO_DO, "", None,
            f"if {draft.target.kind} {draft.target.name} stands at 0 when the original is deleted, scale it by hand "
            f"(kubectl scale {kind} {draft.target.name}{draft.where} --replicas=1): an HPA with minReplicas 1 does not "
            "act on 0, so nothing else wakes it",
        )  # fmt: skip


def _no_zero(spec: Fields, draft: Draft, idle: str) -> None:
    least = max(1, draft.minimum)
    spec.note(
        NoteKind.LOST, "idleReplicaCount" if idle else "minReplicaCount", idle or draft.minimum,
        f"KEDA goes there without load, by itself; the count stays at {least} here. An HPA goes to 0 only with the "
        "feature gate HPAScaleToZero (on from Kubernetes 1.37): set minReplicas: 0 where it is on",
    )  # fmt: skip
    for key in ("cooldownPeriod", "initialCooldownPeriod"):
        spec.lost(key, "it only delays the way to the idle count or 0")


def _other(kind: str, fields: Fields, draft: Draft) -> None:
    metadata = fields.section("metadata")
    given = {key: metadata.text(key) for key in list(fields.get("metadata") or {}) if isinstance(key, str)}
    for key in ("name", "metricType", "authenticationRef", "useCachedMetrics"):
        fields.get(key)
    recipe = RECIPES.get(kind)
    advice = (
        f"write it as a metric with PromQL: {recipe(given)}"
        if recipe
        else "export its number to Prometheus and write it as PromQL (docs/migrate.md lists exporters)"
    )
    if kind.endswith("kafka") and recipe and not _is(given, "allowIdleConsumers", False):
        advice += "; PARTITIONS is the topic's count"
    draft.reasons.append(f"trigger {kind}: {advice}")
    fields.note(NoteKind.LOST, "", None, f"trigger {kind}: the count no longer follows it; {advice}")


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
    zone, start, end, replicas = (
        metadata.text(key, required=True) for key in ("timezone", "start", "end", "desiredReplicas")
    )
    start, end = (" ".join(text.replace("?", "*").split()) for text in (start, end))  # KEDA reads ? as *
    seconds, reason = _duration(start, end)
    if not replicas.isdecimal() or int(replicas) == 0:
        reason = f"KEDA refuses desiredReplicas {replicas}, so it has no HPA of this object; {reason}"
    draft.reasons.append(f"trigger cron: {reason or 'becomes a schedule, which a policy has beside its metrics'}")
    if reason:
        sentence = f"trigger cron: {reason}; write `schedules` by hand"
        fields.note(NoteKind.LOST, "", {"start": start, "end": end, "desiredReplicas": replicas}, sentence)
        return
    draft.spec.setdefault("schedules", []).append(
        {
            "name": f"cron-{place}", "cron": start, "timeZone": zone, "durationSeconds": seconds,
            "minReplicas": int(replicas),
        }
    )  # fmt: skip
    metadata.note(NoteKind.DIFFERS, "end", end, f"a schedule has a beginning and a duration: {seconds} s")
    if int(replicas) > draft.maximum:
        sentence = f"the HPA's maxReplicas {draft.maximum} is the most, as with KEDA"
        metadata.note(NoteKind.DIFFERS, "desiredReplicas", replicas, sentence)


def _duration(start: str, end: str) -> tuple[int, str]:
    """How long each time of a cron trigger lasts, in seconds; or why that is not known."""
    for text in (start, end):
        if not _CRON.fullmatch(text) or re.search(r"(^|[,-])7([,-]|$)", text.split()[-1]):
            return 0, f"KEDA refuses {text!r} (five fields, weekdays from 0 to 6), so it has no HPA of this object"
    try:
        begins, ends = (CronSim(text, datetime(2001, 1, 1, tzinfo=UTC)) for text in (start, end))
        starts = list(itertools.islice(begins, _COMPARED))
        stops = list(itertools.islice(ends, 2 * _COMPARED))
    except CronSimError as error:
        return 0, f"its start or end is not a cron expression ({error})"
    lasts = {next(((stop - start).total_seconds() for stop in stops if stop > start), 0.0) for start in starts} - {0.0}
    if len(lasts) != 1:
        return 0, "its times do not last equally long"
    seconds = int(lasts.pop())
    begun = {start + timedelta(seconds=seconds) for start in starts}
    if any(starts[0] < stop < starts[-1] and stop not in begun for stop in stops):
        return 0, "it has more ends than beginnings; KEDA keeps its count to the last end before the next beginning"
    return (seconds, "") if seconds <= _WEEK else (0, "its times last longer than a week")


def _prometheus(place: int, fields: Fields, draft: Draft, servers: Servers, sleeps: bool) -> None:
    metadata = fields.section("metadata")
    text = metadata.text("query", required=True)
    try:
        query = one_number(text)
    except Refusal as refusal:
        raise Refusal(f"{metadata.at('query')}: {refusal}") from None
    threshold = _threshold(metadata)
    if sleeps:
        metadata.lost("activationThreshold", "it only decides when KEDA leaves the idle count or 0")
    metadata.get("activationThreshold")
    name = draft.free_name(fields.text("name") or metadata.text("metricName") or f"prometheus-{place}")
    nulls = metadata.text("ignoreNullValues", "true").lower() in {"true", "t", "1"}
    for answer in missing_answers(text):
        if nulls or answer == "NaN":  # which KEDA takes for 0 in any case
            metadata.note(
                NoteKind.DIFFERS, "ignoreNullValues", nulls,
                f"KEDA takes {answer} for 0 and shrinks the service; here it is an error, and the count stays. Only "
                "where it means no load, write ((QUERY) >= 0) or vector(0)",
            )  # fmt: skip
    total = fields.text("metricType", "AverageValue") == "Value"
    source = {"query": {"promQL": query, "server": _server(fields, metadata, servers)}}
    draft.goals.append(Goal(name=name, source=source, target=threshold, total=total, path=fields.path))


def _threshold(metadata: Fields) -> Fraction:
    """The threshold in units, cut to thousandths as KEDA does. Raises Refusal."""
    text = metadata.text("threshold", required=True)
    try:
        exact = Fraction(text)
    except ValueError:
        raise Refusal(f"{metadata.at('threshold')}: {text!r} is not a number") from None
    milli = int(exact * 1000)
    if milli <= 0:
        raise Refusal(f"{metadata.at('threshold')}: {text} must be at least 0.001")
    if milli != exact * 1000:
        metadata.note(NoteKind.DIFFERS, "threshold", text, f"KEDA cuts it to {milli}m, which is kept")
    return Fraction(milli, 1000)


def _server(fields: Fields, metadata: Fields, servers: Servers) -> str:
    """The name of the trigger's Prometheus in the settings. Raises Refusal."""
    url = metadata.text("serverAddress", required=True)
    options: dict[str, Any] = {"insecureSkipVerify": True} if metadata.flag("unsafeSsl") else {}
    pairs = [header.partition("=") for header in metadata.text("customHeaders").split(",") if header.strip()]
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    if tenant := metadata.text("cortexOrgID"):
        headers["X-Scope-OrgID"] = tenant
    if headers:
        options["headers"] = headers
    faults = [*url_faults(url), *(header_faults(headers, {}, authorized=False) if headers else ())]
    if faults:
        raise Refusal(f"{metadata.path}: {'; '.join(map(str, faults))}")
    if metadata.has("timeout"):
        sentence = "a query may take 5 s; timeoutSeconds of the server in the settings changes it"
        metadata.note(NoteKind.DIFFERS, "timeout", metadata.text("timeout"), sentence)
    for key, sentence in _SERVERS_OWN.items():
        metadata.lost(key, sentence)
    for reader, key in ((fields, "authenticationRef"), (metadata, "authModes")):
        if reader.has(key):
            sentence = (
                "credentials do not come along: give the server in the settings a passwordFile, bearerTokenFile or "
                "headerFiles"
            )
            reader.note(NoteKind.TO_DO, key, reader.get(key), sentence)
    return servers.name_of(url, **options)


def _fallback(fields: Fields, draft: Draft, polling: int) -> None:
    failures, replicas = fields.whole("failureThreshold", 3), fields.whole("replicas", 0)
    behavior = fields.text("behavior", "static")
    queries = [goal for goal in draft.goals if "query" in goal.source]
    if not queries:
        sentence = "KEDA never falls back for cpu and memory; a policy would, so no fallback is written"
        fields.note(NoteKind.LOST, "replicas", replicas, sentence)
    elif behavior in {"currentReplicas", "currentReplicasIfLower"} or replicas == 0:
        sentence = "a fallback never lowers the count here; none is written, and the count stays without an answer"
        fields.note(NoteKind.DIFFERS, "behavior", behavior, sentence)
    else:
        after = min(MOST_SECONDS, failures * polling)
        draft.spec["fallback"] = {"afterSeconds": after, "replicas": replicas}
        sentence = f"it is {after} s without an answer ({failures} × {polling} s); failures are not counted"
        fields.note(NoteKind.DIFFERS, "failureThreshold", failures, sentence)
        if behavior == "static":
            sentence = "it is a least count: a larger one stays, which KEDA's fallback would lower"
            fields.note(NoteKind.DIFFERS, "replicas", replicas, sentence)
        if len(draft.goals) > 1:
            fields.note(
                NoteKind.DIFFERS, "replicas", replicas,
                f"it applies only while no metric answers. While one of several fails, KEDA goes to {replicas}; the "
                "policy keeps the count, and scales up by the others",
            )  # fmt: skip


def _pauses(annotations: Mapping[str, str], draft: Draft) -> None:
    """The policy's mode and velocity, by the annotations that pause KEDA. What is not a boolean is true to it."""
    replicas, on = annotations.get(_PAUSED_REPLICAS), {key for key, value in annotations.items() if value not in _FALSE}
    if replicas is not None:
        metadata = Fields({}, f"metadata.annotations[{_PAUSED_REPLICAS}]", draft.notes)
        metadata.note(NoteKind.TO_DO, "", replicas, "mode Paused keeps the count as it is; set that count by hand")
    if replicas is not None or _PAUSED in on:
        draft.spec["mode"] = "Paused"
    for key, direction in _ONE_WAY.items():
        if key in on:
            draft.spec.setdefault("velocity", {})[direction] = 0
