"""Reads a KEDA ScaledObject (keda.sh/v1alpha1): its HPA, its triggers, and its own steps."""

from collections.abc import Mapping
from typing import Any

from adapter.commands.migrate.keda_trigger import KedaTrigger, Triggers
from adapter.commands.migrate.native_hpa import Behavior, policy_tolerance, read_behavior
from adapter.commands.migrate.original import (
    Fields,
    NoteKind,
    ObjectIdentity,
    note_annotations,
    read_identity,
    read_target,
)
from adapter.commands.migrate.pair import Draft, Keda, StockHpa, stock_hpa
from adapter.commands.migrate.settings_part import SettingsPart
from adapter.policy.field_reader import PolicyError
from adapter.policy.pacing_fields import MOST_REPLICAS

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


def read(place: str, root: Fields, part: SettingsPart) -> Draft:
    """Read one object into a draft; faults and notes go where the fields have them."""
    root.get("apiVersion"), root.get("kind")
    identity = read_identity(root)
    return _Reader(root, identity, part).draft(place)


class _Reader:
    """Reads one object."""

    def __init__(self, root: Fields, identity: ObjectIdentity, part: SettingsPart) -> None:
        self._root = root
        self._spec = root.section("spec")
        self._identity = identity
        self._part = part
        self._policy: dict[str, Any] = {}
        self._polling = 30

    def draft(self, place: str) -> Draft:
        spec = self._spec
        target = read_target(spec, default_kind="Deployment")
        minimum, maximum, idle = self._bounds()
        behavior = self._advanced()
        triggers = Triggers(spec, self._part, rests=idle is not None).read()
        if triggers.is_total:
            self._policy["average"] = "Total"
        if triggers.schedules:
            self._policy["schedules"] = triggers.schedules
        self._policy["tolerance"] = policy_tolerance(spec, behavior, "advanced.horizontalPodAutoscalerConfig.behavior")
        cooldown = self._periods(rests=idle is not None)
        self._fallback()
        self._annotations()
        spec.rest(KIND)
        self._root.rest(KIND)
        self._note_handover(target.kind, target.name)
        draft = Draft(
            place=place,
            source=KIND,
            identity=self._identity,
            target=target,
            minimum=minimum,
            maximum=maximum,
            notes=spec.notes,
            goals=triggers.goals,
            spec=self._policy,
            behavior=behavior.data,
        )
        draft.original = self._original(draft, triggers.all, idle, cooldown)
        return draft

    def _bounds(self) -> tuple[int, int, int | None]:
        """The HPA's bounds, and the count that KEDA itself goes to without load (None: it never does)."""
        spec = self._spec
        least = spec.integer("minReplicaCount", 0, 0, MOST_REPLICAS)
        most = spec.integer("maxReplicaCount", _DEFAULT_MOST, 1, MOST_REPLICAS)
        idle = spec.optional_integer("idleReplicaCount", 0, MOST_REPLICAS)
        if max(least, 1) > most:
            spec.fault("minReplicaCount", least, f"must be at most maxReplicaCount ({most})")
        if idle is not None and idle >= max(least, 1):
            spec.fault("idleReplicaCount", idle, f"must be less than minReplicaCount ({least})")
        spec.lost("idleReplicaCount", "without load the count stays at the HPA's minReplicas")
        if idle is None and least == 0 and self._leaves_zero():
            spec.notes.add(
                NoteKind.LOST, spec.at("minReplicaCount"), spec.get("minReplicaCount"),
                "KEDA scales to 0 and back by itself; the HPA does so only where the cluster has the feature gate "
                "HPAScaleToZero, the default from 1.37 on. It is 1 here; set minReplicas: 0 where the gate is on",
            )  # fmt: skip
            idle = 0
        return max(1, least), most, idle

    def _leaves_zero(self) -> bool:
        """Whether a trigger can wake the service: cpu and memory of no pod cannot, so that KEDA keeps one."""
        triggers = self._spec.get("triggers")
        kinds = (
            [trigger.get("type") for trigger in triggers if isinstance(trigger, Mapping)]
            if isinstance(triggers, list)
            else []
        )
        return any(kind not in ("cpu", "memory") for kind in kinds)

    def _advanced(self) -> Behavior:
        advanced = self._spec.section("advanced")
        hpa = advanced.section("horizontalPodAutoscalerConfig")
        hpa.irrelevant("the new HPA has the policy's name", "name")
        behavior = read_behavior(hpa)
        hpa.rest("horizontalPodAutoscalerConfig")
        if advanced.flag("restoreToOriginalReplicaCount", default=False):
            advanced.note(
                NoteKind.TO_DO, "restoreToOriginalReplicaCount",
                "set it to false before you delete the ScaledObject, which would set the count of long ago",
            )  # fmt: skip
        if advanced.get("scalingModifiers") not in (None, {}):  # KEDA stores an empty one in every object
            advanced.fault(
                "scalingModifiers", None, "a formula over triggers has no equivalent; write it as one PromQL query"
            )
        advanced.rest("advanced")
        return behavior

    def _periods(self, *, rests: bool) -> int:
        spec = self._spec
        self._polling = spec.integer("pollingInterval", 30, 1, _MOST_SECONDS)
        if spec.has("pollingInterval"):
            sentence = "KEDA's HPA asks at each of its own syncs; a policy's PromQL is asked every 15 s"
            spec.note(NoteKind.IRRELEVANT, "pollingInterval", sentence)
        cooldown = spec.integer("cooldownPeriod", 300, 0, _MOST_SECONDS)
        for key in ("cooldownPeriod", "initialCooldownPeriod"):
            if not spec.has(key):
                continue
            if rests:
                spec.lost(key, "it only delays the way to the idle count or 0, which KEDA goes by itself")
            else:
                spec.irrelevant("it only delays the way to the idle count or 0, which this object never goes", key)
        spec.get("initialCooldownPeriod")
        return cooldown

    def _fallback(self) -> None:
        spec = self._spec
        if not spec.has("fallback"):
            return
        fields = spec.section("fallback")
        failures = fields.integer("failureThreshold", 0, 0, _MOST_SECONDS)
        replicas = fields.integer("replicas", 0, 0, MOST_REPLICAS)
        behavior = fields.get("behavior")
        fields.rest("fallback")
        if isinstance(behavior, str) and behavior == "currentReplicas":
            fields.note(
                NoteKind.DIFFERS, "behavior", "the count stays where no query answers, with no fallback written"
            )
        elif isinstance(behavior, str) and behavior == "currentReplicasIfLower":
            fields.lost("behavior", "a fallback never lowers the count; without one it stays where no query answers")
        elif behavior in (None, "") or (
            isinstance(behavior, str) and behavior in ("static", "currentReplicasIfHigher")
        ):
            self._write_fallback(fields, failures, replicas, static=behavior != "currentReplicasIfHigher")
        else:
            fields.fault("behavior", behavior, "is no behavior of a fallback")

    def _write_fallback(self, fields: Fields, failures: int, replicas: int, *, static: bool) -> None:
        if replicas == 0:
            fields.note(NoteKind.LOST, "replicas", "a fallback never lowers the count; the count stays instead")
            return
        after = min(_DAY, failures * self._polling)
        self._policy["fallback"] = {"afterSeconds": after, "replicas": replicas}
        sentence = f"failures are not counted: it is {after} s without an answer ({failures} × {self._polling} s)"
        fields.note(NoteKind.DIFFERS, "failureThreshold", sentence)
        if static:
            sentence = "it is a least count: a larger one stays, which KEDA's fallback would lower"
            fields.note(NoteKind.DIFFERS, "replicas", sentence)

    def _annotations(self) -> None:
        left = dict(self._identity.annotations)
        notes = self._root.notes
        replicas = left.pop(_PAUSED_REPLICAS, None)
        if replicas is not None:
            path = f"metadata.annotations[{_PAUSED_REPLICAS}]"
            notes.add(NoteKind.TO_DO, path, replicas, "mode Paused keeps the count as it is; set that count by hand")
        if replicas is not None or _is_on(left.pop(_PAUSED, None)):
            self._policy["mode"] = "Paused"
        left.pop(_PAUSED, None)
        for keys, direction in ((_NO_DOWN, "scaleDownPercent"), (_NO_UP, "scaleUpPercent")):
            if any(_is_on(left.get(key)) for key in keys):
                self._policy.setdefault("velocity", {})[direction] = 0
            left = {key: value for key, value in left.items() if key not in keys}
        for key in _OWNERSHIP:
            value = left.pop(key, None)
            if value is not None:
                notes.add(NoteKind.IRRELEVANT, f"metadata.annotations[{key}]", value, "is for the HPA that KEDA makes")
        note_annotations(notes, left)

    def _note_handover(self, kind: str, name: str) -> None:
        where = f" -n {self._identity.namespace}" if self._identity.namespace else ""
        self._root.notes.add(
            NoteKind.TO_DO, "", None,
            f"KEDA's own HPA of {kind} {name} would be a second one, and two HPAs of the same pods do not act: delete "
            f"the original first (kubectl delete scaledobject {self._identity.name}{where})",
        )  # fmt: skip

    def _original(self, draft: Draft, triggers: list[KedaTrigger], idle: int | None, cooldown: int) -> Keda | None:
        if self._root.faults:
            return None
        reference: Mapping[str, Any] = {
            "apiVersion": draft.target.api_version, "kind": draft.target.kind, "name": draft.target.name,
        }  # fmt: skip
        advanced = self._spec.get("advanced") or {}
        behavior = (advanced.get("horizontalPodAutoscalerConfig") or {}).get("behavior")
        spec = {
            "scaleTargetRef": reference,
            "minReplicas": draft.minimum,
            "maxReplicas": draft.maximum,
            "metrics": [trigger.hpa_metric for trigger in triggers],
            **({} if behavior is None else {"behavior": behavior}),
        }
        try:
            hpa = stock_hpa(self._identity, spec)
        except PolicyError as error:
            self._root.faults += error.faults
            return None
        kept = {goal.name for goal in draft.goals}
        names = tuple(one.goal.name if one.goal.name in kept else "" for one in triggers)
        activations = {one.goal.name: one.activation for one in triggers if one.activation is not None}
        return Keda(
            stock=StockHpa(hpa=hpa, names=names),
            idle=idle,
            cooldown=float(cooldown),
            polling=float(self._polling),
            activations=activations,
        )


def _is_on(value: str | None) -> bool:
    """An annotation's truth as KEDA reads it: anything that is no boolean is true."""
    return value is not None and value not in _FALSE
