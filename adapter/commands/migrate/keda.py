"""Reads a KEDA ScaledObject (keda.sh/v1alpha1): its HPA, its triggers, and its own steps.

Triggers prometheus, cpu and memory become metrics, cron becomes schedules; the others are named, with PromQL for the
commonest.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from cronsim import CronSim, CronSimError

from adapter.commands.migrate import queries
from adapter.commands.migrate.native_hpa import Behavior, note_mixed, policy_tolerance, read_behavior, resource_goal
from adapter.commands.migrate.original import (
    Fields,
    NoteKind,
    Notes,
    note_annotations,
    read_identity,
    read_target,
)
from adapter.commands.migrate.pair import LARGEST, Draft, Goal, metric_name
from adapter.commands.migrate.queries import SettingsPart
from adapter.policy.watermark_policy import MOST_REPLICAS
from adapter.settings.base import header_faults, url_faults

API_GROUP = "keda.sh"
KIND = "ScaledObject"

_DAY = 86_400
_MOST_SECONDS = 2**31 - 1
_DEFAULT_MOST = 100
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}
_PAUSED = "autoscaling.keda.sh/paused"
_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
_NO_DOWN = ("autoscaling.keda.sh/paused-scale-in", "autoscaling.keda.sh/paused-scale-down")
_NO_UP = ("autoscaling.keda.sh/paused-scale-out",)
_OWNERSHIP = (
    "scaledobject.keda.sh/transfer-hpa-ownership", "validations.keda.sh/hpa-ownership",
    "scaledobject.keda.sh/hpa-excluded-labels", "autoscaling.keda.sh/force-activation",
)  # fmt: skip
_MOST_TRIGGERS = 100
_LONGEST_TEXT = 8192
_NUMBER = re.compile(r"[-+]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?", re.ASCII)
_WEEK = 7 * _DAY
_COMPARED_TIMES = 60
"""How many times of a cron trigger must last equally long."""
_KAFKA = (
    "sum(clamp_min(kafka_consumergroup_lag{consumergroup=…, topic=…}, 0)) of kafka_exporter, which says -1 of no offset"
)
RECIPES = {
    "kafka": _KAFKA,
    "apache-kafka": _KAFKA,
    "rabbitmq": "sum(rabbitmq_detailed_queue_messages_ready{vhost=…, queue=…}) of RabbitMQ's own "
    "/metrics/detailed?family=queue_coarse_metrics, of each node",
    "aws-sqs-queue": "sum(aws_sqs_approximate_number_of_messages_visible_average{queue_name=…}) of cloudwatch_exporter",
    "redis": "sum(redis_key_size{key=…}) of redis_exporter with --check-single-keys",
    "redis-streams": "sum(redis_stream_group_messages_pending{stream=…, group=…}) of redis_exporter "
    "with --check-streams",
    "azure-servicebus": "sum(servicebus_queue_active_messages{name=…}) of servicebus_exporter",
    "gcp-pubsub": "sum(stackdriver_pubsub_subscription_pubsub_googleapis_com_subscription_num_undelivered_messages"
    "{subscription_id=…}) of stackdriver_exporter",
    "nats-jetstream": "sum(jetstream_consumer_num_pending{consumer_name=…, is_consumer_leader='true'}) of "
    "prometheus-nats-exporter with -jsz=all (nats_… with its Helm chart)",
    "pulsar": "sum(pulsar_subscription_back_log{topic=…, subscription=…}) of the brokers",
    "postgresql": "the same query as a metric of sql_exporter or of postgres_exporter's custom queries",
    "mysql": "the same query as a metric of sql_exporter",
}
"""The PromQL that says what a trigger asks its own system, by the trigger's type."""
_NO_RECIPE = "a number that only KEDA's scaler reads; export it to Prometheus, and write it as PromQL"
_WHOLE_SERVICE, _PER_POD = "Value", "AverageValue"


