"""Policies as the companion may find them: each case makes it write something of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from adapter.companion.actions import ActionResult
from adapter.companion.state import Context, ToleranceField
from adapter.load.pods import Pod
from adapter.load.samples import ResourceSamples, Samples
from adapter.load.spec import Bounds
from adapter.policy.conditions import Reason
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import Neighbours
from adapter.policy.watermark_policy import parse_policy
from adapter.settings import CompanionSettings, parse_settings
from adapter.snapshot import Problem
from tests.companion.kit import context
from tests.evaluation import kit as assessor
from tests.evaluation.test_evaluator import Stand
from tests.load.kit import NOW, TARGET, out, pod, roster, same, usage

_FEATURES = "{status: true, events: true, fastScaleUp: true, deletionCost: true, hpaConfiguration: true}"
_ROUTES = (
    "[{name: all, urls: ['json://localhost'], default: true, namespaces: ['*']},"
    " {name: theirs, urls: ['json://localhost'], namespaces: [bank]}]"
)
ALL: CompanionSettings = parse_settings(
    f"companion: {{features: {_FEATURES}, notifications: {{routes: {_ROUTES}}}}}"
).companion
NONE: CompanionSettings = parse_settings("").companion
_BAND = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
_FLOOR = {"name": "plan", "query": {"name": "plan"}, "highWatermark": "100", "floor": True}
_REGISTRY = {"name": "nacos", "service": "com.shop.web"}
_AIM = {"type": "AverageValue", "averageValue": "1"}
_ALL_AT_ONCE = {"type": "Percent", "value": 900, "periodSeconds": 60}
_UP = {"tolerance": "0", "stabilizationWindowSeconds": 0, "policies": [_ALL_AT_ONCE]}
_DOWN = {"tolerance": "0"}


class Case(NamedTuple):
    """What is looked at one after another, and how each write ends."""

    looks: tuple[Context, ...]
    outcome: ActionResult = ActionResult.DONE


def rule(annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    """A policy `shop/web`, read as the API server has it."""
    metadata = {
        "name": "web",
        "namespace": "shop",
        "uid": "policy-uid",
        "generation": 1,
        "annotations": annotations or {},
    }
    return parse_policy(
        {"metadata": metadata, "spec": {"metrics": [_BAND], "pulledOut": {"replaceAfterSeconds": 0}, **spec}}
    )


def metric(name: str = "desired_replicas", aim: Mapping[str, str] | None = None) -> dict[str, Any]:
    """An HPA's metric about the policy."""
    described = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "web"}
    return {
        "type": "Object",
        "object": {"metric": {"name": name}, "describedObject": described, "target": aim or _AIM},
    }


def hpa(
    up: Mapping[str, Any] | None = None,
    down: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Hpa:
    """An HPA that follows the policy without a fault, unless told otherwise; read as the API server has it."""
    base = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 100,
        "metrics": [metric()],
        "behavior": {"scaleUp": {**_UP, **(up or {})}, "scaleDown": {**_DOWN, **(down or {})}},
    }
    named = {"name": "web", "namespace": "shop", "uid": "hpa-uid", "resourceVersion": "7", **(metadata or {})}
    return parse_hpa({"metadata": named, "spec": base | spec, "status": status or {}})


def at(load: str | None = "800m", above: Hpa | None = None, **changes: Any) -> Context:
    """Four pods under an HPA that is well, with everything switched on, unless told otherwise."""
    known = ToleranceField(known=True, asked_at=NOW + 1e9)
    followed = above or hpa()
    given = {"settings": ALL, "hpa": followed, "bounds": followed.bounds, "tolerance_field": known, "rule": rule()}
    return context(load, **given | changes)


def staying(case: Context, outcome: ActionResult = ActionResult.DONE) -> Case:
    """The same for so long that conditions are told, and troubles notified."""
    return Case(tuple(replace(case, now=case.now + seconds) for seconds in (0, 15, 80, 200)), outcome)


def cases() -> Iterator[Case]:
    """Every case."""
    counts = (4, 4, 8, 8) * 4
    yield Case(tuple(at("2400m", now=NOW + 5 * number, current=count) for number, count in enumerate(counts)))
    for one in (*_whole(), *_inputs(), *_scaling(), *_versions(), *_joined()):
        yield staying(one)
    yield from _refused()
    yield from _over()


