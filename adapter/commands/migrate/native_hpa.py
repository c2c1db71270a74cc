"""Reads a HorizontalPodAutoscaler (autoscaling/v2) whose metrics another adapter serves, and its resource metrics."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.migrate.original import (
    Fields,
    NoteKind,
    Resolver,
    SelectedMetric,
    quantity,
    read_bounds,
    read_identity,
    read_target,
)
from adapter.commands.migrate.pair import (
    LARGEST,
    LARGEST_RATIO,
    Draft,
    Goal,
    metric_name,
    stock_hpa,
    tolerance_text,
)
from adapter.policy.hpa import DEFAULT_TOLERANCE

KIND = "HorizontalPodAutoscaler"
API_VERSIONS = ("autoscaling/v2", "autoscaling/v2beta2")

_MOST_METRICS = 100
_SOURCES = {"Object": "object", "Pods": "pods", "External": "external", "Resource": "resource",
            "ContainerResource": "containerResource"}  # fmt: skip

_LONGEST_WINDOW = 3600
_LONGEST_PERIOD = 1800
_MOST = 2**31 - 1


class _Read(NamedTuple):
    """A metric that was read, and its place in the HPA. `total`: its target is for the whole service."""

    goal: Goal
    total: bool
    place: int


def read(place: str, root: Fields, resolver_of: Callable[[Mapping[str, str], Fields], Resolver], source: str) -> Draft:
    """Read one HPA into a draft. `resolver_of` gets the annotations, of which it notes those that it does not use."""
    version = root.get("apiVersion")
    root.get("kind")
    if not isinstance(version, str) or version not in API_VERSIONS:
        advice = "must be autoscaling/v2: kubectl get hpa.v2.autoscaling NAME -o yaml writes it so"
        root.fault("apiVersion", version, advice)
    identity = read_identity(root)
    spec = root.section("spec")
    resolver = resolver_of(identity.annotations, root)
    target = read_target(spec)
    minimum, maximum = read_bounds(spec)
    behavior = read_behavior(spec)
    metrics = _Metrics(spec, resolver)
    goals = metrics.read()
    spec.rest()
    root.rest()
    policy: dict[str, Any] = {"algorithm": "Absolute"} if metrics.is_total else {}
    policy["tolerance"] = policy_tolerance(spec, behavior)
    root.notes.add(
        NoteKind.TO_DO, "", None,
        f"the new HPA {identity.name} takes the place of this one as soon as it is applied; where Helm, Argo CD or "
        "Flux owns it, put the new one there, or it is set back",
    )  # fmt: skip
    if resolver.served_by():
        root.notes.add(
            NoteKind.TO_DO, "", None,
            "custom.metrics.k8s.io has one server in a cluster: effective-load takes it over, and HPAs that still have "
            f"Pods or Object metrics of {resolver.served_by()} get none; migrate those together",
        )  # fmt: skip
    return Draft(
        place=place,
        source=source,
        identity=identity,
        target=target,
        minimum=minimum,
        maximum=maximum,
        notes=root.notes,
        goals=goals,
        spec=policy,
        behavior=behavior.data,
        kept=metrics.kept,
        stock=stock_hpa(identity, root.get("spec"), root.faults),
    )


class _Metrics:
    """Reads the metrics of one HPA."""

    def __init__(self, spec: Fields, resolver: Resolver) -> None:
        self._spec = spec
        self._resolver = resolver
        self._read: list[_Read] = []
        self.kept: list[dict[str, Any]] = []
        self.is_total = False

    def read(self) -> list[Goal]:
        """The goals of the policy; notes what is not among them."""
        for place, fields in enumerate(self._spec.sections("metrics", _MOST_METRICS)):
            kind = fields.get("type")
            if not isinstance(kind, str) or kind not in _SOURCES:
                fields.fault("type", kind, f"write one of {', '.join(_SOURCES)}")
                continue
            source = fields.section(_SOURCES[kind])
            if kind in {"Resource", "ContainerResource"}:
                resource, container = source.get("name"), ""
                if kind == "ContainerResource":
                    container = source.text("container", required="the container's name")
                if (goal := resource_goal(source, resource, container, self._taken())) is not None:
                    self._read.append(_Read(goal, False, place))
            else:
                self._served(place, kind, source)
            source.rest()
            fields.rest()
        if not self._spec.sequence("metrics", _MOST_METRICS):
            self._spec.fault("metrics", None, "there is no metric to migrate")
        self._resolver.close()
        self.is_total = bool(self._read) and all(metric.total for metric in self._read)
        goals = []
        for metric in self._read:
            if metric.total is self.is_total:
                goals.append(metric.goal)
            else:
                note_mixed(self._spec, f"{self._spec.at('metrics')}[{metric.place}]", metric.goal.name)
        return goals

    def _served(self, place: int, kind: str, source: Fields) -> None:
        metric = SelectedMetric.read(kind, source)
        target = source.section("target")
        goal = read_goal_target(target, allowed=("AverageValue",) if kind == "Pods" else ("AverageValue", "Value"))
        target.rest()
        if goal is None or not metric.name:
            return
        by_value, value = goal
        found = self._resolver.find(metric, source)
        if isinstance(found, str):
            if metric.kind == "External":
                self.kept.append({"type": "External", "external": metric.external(value, average=not by_value)})
                served_by = self._resolver.served_by() or "its adapter"
                source.notes.add(
                    NoteKind.KEPT, source.path, metric.name,
                    f"{found}; {served_by} has to serve it as before, and the larger count wins (its own tolerance "
                    "is gone: the HPA's is 0 for the policy's sake)",
                )  # fmt: skip
            else:
                source.notes.add(NoteKind.LOST, source.path, metric.name, f"{found}; it is left out")
            return
        name = metric_name(metric.name, self._taken())
        self._read.append(_Read(Goal(name=name, source=found, target=value), by_value, place))

    def _taken(self) -> list[str]:
        return [metric.goal.name for metric in self._read]


def note_mixed(fields: Fields, path: str, name: str) -> None:
    """Note a metric whose target is for the whole service, beside others that are for one pod."""
    fields.notes.add(
        NoteKind.LOST, path, name,
        "its target is for the whole service (type Value) and the others' are for one pod, which no policy has "
        "together; it is left out",
    )  # fmt: skip


def resource_goal(source: Fields, resource: object, container: str, taken: list[str]) -> Goal | None:
    """The goal of a cpu or memory metric from its `target`; None where it is faulty or no such resource."""
    target = source.section("target")
    kind = target.get("type")
    if resource not in ("cpu", "memory") or not isinstance(resource, str):
        source.notes.add(
            NoteKind.LOST, source.path, source.data, "only cpu and memory come from metrics.k8s.io; it is left out"
        )
        return None
    wanted: dict[str, Any] = {"name": resource}
    if container:
        wanted["containers"] = [container]
    if kind == "Utilization":
        percent = target.optional_integer("averageUtilization", 1, LARGEST_RATIO * 100)
        if percent is None:
            target.fault("averageUtilization", None, "is required: a percentage of the requests")
        value = Fraction(percent or 1, 100)
        wanted["relativeTo"] = "Request"
    else:
        goal = read_goal_target(target, allowed=("AverageValue",))
        if goal is None:
            return None
        value = goal[1]
    target.rest()
    return Goal(name=metric_name(resource, taken), source={"resource": wanted}, target=value)


def read_goal_target(target: Fields, allowed: tuple[str, ...]) -> tuple[bool, Fraction] | None:
    """Whether a target is a Value, and its quantity as the HPA reads it (milli-units, rounded up)."""
    kind = target.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        target.fault("type", kind, f"write {' or '.join(allowed)}")
        return None
    key = "value" if kind == "Value" else "averageValue"
    given = target.quantity(key)
    if given is None:
        if not target.has(key):
            target.fault(key, None, "is required: the target")
        return None
    if not 0 < given <= LARGEST:
        target.fault(key, target.get(key), "a target must be more than 0 and at most 1Ei")
        return None
    milli = -(-given * 1000 // 1)
    if milli != given * 1000:
        target.note(NoteKind.DIFFERS, key, f"the HPA rounds it up to {milli}m, which is kept")
    return kind == "Value", Fraction(milli, 1000)


class Behavior(NamedTuple):
    """The behavior of the new HPA as data, and the original's tolerances (ratios)."""

    data: dict[str, Any]
    up: Fraction
    down: Fraction


