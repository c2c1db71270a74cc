"""Reads a HorizontalPodAutoscaler (autoscaling/v2): resource metrics, those of prometheus-adapter, and behavior."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.prometheus_adapter import AdapterRules, ServedMetric, candidates
from adapter.commands.migrate.queries import missing_answers, placeholder
from adapter.commands.migrate.read import Draft, Fields, Goal, NoteKind, Refusal, quantity, read_draft
from adapter.policy.hpa import DEFAULT_TOLERANCE, SOURCES

API_GROUP = "autoscaling"
KIND = "HorizontalPodAutoscaler"
UNKNOWN_URL = "http://write-here-the-address-of-prometheus:9090"
"""Stands for a Prometheus that the original does not name."""
_OF_V2 = {"autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior"}
_FEWER_STEPS = (
    "after a step down the policy keeps the count until samples began later, and the HPA's stabilization window "
    "remembers that count: fewer, later steps down."
)
_MOST = 10
"""The largest share of the requests that a policy has, 1000 %."""


def read(root: Fields, rules: Sequence[AdapterRules]) -> Draft:
    """Read one HPA into a draft. Raises Refusal."""
    version, spec = root.text("apiVersion"), root.section("spec")
    draft = read_draft(root, "minReplicas", "maxReplicas")
    # As autoscaling/v1 the API server keeps everything but a share of cpu in annotations.
    is_whole = version == "autoscaling/v1" and not draft.annotations.keys() & _OF_V2
    if not is_whole and version not in {"autoscaling/v2", "autoscaling/v2beta2"}:
        raise Refusal(f"apiVersion: {version} is not autoscaling/v2: kubectl get hpa.v2.autoscaling NAME -o yaml")
    if draft.minimum == 0:
        spec.differs("minReplicas", "down to 0 goes only a metric of the whole service, not cpu", 0)
    read_behavior(spec, draft)
    if not spec.has("metrics"):
        percent = spec.whole("targetCPUUtilizationPercentage")
        if not percent:
            spec.differs("metrics", "the API server takes cpu at 80 % of the requests, as here")
        target = Fields({"target": {"averageUtilization": percent or 80}}, "spec.metrics", root.notes)
        draft.goals.append(resource_goal(target, draft, "cpu"))
    kinds = set()
    for fields in spec.sections("metrics"):
        kind = fields.text("type", required=True)
        if kind not in SOURCES:
            raise Refusal(f"{fields.at('type')}: {kind} is not one of {', '.join(SOURCES)}")
        kinds.add(kind)
        source = fields.section(SOURCES[kind])
        if not kind.endswith("Resource"):
            _served(source, kind, draft, rules)
        elif (name := source.text("name", required=True)) in {"cpu", "memory"}:
            draft.goals.append(resource_goal(source, draft, name, source.text("container")))
        else:
            sentence = "a policy reads only cpu and memory from metrics.k8s.io; it is left out"
            source.note(NoteKind.LOST, "", sentence, name)
            source.get("target")
            draft.reasons.append(f"{name}: {sentence}")
    if kinds & {"Pods", "Object"}:
        sentence = (
            "custom.metrics.k8s.io has one server: migrate all HPAs with Pods and Object metrics, or set an upstream"
        )
        root.note(NoteKind.TO_DO, "", sentence)
    return draft


def resource_goal(source: Fields, draft: Draft, name: str, container: str = "") -> Goal:
    """The goal of a cpu or memory metric with the `target` of an HPA. Raises Refusal."""
    wanted: dict[str, Any] = {"name": name, **({"containers": [container]} if container else {})}
    target = source.section("target")
    kind = target.text("type", "Utilization")
    if kind == "Utilization":
        value: Fraction | None = Fraction(percent := target.whole("averageUtilization"), 100)
        wanted["relativeTo"] = "Request"
        edge, tolerance = percent * (1 + draft.tolerance), float(draft.tolerance * 100)
        acts = f"at {percent} % with tolerance {tolerance:g} % it rises from {math.floor(edge) + 1} % on"
        sentence = f"an HPA cuts utilization to whole percents: {acts}, the policy above {float(edge):g} %."
        draft.note(NoteKind.DIFFERS, sentence)
    else:
        value = target.milli("averageValue")
    if not value or value < 0:
        raise Refusal(f"{target.path}: has no target of type {kind}")
    if kind == "Utilization" and value > _MOST:
        raise Refusal(f"{target.path}: {value * 100} % is above 1000 %, the most of a policy")
    return Goal(name=draft.free_name(name), resource=wanted, values={"target": value}, path=source.path)


def _served(source: Fields, kind: str, draft: Draft, rules: Sequence[AdapterRules]) -> None:
    """A metric that another adapter serves: a goal by its rules, kept in the HPA, or lost. Raises Refusal."""
    fields, target = source.section("metric"), source.section("target")
    metric = ServedMetric(kind, fields.text("name", required=True), fields.get("selector") or {}, draft.namespace)
    source.get("describedObject")
    by_value = target.text("type") == "Value"
    value = target.milli("value" if by_value else "averageValue")
    if not value or value < 0:
        raise Refusal(f"{target.path}: has no target")
    found, why = candidates(rules, metric)
    if not found:
        draft.reasons.append(f"{metric.name}: {why}")
        if kind != "External":
            source.note(NoteKind.LOST, "", f"it is left out: {why}", metric.name)
            return
        aim = {"type": "Value", "value": quantity(value)}
        aim = aim if by_value else {"type": "AverageValue", "averageValue": quantity(value)}
        served = {"name": metric.name, **({"selector": metric.selector} if metric.selector else {})}
        draft.kept.append({"type": kind, "external": {"metric": served, "target": aim}})
        lost = f"Its own tolerance of {float(draft.tolerance * 100):g} % is 0 there now"
        sentence = f"it stays in the HPA, its adapter has to serve it on, and the larger count wins. {lost}. {why}"
        source.note(NoteKind.KEPT, "", sentence, metric.name)
        return
    name, query = draft.free_name(metric.name), found[0].query
    if len(found) > 1:
        query = placeholder(name)
        listed = "; ".join(f"{one.rule}: {' '.join(one.query.split())}" for one in found)
        sentence = (
            f"several rules may give it: write one in the place of {query} (until then the count stays): {listed}"
        )
        source.note(NoteKind.TO_DO, "", sentence, metric.name)
    elif found[0].remark:
        source.differs("", found[0].remark, metric.name)
    if "NaN" in missing_answers(query):
        source.differs("", "prometheus-adapter takes NaN for 0; here it is an error, and the count stays", metric.name)
    draft.goals.append(
        Goal(
            name=name, path=source.path, query=query, server={"url": UNKNOWN_URL}, values={"target": value},
            total=by_value, by_pod=kind == "Pods",
        )
    )  # fmt: skip


def read_behavior(spec: Fields, draft: Draft) -> None:
    """Read an HPA's `behavior` into the draft. Its tolerances are 0 in the new HPA, for the policy has one."""
    if not spec.has("behavior"):
        sentence = "without it an HPA may go up to 4 pods or to twice the count; now by 4 pods or to twice"
        spec.differs("behavior", sentence)
    draft.note(NoteKind.DIFFERS, _FEWER_STEPS)
    behavior, tolerances = spec.section("behavior"), []
    draft.behavior = {}
    for direction in ("scaleUp", "scaleDown"):
        rules = behavior.section(direction)
        tolerance = rules.quantity("tolerance")
        tolerances.append(DEFAULT_TOLERANCE if tolerance is None else tolerance)
        kept = {key: rules.get(key) for key in ("stabilizationWindowSeconds", "selectPolicy", "policies")}
        given = {key: value for key, value in kept.items() if value is not None}
        draft.behavior[direction] = {"tolerance": "0", **given}
    draft.tolerance, down = tolerances
    if draft.tolerance != down:
        sentence = f"a policy has one tolerance; it is {float(draft.tolerance * 100):g} %, that of the way up"
        behavior.differs("scaleDown.tolerance", sentence, quantity(down))