def _problem(code: int, reason: Reason, above: Hpa | None) -> Context:
    case = at()
    view = replace(case.view, assessment=None, problem=Problem(code, reason, "it cannot be"))
    return replace(case, view=view, decision=None, hpa=above)


def problems() -> Iterator[tuple[int, str]]:
    """Why a policy may have no answer: code and reason, which are those of condition Ready and of the Status too."""
    for spoil in (
        lambda stand: stand.world.hpa_changed(assessor.hpa(), None),
        lambda stand: stand.world.policy_changed(None, assessor.entry("old", hpa="web")),
        lambda stand: stand.world.policy_changed(
            assessor.entry(), replace(assessor.entry(), policy=None, fault="no metric")
        ),
        lambda stand: setattr(stand.inputs, "found", "it has not been looked up yet"),
        lambda stand: setattr(stand.inputs, "silent", "the watch of pods is silent"),
    ):
        stand = Stand()
        spoil(stand)
        problem = stand.view().problem
        assert problem is not None
        yield int(problem.code), problem.reason


def _whole() -> Iterator[Context]:
    """What holds for the policy as a whole."""
    yield at()
    yield at("100m")
    yield at(rule=rule(mode="Observe"))
    yield at(rule=rule(mode="Paused"))
    yield at(rule=rule({"effective-load.io/hold-until": "2099-01-01T00:00:00Z"}))
    yield _problem(404, Reason.NOT_FOUND, None)
    yield _problem(422, Reason.INVALID, hpa())
    yield _problem(503, Reason.WATCH_SILENT, hpa())
    yield replace(at(), view=replace(at().view, assessment=None), decision=None)
    yield from (at(rule=rule(notify=[name])) for name in ("all", "nobody", "theirs"))
    yield at("9", bounds=Bounds(minimum=1, maximum=4))


def _inputs() -> Iterator[Context]:
    """Samples, registries and pods."""
    yield at(None)
    yield at(samples=Samples(ResourceSamples(error="503")))
    yield at(rule=rule(registry=_REGISTRY))
    pods = [pod(f"web-{n}", ip=f"10.0.0.{n}") for n in range(4)]
    yield at(rule=rule(registry=_REGISTRY), pods=pods, listed=roster(*(f"10.0.0.{n}" for n in range(4))))
    yield at(rule=rule(registry=_REGISTRY), pods=pods, listed=roster("10.0.0.1", disabled=("10.0.0.2", "10.0.0.3")))
    serving, loads = same(4, "1500m")
    ill = [pod(name, ready=False, ready_for=600.0) for name in ("x", "y")]
    yield at(pods=[*serving, *ill], samples=usage(loads))
    away = [out("a", age=100), out("b", age=100)]
    yield at(pods=[*serving, *away], samples=usage(loads))
    yield at(rule=rule(metrics=[_BAND, _FLOOR]))


def _first() -> list[Pod]:
    return [pod("web-0"), pod("web-1"), out("web-2")]


def _marked(name: str, cost: int = -(2**31)) -> Pod:
    return out(name, deletion_cost=cost, marked=True)


def _scaling() -> Iterator[Context]:
    """Fast scale-up and deletion cost."""
    fast, first = rule(fastScaleUp=True), rule(pulledOut={"deleteFirst": True})
    yield at(rule=fast)
    yield at(rule=fast, settings=NONE)
    for above in (
        hpa(metrics=[metric(aim={"type": "Value", "value": "1"})]),
        hpa({"selectPolicy": "Disabled"}),
        hpa({"stabilizationWindowSeconds": 60}),
        hpa({"tolerance": "0.5"}),
    ):
        yield at(above=above, rule=fast)
    yield at(rule=first, pods=_first())
    yield at(rule=first, pods=_first(), settings=NONE)
    yield at(rule=first, pods=[pod("web-0"), _marked("web-1")])
    yield at(rule=first, pods=[pod("web-0"), _marked("web-1")], settings=NONE)
    yield at(rule=first, pods=[pod("web-0"), out("web-1", deletion_cost=7)])
    yield at(rule=first, pods=[pod("web-0", template_hash="xyz"), pod("web-1"), _marked("web-2")])
    yield at(rule=rule(pulledOut={"deleteFirst": True}, mode="Observe"), pods=_first())
    yield at(rule=first, pods=_first(), target=replace(TARGET, kind="StatefulSet"))


