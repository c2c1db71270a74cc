"""What is read of an HPA, and which policy it follows."""

import copy
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.quantity import NANO
from adapter.load.spec import Bounds
from adapter.policy.field_reader import PolicyError
from adapter.policy.hpa import (
    CrossVersionReference,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ScalingPolicy,
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
        "metadata": {"name": "checkout", "namespace": "shop", "uid": "u1", "generation": 3, "managedFields": [{}]},
        "spec": {"scaleTargetRef": DEPLOYMENT, "minReplicas": 2, "maxReplicas": 50, "metrics": [*metrics], **spec},
    }


def test_target_and_bounds_are_read() -> None:
    read = parse_hpa(hpa())
    assert (read.namespace, read.name, read.uid, read.generation) == ("shop", "checkout", "u1", 3)
    assert read.target == CrossVersionReference("apps/v1", "Deployment", "checkout")
    assert read.bounds == Bounds(minimum=2, maximum=50)
    assert read.bounds.last_scale is None


def test_min_replicas_is_one_where_nothing_is_said_and_zero_where_zero_is_said() -> None:
    assert parse_hpa(hpa(minReplicas=None)).bounds.minimum == 1
    assert parse_hpa(hpa(minReplicas=0)).bounds.minimum == 0


def test_the_last_scaling_is_read_as_seconds() -> None:
    document = hpa() | {"status": {"lastScaleTime": "2026-01-01T00:00:10Z", "currentReplicas": 3}}
    assert parse_hpa(document).bounds.last_scale == 1767225610.0


@pytest.mark.parametrize(
    ("conditions", "active"),
    [
        ([{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}], True),
        ([{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "False"}], False),
        ([], False),
        (None, False),
    ],
)
def test_an_hpa_acts_where_it_says_so_itself(conditions: Any, active: bool) -> None:
    assert parse_hpa(hpa() | {"status": {"conditions": conditions}}).active is active


def test_an_hpa_that_does_not_act_says_why() -> None:
    failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetObjectMetric", "message": "no metric"}
    at_zero = {**failed, "reason": "ScalingDisabled", "message": "the replica count of the target is zero"}
    found = [parse_hpa(hpa() | {"status": {"conditions": [one]}}).inactive for one in (failed, at_zero)]
    assert found == ["it does not act (FailedGetObjectMetric): no metric", ""]


def test_tolerances_are_exact_and_absent_ones_stay_unknown() -> None:
    behavior = {
        "scaleUp": {"tolerance": "0.05", "stabilizationWindowSeconds": 0},
        "scaleDown": {
            "tolerance": "0",
            "stabilizationWindowSeconds": 60,
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}],
        },
    }
    read = parse_hpa(hpa(behavior=behavior))
    assert (read.scale_up.tolerance, read.scale_up.stabilization) == (Fraction(1, 20), 0)
    assert (read.scale_down.tolerance, read.scale_down.select) == (0, "Min")
    assert read.scale_down.policies == (ScalingPolicy("Percent", 10, 60),)
    assert parse_hpa(hpa()).scale_up.tolerance is None


@pytest.mark.parametrize(
    "metric",
    [
        of_object(POLICY),
        of_object({**POLICY, "apiVersion": "effective-load.io/v1"}),
        of_object(DEPLOYMENT),
        external({"policy": "checkout"}),
        external({"policy": "checkout", "more": "x"}),
    ],
    ids=["policy", "policy-of-a-later-version", "scale-target", "external", "external-with-more-labels"],
)
def test_an_hpa_follows_a_policy_in_every_form(metric: Object) -> None:
    assert parse_hpa(hpa(metric)).asks_for("checkout")


@pytest.mark.parametrize(
    "metric",
    [
        of_object({**POLICY, "name": "other"}),
        of_object({**POLICY, "apiVersion": "example.com/v1"}),
        of_object({**DEPLOYMENT, "name": "other"}),
        of_object({**DEPLOYMENT, "kind": "StatefulSet"}),
        of_object(POLICY, "effective_cpu"),
        external({"policy": "other"}),
        external({}),
        of_pods("desired_replicas", "1"),
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
    ],
    ids=[
        "other",
        "foreign-group",
        "other-target",
        "other-kind",
        "an-average",
        "other-label",
        "no-label",
        "pods",
        "cpu",
    ],
)
def test_an_hpa_does_not_follow_a_policy_that_it_does_not_name(metric: Object) -> None:
    assert not parse_hpa(hpa(metric)).asks_for("checkout")


