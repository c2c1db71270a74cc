"""What is read of an HPA, and which policy it follows."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, HpaTolerance
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import (
    FIELD_MANAGER,
    CrossVersionReference,
    Hpa,
    HpaMetric,
    ScalingPolicy,
    ScalingRules,
    decode_hpa,
    parse_hpa,
)

Object = dict[str, Any]

POLICY: Object = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "checkout"}
DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
ONE: Object = {"type": "AverageValue", "averageValue": "1"}


def of_object(described: Object, metric: str = "desired_replicas", target: Object = ONE) -> Object:
    return {"type": "Object", "object": {"describedObject": described, "metric": {"name": metric}, "target": target}}


def of_pods(metric: str, average: Any) -> Object:
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}}


def external(labels: Object, metric: str = "desired_replicas") -> Object:
    found = {"name": metric, "selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": found, "target": ONE}}


def hpa(*metrics: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "checkout", "namespace": "shop", "uid": "u1", "managedFields": [{}]},
        "spec": {"scaleTargetRef": DEPLOYMENT, "minReplicas": 2, "maxReplicas": 50, "metrics": [*metrics], **spec},
    }


def test_target_bounds_and_behavior_are_read_with_exact_tolerances() -> None:
    rules = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]}
    behavior = {"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"tolerance": "0", "selectPolicy": "Min", **rules}}
    read = parse_hpa(hpa(behavior=behavior))
    assert (read.namespace, read.name, read.uid) == ("shop", "checkout", "u1")
    assert read.target == CrossVersionReference("apps/v1", "Deployment", "checkout")
    assert read.bounds == Bounds(minimum=2, maximum=50)
    assert [parse_hpa(hpa(minReplicas=least)).bounds.minimum for least in (None, 0)] == [1, 0]
    assert read.scale_up == ScalingRules(tolerance=Fraction(1, 20))
    assert read.scale_down == ScalingRules(Fraction(0), 60, "Min", (ScalingPolicy("Percent", 10, 60),))
    assert parse_hpa(hpa()).scale_up.tolerance is None


FAILED: Object = {"status": "False", "reason": "FailedGetObjectMetric", "message": "no metric"}


@pytest.mark.parametrize(
    ("conditions", "active", "inactive"),
    [
        ([{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}], True, ""),
        ([{"type": "ScalingActive", **FAILED}], False, "it does not act (FailedGetObjectMetric): no metric"),
        ([{"type": "ScalingActive", **FAILED, "reason": "ScalingDisabled"}], False, ""),
        (None, False, ""),
    ],
)
def test_an_hpa_says_itself_whether_it_acts_and_why_not(conditions: Any, active: bool, inactive: str) -> None:
    read = parse_hpa(hpa() | {"status": {"conditions": conditions}})
    assert (read.active, read.inactive) == (active, inactive)


CPU: Object = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}


FOLLOWS = [
    of_object(POLICY),
    of_object({**POLICY, "apiVersion": "effective-load.io/v1"}),  # a later version
    of_object(DEPLOYMENT),
    external({"policy": "checkout"}),
]
FOLLOWS_NOT = [
    of_object({**POLICY, "name": "other"}),
    of_object({**POLICY, "apiVersion": "example.com/v1"}),
    of_object({**DEPLOYMENT, "name": "other"}),
    of_object(POLICY, "effective_cpu"),
    external({"policy": "other"}),
    of_pods("desired_replicas", "1"),
    {"type": "Resource", "resource": CPU},
]


def test_an_hpa_follows_the_policy_that_it_names_in_any_form() -> None:
    assert [metric for metric in FOLLOWS + FOLLOWS_NOT if parse_hpa(hpa(metric)).asks_for("checkout")] == FOLLOWS


def test_all_types_of_metrics_are_read() -> None:
    container = {"name": "memory", "container": "app", "target": {"type": "Utilization", "averageUtilization": 70}}
    value = of_object(DEPLOYMENT, "x", {"type": "Value", "value": "3"})
    labels = external({"a": "b"}, "y")
    read = parse_hpa(hpa(value, labels, {"type": "ContainerResource", "containerResource": container})).metrics
    reference = CrossVersionReference("apps/v1", "Deployment", "checkout")
    assert read == (
        HpaMetric(kind="Object", name="x", described=reference, target="Value", aim=3 * NANO),
        HpaMetric(kind="External", name="y", match_labels={"a": "b"}, target="AverageValue", aim=NANO),
        HpaMetric(kind="ContainerResource", name="memory", target="Utilization", aim=70, container="app"),
    )


@pytest.mark.parametrize(
    ("target", "aim"),
    [
        ({"type": "AverageValue", "value": "1"}, None),
        ({"type": "AverageValue", "value": "5", "averageValue": "1"}, NANO),
        ({"type": "Utilization", "averageValue": "100m"}, None),
    ],
)
def test_a_target_that_the_api_server_admits_has_the_number_of_its_own_type(target: Object, aim: int | None) -> None:
    (read,) = parse_hpa(hpa(of_object(POLICY, target=target))).metrics
    assert (read.target, read.aim) == (target["type"], aim)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"scaleTargetRef": None}, "spec.scaleTargetRef"),
        ({"maxReplicas": None}, "spec.maxReplicas"),
        ({"maxReplicas": "many"}, "spec.maxReplicas"),
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": 51}, "spec"),
        ({"metrics": [{"type": "Node"}]}, "spec.metrics[0]"),
        ({"metrics": [{}]}, "spec.metrics[0]"),
        ({"metrics": [{"type": "Pods", "pods": {}}]}, "spec.metrics[0]"),
        ({"metrics": [of_pods("effective_x", "fast")]}, "spec.metrics[0]"),
        ({"metrics": [of_object(POLICY, target={**ONE, "type": "averageValue"})]}, "spec.metrics[0]"),
        ({"behavior": {"scaleUp": {"tolerance": "-1"}}}, "spec.behavior.scaleUp.tolerance"),
        ({"behavior": 5}, "spec.behavior"),
        ({"metrics": 5}, "spec.metrics"),
        *(({"at": text}, "status.lastScaleTime") for text in ("yesterday", "2026-01-01T00:00:10", 5)),
    ],
)
def test_a_fault_is_named_with_its_path(change: Object, path: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_hpa({**hpa(**change), "status": {"lastScaleTime": change.get("at")}})
    assert path in {fault.path for fault in caught.value.faults}


def test_an_hpa_in_a_file_needs_a_name() -> None:
    for metadata in ({}, {"name": ""}):
        with pytest.raises(PolicyError) as caught:
            parse_hpa({**hpa(), "metadata": metadata})
        assert [fault.path for fault in caught.value.faults] == ["metadata.name"]


# --- who owns what of its behavior


def entry(manager: str, *fields: str, time: str = "2026-01-01T12:00:00Z", **more: Any) -> dict[str, Any]:
    """An entry of managedFields for fields such as `scaleUp.tolerance`."""
    behavior: dict[str, Any] = {}
    for one in fields:
        direction, _, name = one.partition(".")
        behavior.setdefault(f"f:{direction}", {".": {}})[f"f:{name}"] = {}
    spec = {"f:maxReplicas": {}, "f:behavior": {".": {}, **behavior}}
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": spec}, **more}


def managed(*entries: Object) -> Hpa:
    document = hpa()
    document["metadata"]["managedFields"] = [*entries]
    return parse_hpa(document)


def test_each_field_has_its_other_owners() -> None:
    ours = entry(FIELD_MANAGER, "scaleUp.tolerance", "scaleUp.policies")
    found = managed(ours, entry("flux", "scaleUp.tolerance", "scaleDown.policies")).owners
    named = {name: owners for name, owners in found.items() if not name.endswith(".")}
    assert named == {"scaleUp.tolerance": ("flux",), "scaleDown.policies": ("flux",)}


def test_the_last_writer_is_the_latest_of_the_others_that_write_the_spec() -> None:
    late = "2026-01-01T12:00:05Z"
    status = {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}}
    scale = entry("scaler", subresource="scale", time="2027")
    ours = entry(FIELD_MANAGER, time="2027")
    bare: Object = {"manager": "a", "fieldsV1": {"f:spec": None}}
    found = managed(entry("argo", time=late), entry("kubectl"), ours, status, scale, bare, {})
    assert found.last_writer == "argo"


def test_watched_hpa_is_read_as_one_in_a_file_and_its_unchanged_spec_only_once() -> None:
    document = hpa(of_object(POLICY), behavior={"scaleUp": {"tolerance": "0.05"}})
    bodies = [json.dumps({**document, "status": {"currentReplicas": 3, "desiredReplicas": n}}) for n in (4, 5)]
    first, second = (decode_hpa(body.encode(), Fraction(1, 10)) for body in bodies)
    assert first == replace(parse_hpa(document, Fraction(1, 10)), last_step=(3, 4))
    assert first.bounds.tolerance == HpaTolerance(up=Fraction(1, 20), down=Fraction(1, 10))
    assert second == replace(first, last_step=(3, 5))
    assert second.scale_up is first.scale_up


def test_watched_hpa_of_bytes_that_are_no_text_is_unreadable_as_other_objects_are() -> None:
    body = json.dumps(hpa(behavior={"scaleUp": {"selectPolicy": "Max"}})).encode().replace(b"Max", b"\xff")
    with pytest.raises(msgspec.MsgspecError, match="not UTF-8"):
        decode_hpa(body)