def read(place: str, root: Fields, part: SettingsPart) -> Draft:
    """Read one object into a draft; faults and notes go where the fields have them."""
    root.get("apiVersion"), root.get("kind")
    identity, spec = read_identity(root), root.section("spec")
    target = read_target(spec, default_kind="Deployment")
    minimum, maximum, idle = _bounds(spec)
    behavior = _behavior(spec.section("advanced"))
    triggers = Triggers(spec, part, rests=idle is not None).read()
    policy: dict[str, Any] = {"algorithm": "Absolute"} if triggers.is_total else {}
    if triggers.schedules:
        policy["schedules"] = triggers.schedules
    policy["tolerance"] = policy_tolerance(spec, behavior, "advanced.horizontalPodAutoscalerConfig.behavior")
    polling = spec.integer("pollingInterval", 30, 1, _MOST_SECONDS)
    spec.integer("cooldownPeriod", 300, 0, _MOST_SECONDS)
    if idle is not None:
        for key in ("cooldownPeriod", "initialCooldownPeriod"):
            spec.lost(key, "it only delays the way to the idle count or 0, which KEDA goes by itself")
    if spec.has("fallback"):
        policy |= _fallback(spec.section("fallback"), polling)
    policy |= _pauses(identity.annotations, root.notes)
    spec.rest()
    root.rest()
    where = f" -n {identity.namespace}" if identity.namespace else ""
    root.notes.add(
        NoteKind.TO_DO, "", None,
        f"KEDA's own HPA of {target.kind} {target.name} would be a second one, and two HPAs of the same pods do "
        f"not act: delete the original first (kubectl delete scaledobject {identity.name}{where})",
    )  # fmt: skip
    return Draft(
        place=place,
        source=KIND,
        identity=identity,
        target=target,
        minimum=minimum,
        maximum=maximum,
        notes=spec.notes,
        goals=triggers.goals,
        spec=policy,
        behavior=behavior.data,
    )


def _bounds(spec: Fields) -> tuple[int, int, int | None]:
    """The HPA's bounds, and the count that KEDA itself goes to without load (None: it never does)."""
    least = spec.integer("minReplicaCount", 0, 0, MOST_REPLICAS)
    most = spec.integer("maxReplicaCount", _DEFAULT_MOST, 1, MOST_REPLICAS)
    idle = spec.optional_integer("idleReplicaCount", 0, MOST_REPLICAS)
    if max(least, 1) > most:
        spec.fault("minReplicaCount", least, f"must be at most maxReplicaCount ({most})")
    if idle is not None and idle >= max(least, 1):
        spec.fault("idleReplicaCount", idle, f"must be less than minReplicaCount ({least})")
    spec.lost("idleReplicaCount", "without load the count stays at the HPA's minReplicas")
    triggers = spec.get("triggers")
    # cpu and memory of no pod cannot wake the service, so that KEDA keeps one.
    can_wake = any(
        trigger.get("type") not in ("cpu", "memory")
        for trigger in (triggers if isinstance(triggers, list) else ())
        if isinstance(trigger, Mapping)
    )
    if idle is None and least == 0 and can_wake:
        spec.notes.add(
            NoteKind.LOST, spec.at("minReplicaCount"), spec.get("minReplicaCount"),
            "KEDA scales to 0 and back by itself; the HPA does so only where the cluster has the feature gate "
            "HPAScaleToZero, the default from 1.37 on. It is 1 here; set minReplicas: 0 where the gate is on",
        )  # fmt: skip
        idle = 0
    return max(1, least), most, idle


def _behavior(advanced: Fields) -> Behavior:
    hpa = advanced.section("horizontalPodAutoscalerConfig")
    behavior = read_behavior(hpa)
    hpa.rest()
    if advanced.flag("restoreToOriginalReplicaCount", default=False):
        advanced.note(
            NoteKind.TO_DO, "restoreToOriginalReplicaCount",
            "set it to false before you delete the ScaledObject, which would set the count of long ago",
        )  # fmt: skip
    if advanced.get("scalingModifiers") not in (None, {}):  # KEDA stores an empty one in every object
        advanced.fault(
            "scalingModifiers", None, "a formula over triggers has no equivalent; write it as one PromQL query"
        )
    advanced.rest()
    return behavior


