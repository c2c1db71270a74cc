"""Reads a HorizontalPodAutoscaler (autoscaling/v2): resource metrics, those of prometheus-adapter, and behavior."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.prometheus_adapter import AdapterRules, ServedMetric
from adapter.commands.migrate.read import (
    DEFAULT_TARGET,
    Draft,
    Fields,
    Goal,
    Note,
    NoteKind,
    Refusal,
    Servers,
    missing_answers,
    placeholder,
    quantity,
    read_annotations,
    read_draft,
    rounded_up,
)

KIND = "HorizontalPodAutoscaler"
_SOURCES = {
    "Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object",
    "External": "external",
}  # fmt: skip
_ADDRESS = Note(
    NoteKind.TO_DO, "", None,
    "write the address of the Prometheus that prometheus-adapter asks (flag --prometheus-url) into the settings",
)  # fmt: skip
_NO_RULES = "give prometheus-adapter's configuration (its ConfigMap) in the same run, or write it as PromQL by hand"


def read(root: Fields, rules: AdapterRules | None, servers: Servers) -> Draft:
    """Read one HPA into a draft. Raises Refusal."""
    version = root.get("apiVersion")
    if version not in ("autoscaling/v2", "autoscaling/v2beta2"):
        raise Refusal(f"apiVersion: {version} is not autoscaling/v2: kubectl get hpa.v2.autoscaling NAME -o yaml")
    spec = root.section("spec")
    draft = read_draft(root, ("minReplicas", "maxReplicas"), (1, 0))
    read_annotations(root)
    if draft.minimum == 0:
        spec.note(NoteKind.DIFFERS, "minReplicas", 0, "down to 0 goes only a metric of the whole service, not cpu")
    read_behavior(spec, draft)
    is_custom = False
    if not spec.has("metrics"):
        spec.note(NoteKind.DIFFERS, "metrics", None, "the API server takes cpu at 80 % of the requests, as here")
        target = Fields({"target": {"type": "Utilization", "averageUtilization": 80}}, "spec.metrics", root.notes)
        draft.goals.append(resource_goal(target, draft, "cpu"))
    for fields in spec.sections("metrics"):
        kind = fields.text("type", required=True)
        if kind not in _SOURCES:
            raise Refusal(f"{fields.at('type')}: {kind} is not one of {', '.join(_SOURCES)}")
        source = fields.section(_SOURCES[kind])
        if kind in {"Resource", "ContainerResource"}:
            name = source.text("name", required=True)
            if name in {"cpu", "memory"}:
                draft.goals.append(resource_goal(source, draft, name, source.text("container")))
            else:
                sentence = "a policy reads only cpu and memory from metrics.k8s.io; it is left out"
                source.note(NoteKind.LOST, "name", name, sentence)
                draft.reasons.append(f"{name}: {sentence}")
        else:
            _served(source, kind, draft, rules, servers)
            is_custom |= kind != "External"
    keep_one_kind(draft)
    root.notes.append(_passage(draft))
    if is_custom:
        sentence = (
            "custom.metrics.k8s.io has one server in a cluster. effective-load takes it over, so HPAs that still have "
            "Pods or Object metrics get no value (unless an upstream is set): migrate them together, then install"
        )
        root.note(NoteKind.TO_DO, "", None, sentence)
    root.name_unread()
    return draft


def _passage(draft: Draft) -> Note:
    """What to do first, then, last, and the way back."""
    return Note(
        NoteKind.TO_DO, "", None,
        f"first save this HPA (kubectl get hpa {draft.name}{draft.where} -o yaml) and, where Argo CD, Flux or Helm "
        "owns it, put the new pair into its source, or it is set back. Then apply the policy, then the HPA, which "
        "takes this one's place. Last: effective-load check. The way back: kubectl replace the saved HPA",
    )  # fmt: skip


def keep_one_kind(draft: Draft) -> None:
    """Leave metrics of the whole service out where others are for one pod; a policy has one algorithm."""
    if draft.goals and all(goal.total for goal in draft.goals):
        draft.spec["algorithm"] = "Absolute"
        return
    for goal in [goal for goal in draft.goals if goal.total]:
        draft.goals.remove(goal)
        sentence = (
            "its target is for the whole service (Value) and the others' are for one pod, which a policy does not "
            "combine; it is left out"
        )
        Fields({}, goal.path, draft.notes).note(NoteKind.LOST, "", goal.name, sentence)


def resource_goal(source: Fields, draft: Draft, name: str, container: str = "") -> Goal:
    """The goal of a cpu or memory metric. Raises Refusal."""
    wanted: dict[str, Any] = {"name": name, **({"containers": [container]} if container else {})}
    target = source.section("target")
    kind = target.text("type", "Utilization")
    if kind == "Utilization":
        value: Fraction | None = Fraction(target.whole("averageUtilization", 0), 100)
        wanted["relativeTo"] = "Request"
    else:
        value = rounded_up(target, "averageValue", "the HPA")
    if not value:
        raise Refusal(f"{target.path}: has no target of type {kind}")
    if wanted.get("relativeTo") and value > 10:
        raise Refusal(f"{target.path}: {value * 100} % is above 1000 %, the most of a policy")
    return Goal(name=draft.free_name(name), source={"resource": wanted}, target=value, path=source.path)


def _served(source: Fields, kind: str, draft: Draft, rules: AdapterRules | None, servers: Servers) -> None:
    """A metric that another adapter serves: a goal by its rules, kept in the HPA, or lost."""
    metric, given = ServedMetric.read(source, kind), source.section("target")
    by_value = given.text("type") == "Value"
    value = rounded_up(given, "value" if by_value else "averageValue", "the HPA")
    if not value:
        raise Refusal(f"{given.path}: has no target")
    found = rules.candidates(metric) if rules else ()
    reasons = rules.reasons(metric) if rules else _NO_RULES
    if not found:
        draft.reasons.append(f"{metric.name}: {reasons}")
    if not found and kind == "External":
        target = {"type": "Value", "value": quantity(value)}
        if not by_value:
            target = {"type": "AverageValue", "averageValue": quantity(value)}
        draft.kept.append({"type": kind, "external": {"metric": metric.manifest(), "target": target}})
        source.note(
            NoteKind.KEPT, "", metric.name,
            f"it stays in the HPA and its adapter has to serve it on; the larger count wins. Its own tolerance of "
            f"{float(draft.tolerance * 100):g} % is 0 there now. To move it into the policy: {reasons}",
        )  # fmt: skip
        return
    if not found:
        source.note(NoteKind.LOST, "", metric.name, f"it is left out: {reasons}")
        return
    name = draft.free_name(metric.name)
    query = found[0].query
    if len(found) > 1:
        query = placeholder(name)
        listed = "; ".join(f"{one.rule}: {' '.join(one.query.split())}" for one in found)
        source.note(
            NoteKind.TO_DO, "", metric.name,
            "several rules may give it, and only Prometheus knows which series exist: write one of these in the place "
            f"of {query} (until then the count stays): {listed}",
        )  # fmt: skip
    elif found[0].remark:
        source.note(NoteKind.DIFFERS, "", metric.name, found[0].remark)
    draft.notes.append(_ADDRESS)
    if "NaN" in missing_answers(query):
        source.note(
            NoteKind.DIFFERS, "", metric.name,
            "prometheus-adapter takes NaN (0/0, a quantile of nothing) for 0; here it is an error, and the count stays",
        )  # fmt: skip
    goal_source = {"query": {"promQL": query, "server": servers.name_of()}}
    by_pod = kind == "Pods"
    draft.goals.append(
        Goal(name=name, source=goal_source, target=value, total=by_value, by_pod=by_pod, path=source.path)
    )


def read_behavior(spec: Fields, draft: Draft, at: str = "behavior") -> None:
    """Read an HPA's `behavior` into the draft. Its tolerances are 0 in the new HPA, for the policy has one."""
    if not spec.has(at):
        spec.note(
            NoteKind.DIFFERS, at, None,
            "without behavior an HPA may double the count, or go to 4, at each sync; the new one has behavior, and "
            "may double the count or add 4 pods in 15 s",
        )  # fmt: skip
    behavior, tolerances = spec.section(at), []
    draft.behavior = {}
    for direction in ("scaleUp", "scaleDown"):
        rules = behavior.section(direction)
        tolerance = rules.quantity("tolerance")
        tolerances.append(DEFAULT_TARGET if tolerance is None else tolerance)
        kept: Mapping[str, Any] = {
            key: value
            for key in ("stabilizationWindowSeconds", "selectPolicy", "policies")
            if (value := rules.get(key)) is not None
        }
        draft.behavior[direction] = {"tolerance": "0", **kept}
    up, down = tolerances
    if up != down:
        spec.note(
            NoteKind.DIFFERS, f"{at}.scaleDown.tolerance", quantity(down),
            f"a policy has one tolerance for both directions; it is {float(up * 100):g} %, that of the way up",
        )  # fmt: skip
    draft.tolerance = up