def _versions() -> Iterator[Context]:
    """Pods of two templates, long after a rollout and within one."""
    old = [pod(f"old-{n}", template_hash="old") for n in range(3)]
    for age in (1200.0, 60.0):
        yield at(pods=[*old, pod("new", template_hash="new", age=age)])


def _joined() -> Iterator[Context]:
    """A policy and its HPA, each time with one thing amiss."""
    other = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    two = {"type": "AmbiguousSelector", "status": "True", "reason": "any", "message": "pods are selected by others"}
    ambiguous = {"conditions": [{**two, "type": "ScalingActive", "status": "False", "reason": "AmbiguousSelector"}]}
    yield at(neighbours=Neighbours(policies="old"))
    yield at(neighbours=Neighbours(hpas="other"))
    for above in (
        hpa(status=ambiguous),
        hpa(minReplicas=0),
        hpa(metrics=[other]),
        hpa(metrics=[metric(aim={"type": "Value", "value": "1"})]),
        hpa(metrics=[metric(), metric("effective_cpu")]),
        hpa(metrics=[metric(), other]),
        hpa({"tolerance": "0.1"}),
        hpa(down={"stabilizationWindowSeconds": 0}),
    ):
        yield at(above=above)
    yield at(rule=rule(mode="Observe"), above=hpa(metrics=[other]))
    yield at(rule=rule(cooldown={"scaleDownSeconds": 60}), above=hpa(down={"stabilizationWindowSeconds": 60}))
    yield at(rule=rule(metrics=[{**_BAND, "lowWatermark": "1100m"}]))
    yield at(rule=rule(algorithm="Absolute"))
    theirs = {"f:spec": {"f:behavior": {"f:scaleUp": {"f:tolerance": {}}}}}
    owned = {
        "managedFields": [
            {"manager": "argocd", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": theirs}
        ]
    }
    yield at(rule=rule(hpaConfiguration="Manage"), settings=NONE, above=hpa({"tolerance": "0.1"}))
    yield at(rule=rule(hpaConfiguration="Manage"), above=hpa({"tolerance": "0.1"}, metadata=owned))
    yield replace(at(above=hpa({"tolerance": None})), tolerance_field=ToleranceField())


def _refused() -> Iterator[Case]:
    """Rights that lack."""
    managed = at(rule=rule(hpaConfiguration="Manage"), above=hpa({"tolerance": "0.1"}))
    for case in (_raised(), at(rule=rule(pulledOut={"deleteFirst": True}), pods=_first()), managed):
        yield staying(case, ActionResult.REFUSED)


def _raised() -> Context:
    """A count that is raised at once."""
    active = {"conditions": [{"type": "ScalingActive", "status": "True", "reason": "any", "message": ""}]}
    fast = rule(fastScaleUp=True)
    case = at("2400m", rule=fast, above=hpa(status=active))
    return replace(case, view=replace(case.view, scale_path="/apis/apps/v1/namespaces/shop/deployments/web/scale"))


def _over() -> Iterator[Case]:
    """What comes to an end, and what somebody undoes."""
    away = replace(at(None), now=NOW)
    yield Case(tuple(replace(one, now=NOW + s) for one, s in ((away, 0), (away, 70), (at(), 100), (at(), 200))))
    two = at(pods=[pod("web-0", template_hash="old"), pod("web-1"), out("web-2"), out("web-3")])
    yield Case(tuple(replace(one, now=NOW + s) for one, s in ((two, 0), (two, 70), (at(), 500), (at(), 900))))
    serving, loads = same(4, "1500m")
    ill = [pod(name, ready=False, ready_for=600.0) for name in ("x", "y")]
    small = at(pods=[*serving, *ill], samples=usage(loads))
    yield Case(tuple(replace(one, now=NOW + s) for one, s in ((small, 0), (small, 70), (at(), 100), (at(), 200))))
    managed = at(rule=rule(hpaConfiguration="Manage"), above=hpa({"tolerance": "0.1"}))
    undone = replace(managed, hpa=hpa({"tolerance": "0.1"}, metadata={"resourceVersion": "9"}))
    yield Case(tuple(replace(one, now=NOW + s) for one, s in ((managed, 0), (undone, 20), (undone, 80))))
    yield staying(_raised())