def _fallback(fields: Fields, polling: int) -> dict[str, Any]:
    """The policy's fallback, as its field."""
    failures = fields.integer("failureThreshold", 0, 0, _MOST_SECONDS)
    replicas = fields.integer("replicas", 0, 0, MOST_REPLICAS)
    behavior = fields.get("behavior")
    behavior = "static" if behavior in (None, "") else behavior
    fields.rest()
    if behavior == "currentReplicas":
        fields.note(NoteKind.DIFFERS, "behavior", "the count stays where no query answers, with no fallback written")
    elif behavior == "currentReplicasIfLower":
        fields.lost("behavior", "a fallback never lowers the count; without one it stays where no query answers")
    elif behavior not in ("static", "currentReplicasIfHigher"):
        fields.fault("behavior", behavior, "is no behavior of a fallback")
    elif replicas == 0:
        fields.note(NoteKind.LOST, "replicas", "a fallback never lowers the count; the count stays instead")
    else:
        after = min(_DAY, failures * polling)
        sentence = f"failures are not counted: it is {after} s without an answer ({failures} × {polling} s)"
        fields.note(NoteKind.DIFFERS, "failureThreshold", sentence)
        if behavior == "static":
            sentence = "it is a least count: a larger one stays, which KEDA's fallback would lower"
            fields.note(NoteKind.DIFFERS, "replicas", sentence)
        return {"fallback": {"afterSeconds": after, "replicas": replicas}}
    return {}