def test_pods_metrics_of_ours_come_with_the_average_aimed_at() -> None:
    metrics = (
        of_pods("effective_cpu", "1500m"),
        of_pods("requests", "10"),
        of_object(POLICY),
        of_pods("effective_m", 2),
    )
    assert parse_hpa(hpa(*metrics)).pods_metrics == (("effective_cpu", 1_500_000_000), ("effective_m", 2 * NANO))


def test_all_types_of_metrics_are_read() -> None:
    container = {"name": "memory", "container": "app", "target": {"type": "Utilization", "averageUtilization": 70}}
    read = parse_hpa(
        hpa(
            of_object(DEPLOYMENT, "x", {"type": "Value", "value": "3"}),
            external({"a": "b"}, "y"),
            {"type": "ContainerResource", "containerResource": container},
        )
    ).metrics
    assert read == (
        HpaMetric(
            kind=MetricSourceType.OBJECT,
            name="x",
            described=CrossVersionReference("apps/v1", "Deployment", "checkout"),
            target=MetricTargetType.VALUE,
            aim=3 * NANO,
        ),
        HpaMetric(
            kind=MetricSourceType.EXTERNAL,
            name="y",
            match_labels={"a": "b"},
            target=MetricTargetType.AVERAGE_VALUE,
            aim=NANO,
        ),
        HpaMetric(
            kind=MetricSourceType.CONTAINER_RESOURCE,
            name="memory",
            target=MetricTargetType.UTILIZATION,
            aim=70,
            container="app",
        ),
    )


def test_an_external_selector_with_expressions_names_the_policy_of_its_labels() -> None:
    metric = external({"policy": "checkout"})
    metric["external"]["metric"]["selector"]["matchExpressions"] = [{"key": "a", "operator": "Exists"}]
    (read,) = parse_hpa(hpa(metric)).metrics
    assert read.names("checkout")


def test_bytes_and_a_mapping_read_alike() -> None:
    behavior = {
        "scaleUp": {"tolerance": "0"},
        "scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]},
    }
    document = hpa(of_object(POLICY), of_pods("effective_cpu", "1"), external({"policy": "a"}), behavior=behavior)
    document["status"] = {"lastScaleTime": "2026-01-01T00:00:10Z"}
    assert parse_hpa(msgspec.json.encode(document)) == parse_hpa(document)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"scaleTargetRef": None}, "spec.scaleTargetRef.kind"),
        ({"maxReplicas": None}, "spec.maxReplicas"),
        ({"maxReplicas": "many"}, "spec.maxReplicas"),
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": 51}, "spec.minReplicas"),
        ({"metrics": [{"type": "Node"}]}, "spec.metrics[0].type"),
        ({"metrics": [{}]}, "spec.metrics[0].type"),
        ({"metrics": [{"type": "Pods", "pods": {}}]}, "spec.metrics[0].pods.metric.name"),
        ({"metrics": [of_pods("effective_x", "fast")]}, "spec.metrics[0].pods.target.averageValue"),
        ({"behavior": {"scaleUp": {"tolerance": "-1"}}}, "spec.behavior.scaleUp.tolerance"),
        ({"behavior": 5}, "spec.behavior"),
    ],
)
def test_a_fault_is_named_with_its_path(change: Object, path: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_hpa(hpa(**change))
    assert path in {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:10", 5])
def test_a_time_that_is_none_is_a_fault(text: object) -> None:
    with pytest.raises(PolicyError, match=r"status\.lastScaleTime"):
        parse_hpa(hpa() | {"status": {"lastScaleTime": text}})


@given(st.data())
def test_an_hpa_with_anything_in_one_place_is_read_or_refused(data: st.DataObject) -> None:
    document = copy.deepcopy(hpa(of_object(POLICY), of_pods("effective_cpu", "1"), external({"policy": "checkout"})))
    place: Any = document
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(st.none() | st.integers() | st.text(max_size=4) | st.just([]) | st.just({}) | st.floats())
    try:
        parse_hpa(document)
    except PolicyError as error:
        assert error.faults  # noqa: PT017  either outcome is right