def read_behavior(spec: Fields) -> Behavior:
    """Read an HPA's `behavior`; the new one has tolerance 0 in both directions, for the policy has the tolerance."""
    if not spec.has("behavior"):
        spec.notes.add(
            NoteKind.DIFFERS, spec.at("behavior"), None,
            "without behavior the HPA may double the count, or go to 4, at each sync; the new one has behavior, "
            "and may double the count or add 4 pods in 15 s",
        )  # fmt: skip
    behavior = spec.section("behavior")
    up, down = (_direction(behavior.section(name)) for name in ("scaleUp", "scaleDown"))
    behavior.rest()
    return Behavior({"scaleUp": up[0], "scaleDown": down[0]}, up[1], down[1])


def _direction(rules: Fields) -> tuple[dict[str, Any], Fraction]:
    data: dict[str, Any] = {"tolerance": "0"}
    tolerance = rules.quantity("tolerance")
    if tolerance is not None and tolerance < 0:
        rules.fault("tolerance", rules.get("tolerance"), "must not be negative")
        tolerance = None
    window = rules.optional_integer("stabilizationWindowSeconds", 0, _LONGEST_WINDOW)
    if window is not None:
        data["stabilizationWindowSeconds"] = window
    select = rules.get("selectPolicy")
    if select not in (None, "", "Max", "Min", "Disabled"):
        rules.fault("selectPolicy", select, "write Max, Min or Disabled")
    elif select:
        data["selectPolicy"] = select
    policies = [_scaling_policy(section) for section in rules.sections("policies", 50)]
    if policies:
        data["policies"] = policies
    elif rules.has("policies"):
        rules.fault("policies", [], "must have at least one policy")
    rules.rest()
    return data, DEFAULT_TOLERANCE if tolerance is None else tolerance


def _scaling_policy(fields: Fields) -> dict[str, Any]:
    kind = fields.get("type")
    if kind not in ("Pods", "Percent"):
        fields.fault("type", kind, "write Pods or Percent")
    for key in ("value", "periodSeconds"):
        if not fields.has(key):
            fields.fault(key, None, "is required")
    policy = {
        "type": kind,
        "value": fields.integer("value", 1, 1, _MOST),
        "periodSeconds": fields.integer("periodSeconds", 15, 1, _LONGEST_PERIOD),
    }
    fields.rest()
    return policy


def policy_tolerance(spec: Fields, behavior: Behavior, path: str = "behavior") -> str:
    """The policy's one tolerance: that of the way up where they differ, for a late scale-up hurts more."""
    if behavior.up != behavior.down:
        spec.notes.add(
            NoteKind.DIFFERS, f"{spec.at(path)}.scaleUp.tolerance", quantity(behavior.up),
            "a policy has one tolerance for both directions; it is that of the way up",
        )  # fmt: skip
    return tolerance_text(spec.notes, f"{spec.at(path)}.scaleUp.tolerance", behavior.up)