def _pauses(annotations: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    """The policy's mode and velocity, as its fields, by the annotations that pause KEDA."""
    policy, replicas = dict[str, Any](), annotations.get(_PAUSED_REPLICAS)
    on = {key for key, value in annotations.items() if value not in _FALSE}  # to KEDA what is no boolean is true
    if replicas is not None:
        path = f"metadata.annotations[{_PAUSED_REPLICAS}]"
        notes.add(NoteKind.TO_DO, path, replicas, "mode Paused keeps the count as it is; set that count by hand")
    if replicas is not None or _PAUSED in on:
        policy["mode"] = "Paused"
    for keys, direction in ((_NO_DOWN, "scaleDownPercent"), (_NO_UP, "scaleUpPercent")):
        if not on.isdisjoint(keys):
            policy.setdefault("velocity", {})[direction] = 0
    known = {_PAUSED, _PAUSED_REPLICAS, *_NO_DOWN, *_NO_UP, *_OWNERSHIP}
    note_annotations(notes, {key: value for key, value in annotations.items() if key not in known})
    return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaTrigger:
    """A trigger that becomes a metric. `total`: its target is for the whole service."""

    goal: Goal
    total: bool = False
    path: str = ""


@dataclass(slots=True)
class Triggers:
    """The triggers of one object. `rests`: KEDA also scales to an idle count, for which activation matters."""

    spec: Fields
    part: SettingsPart
    rests: bool
    all: list[KedaTrigger] = field(default_factory=list)
    is_total: bool = False
    schedules: list[dict[str, Any]] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def read(self) -> "Triggers":
        """Read every trigger; notes those that become no metric."""
        for place, fields in enumerate(self.spec.sections("triggers", _MOST_TRIGGERS)):
            kind, metadata = fields.text("type", required="the trigger's type"), fields.section("metadata")
            if kind == "prometheus":
                self._prometheus(place, fields, metadata)
            elif kind in ("cpu", "memory"):
                self._resource(kind, fields, metadata)
            elif kind == "cron":
                self._cron(place, fields, metadata)
            else:
                recipe = RECIPES.get(kind, "")
                self._unwritten(fields, kind, f"write it as a metric with PromQL: {recipe}" if recipe else _NO_RECIPE)
                continue
            metadata.rest()
            fields.rest()
        if not self.spec.sequence("triggers", _MOST_TRIGGERS):
            self.spec.fault("triggers", None, "there is no trigger to migrate")
        if self.unwritten and not self.all:
            rest = "; ".join(self.unwritten)
            self.spec.fault("triggers", None, f"no trigger becomes a metric, and a policy needs one: {rest}")
        self.is_total = bool(self.all) and all(trigger.total for trigger in self.all)
        for trigger in self.all:
            if trigger.total is self.is_total:
                self.goals.append(trigger.goal)
            else:
                note_mixed(self.spec, trigger.path, trigger.goal.name)
        return self

    def _unwritten(self, fields: Fields, kind: str, advice: str) -> None:
        """A trigger that becomes nothing: a note beside other triggers, a fault where there is none."""
        subject = " ".join(filter(None, (f"trigger {kind}", _word(fields, "name"))))
        self.unwritten.append(f"{subject}: {advice}")
        fields.notes.add(
            NoteKind.LOST, fields.path, fields.data, f"{subject}: the count no longer follows it; {advice}"
        )

    def _cron(self, place: int, fields: Fields, metadata: Fields) -> None:
        """Times with a least count: KEDA's HPA never goes below `desiredReplicas` between `start` and `end`."""
        zone = _word(metadata, "timezone", required="the time zone")
        # KEDA reads a question mark as a star.
        start, end = (
            _word(metadata, key, required="a cron expression of five fields").replace("?", "*")
            for key in ("start", "end")
        )
        replicas = _word(metadata, "desiredReplicas", required="how many replicas")
        if not (zone and start and end and replicas):
            return
        if not re.fullmatch(r"[0-9]{1,9}", replicas, re.ASCII):
            metadata.fault("desiredReplicas", metadata.get("desiredReplicas"), "write a whole number")
            return
        seconds, reason = _duration(start, end)
        if seconds is None:
            self._unwritten(fields, "cron", f"{reason}; write `schedules` by hand")
            return
        self.unwritten.append("trigger cron: its times become schedules, which a policy has beside its metrics")
        self.schedules.append(
            {
                "name": f"cron-{place}",
                "cron": start,
                "timeZone": zone,
                "durationSeconds": seconds,
                "minReplicas": int(replicas),
            }
        )
        metadata.note(NoteKind.DIFFERS, "end", f"a schedule has a beginning and a duration: {seconds} s")

    def _resource(self, kind: str, fields: Fields, metadata: Fields) -> None:
        target_kind = _word(fields, "metricType") or _word(metadata, "type") or "Utilization"
        value = _word(metadata, "value", required="the target")
        container = _word(metadata, "containerName")
        if target_kind not in ("Utilization", "AverageValue"):
            fields.fault("metricType", target_kind, "write Utilization or AverageValue")
            return
        target: dict[str, Any] = {"type": target_kind}
        if target_kind == "Utilization":
            whole = re.fullmatch(r"[0-9]{1,4}", value, re.ASCII)
            target["averageUtilization"] = int(value) if whole else value
        else:
            target["averageValue"] = value
        source = {"name": kind, "target": target}
        # Read as the metric of the HPA that KEDA makes of it; faults name the trigger.
        hpa = Fields(source, metadata.path, fields.faults, fields.notes)
        goal = resource_goal(hpa, kind, container, [trigger.goal.name for trigger in self.all])
        if goal is None:
            return
        self.all.append(KedaTrigger(goal=goal, path=fields.path))

    def _prometheus(self, place: int, fields: Fields, metadata: Fields) -> None:
        query = metadata.text("query", required="the PromQL", longest=_LONGEST_TEXT)
        fault = queries.fault_of(metadata.at("query"), query) if query else None
        if fault is not None:
            fields.faults.append(fault)
        threshold = _milli(metadata, "threshold")
        if threshold is not None and threshold <= 0:
            metadata.fault("threshold", metadata.get("threshold"), "must be at least 0.001")
        kind = _word(fields, "metricType") or _PER_POD
        if kind not in (_PER_POD, _WHOLE_SERVICE):
            fields.fault("metricType", kind, f"write {_PER_POD} or {_WHOLE_SERVICE}")
        _milli(metadata, "activationThreshold")  # notes its faults
        if self.rests:
            metadata.lost("activationThreshold", "it only decides when KEDA leaves the idle count or 0, by itself")
        server = self._server(fields, metadata)
        wanted = _word(fields, "name") or _word(metadata, "metricName") or f"prometheus-{place}"
        ignore = _word(metadata, "ignoreNullValues").lower() or "true"
        if ignore not in {"true", "t", "1", "false", "f", "0"}:
            metadata.fault("ignoreNullValues", metadata.get("ignoreNullValues"), 'write "true" or "false"')
        elif ignore in {"true", "t", "1"}:
            metadata.notes.add(
                NoteKind.DIFFERS, metadata.at("ignoreNullValues"), metadata.get("ignoreNullValues"),
                "KEDA takes an empty answer for 0 and shrinks the service; here it is an error, and the count stays. "
                "Only where no series really means no load, add 'or vector(0)' to the query",
            )  # fmt: skip
        if fields.faults or threshold is None:
            return
        self.part.inline()
        source = {"query": {"promQL": queries.one_number(query), "server": server}}
        name = metric_name(wanted, [trigger.goal.name for trigger in self.all])
        goal = Goal(name=name, source=source, target=Fraction(threshold, 1000))
        self.all.append(KedaTrigger(goal=goal, total=kind == _WHOLE_SERVICE, path=fields.path))

    def _server(self, fields: Fields, metadata: Fields) -> str:
        url = metadata.text("serverAddress", required="the address of Prometheus", longest=_LONGEST_TEXT)
        if url:
            fields.faults += (fault.within(metadata.at("serverAddress")) for fault in url_faults(url))
        options: dict[str, Any] = {}
        if _word(metadata, "unsafeSsl").lower() in {"true", "t", "1"}:
            options["insecureSkipVerify"] = True
        pairs = [header.partition("=") for header in _word(metadata, "customHeaders").split(",") if header.strip()]
        if any(not sign or not name.strip() for name, sign, _ in pairs):
            metadata.fault("customHeaders", metadata.get("customHeaders"), "write name=value, with commas between them")
        headers = {name.strip(): value.strip() for name, _, value in pairs}
        if tenant := _word(metadata, "cortexOrgID"):
            headers["X-Scope-OrgID"] = tenant
        if headers:
            options["headers"] = headers
            fields.faults += (
                replace(fault, path=fault.path.replace("headers[", "customHeaders[")).within(metadata.path)
                for fault in header_faults(headers, {}, authorized=False)
            )
        if metadata.has("timeout"):
            metadata.note(NoteKind.DIFFERS, "timeout", "a query may take 5 s; timeoutSeconds of the server sets it")
        metadata.lost(
            "namespace", "a URL parameter of each query; put the namespace into the query or the server's url"
        )
        metadata.lost("queryParameters", "the server is asked without further parameters")
        metadata.lost("awsRegion", "requests are not signed for AWS; ask through a proxy that signs them")
        metadata.lost("identityOwner", "requests are not signed for AWS; ask through a proxy that signs them")
        for reader, key in ((fields, "authenticationRef"), (metadata, "authModes")):
            if reader.has(key):
                reader.note(
                    NoteKind.TO_DO, key,
                    "credentials do not come along: give the server in the settings its passwordFile, "
                    "bearerTokenFile or headerFiles",
                )  # fmt: skip
        return self.part.server(url, options)


def _duration(start: str, end: str) -> tuple[int | None, str]:
    """How long each time of a cron trigger lasts, in seconds; None and the reason where that differs or is unknown."""
    try:
        begins, ends = (CronSim(text, datetime(2001, 1, 1, tzinfo=UTC)) for text in (start, end))
        starts = list(itertools.islice(begins, _COMPARED_TIMES))
        stops = list(itertools.islice(ends, 2 * _COMPARED_TIMES))
    except CronSimError as error:
        return None, f"its start or end is no cron expression ({error})"
    lasts = {next(((stop - start).total_seconds() for stop in stops if stop > start), 0.0) for start in starts} - {0.0}
    if len(lasts) != 1:
        return None, "its times do not last equally long"
    seconds = int(lasts.pop())
    begun = {start + timedelta(seconds=seconds) for start in starts}
    if any(starts[0] < stop < starts[-1] and stop not in begun for stop in stops):
        return None, "it also ends where it has not begun, and KEDA keeps its count from there to the next beginning"
    return (seconds, "") if seconds <= _WEEK else (None, "its times last longer than a week")


def _word(fields: Fields, key: str, *, required: str = "") -> str:
    """A text, or a number or boolean that was not put in quotes; empty where absent."""
    value = fields.get(key)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)[:100] if not isinstance(value, int) or value.bit_length() < 200 else ""
    if value in (None, "") and not required:
        return ""
    return fields.text(key, required=required, longest=_LONGEST_TEXT)


def _milli(metadata: Fields, key: str) -> int | None:
    """A number of a trigger's metadata in milli-units, truncated as KEDA does; None where absent or faulty."""
    text = _word(metadata, key, required="a number" if key == "threshold" else "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or Fraction(text) > LARGEST:
        metadata.fault(key, metadata.get(key), "is no number that a target can be; write one such as 100 or 0.5")
        return None
    exact = Fraction(text) * 1000
    milli = int(exact)
    if exact != milli:
        metadata.note(NoteKind.DIFFERS, key, f"KEDA truncates it to {milli}m, which is kept")
    return milli
