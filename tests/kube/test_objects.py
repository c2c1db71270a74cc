"""The narrow objects: every field that is used is found where the API puts it."""

from typing import Any, TypeVar

import msgspec
import pytest

from adapter.kube.objects import (
    ApiResourceList,
    ConfigMap,
    CustomResourceDefinition,
    EndpointSlice,
    HorizontalPodAutoscaler,
    decode_scale,
)
from adapter.load.spec import Scale

T = TypeVar("T")


def read(kind: type[T], value: Any) -> T:
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


class TestScale:
    def test_a_scale_is_read(self) -> None:
        body = b'{"spec":{"replicas":5},"status":{"replicas":4,"selector":"app=web"}}'
        assert decode_scale(body) == Scale(replicas=5, status_replicas=4, selector="app=web")

    def test_zero_replicas_are_left_out_on_the_wire(self) -> None:
        assert decode_scale(b'{"spec":{},"status":{"replicas":0}}') == Scale(replicas=0, status_replicas=0)

    def test_the_selector_is_canonical(self) -> None:
        body = b'{"spec":{"replicas":1},"status":{"replicas":1,"selector":"tier in (b,a),app==web"}}'
        assert decode_scale(body).selector == "app=web,tier in (a,b)"

    @pytest.mark.parametrize("body", [b"", b"{}", b'{"spec":{"replicas":"5"}}', b'{"kind":"Status"}'])
    def test_anything_else_is_refused(self, body: bytes) -> None:
        with pytest.raises(msgspec.MsgspecError):
            decode_scale(body)


class TestEndpointSlice:
    def test_service_endpoints_and_the_pods_behind_them_are_read(self) -> None:
        found = read(
            EndpointSlice,
            {
                "metadata": {"namespace": "shop", "name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "endpoints": [
                    {
                        "addresses": ["10.0.0.7"],
                        "conditions": {"ready": False, "serving": True, "terminating": True},
                        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u-1"},
                        "nodeName": "n",
                    }
                ],
            },
        )
        assert (found.service, found.metadata.namespace) == ("web", "shop")
        assert found.endpoints is not None
        endpoint = found.endpoints[0]
        assert endpoint.target_ref is not None
        assert (endpoint.addresses, endpoint.target_ref.name, endpoint.target_ref.uid) == (["10.0.0.7"], "web-1", "u-1")

    @pytest.mark.parametrize(
        ("conditions", "serving"),
        [
            ({"ready": True, "serving": True}, True),
            ({"ready": False, "serving": True}, True),
            ({"ready": True, "serving": False}, False),
            ({"ready": False}, False),
            ({"ready": True}, True),
            ({}, True),  # unknown is to be read as ready
            ({"ready": None, "serving": None}, True),
        ],
    )
    def test_serving_defers_to_ready_and_unknown_is_serving(self, conditions: dict[str, Any], serving: bool) -> None:
        found = read(EndpointSlice, {"endpoints": [{"addresses": [], "conditions": conditions}]})
        assert found.endpoints is not None
        assert found.endpoints[0].is_serving is serving

    def test_a_slice_without_endpoints_is_one(self) -> None:
        assert read(EndpointSlice, {"metadata": {"name": "x"}, "endpoints": None}).endpoints is None
        assert read(EndpointSlice, {"metadata": {"name": "x"}}).service == ""


def test_an_hpa_is_read_with_every_form_of_metric() -> None:
    identifier = {"name": "desired_replicas", "selector": {"matchLabels": {"policy": "checkout"}}}
    found = read(
        HorizontalPodAutoscaler,
        {
            "metadata": {"name": "checkout", "namespace": "shop", "uid": "h-1", "generation": 4},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"},
                "minReplicas": 2,
                "maxReplicas": 50,
                "metrics": [
                    {
                        "type": "Object",
                        "object": {
                            "describedObject": {"apiVersion": "a/v1", "kind": "WatermarkPolicy", "name": "checkout"},
                            "metric": {"name": "desired_replicas"},
                            "target": {"type": "AverageValue", "averageValue": "1"},
                        },
                    },
                    {"type": "External", "external": {"metric": identifier, "target": {"type": "Value", "value": "3"}}},
                    {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"averageValue": "100"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 60}}},
                    {
                        "type": "ContainerResource",
                        "containerResource": {"name": "cpu", "container": "app", "target": {}},
                    },
                ],
                "behavior": {
                    "scaleUp": {"tolerance": "0", "stabilizationWindowSeconds": 0, "selectPolicy": "Max"},
                    "scaleDown": {"tolerance": "50m", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]},
                },
            },
            "status": {"lastScaleTime": "2026-01-01T12:00:00Z", "currentReplicas": 3, "desiredReplicas": 4},
        },
    )
    spec, status = found.spec, found.status
    assert (spec.scale_target_ref.api_version, spec.scale_target_ref.kind, spec.scale_target_ref.name) == (
        "apps/v1",
        "Deployment",
        "checkout",
    )
    assert (spec.min_replicas, spec.max_replicas) == (2, 50)
    assert spec.metrics is not None
    described, external, pods, resource, container = spec.metrics
    assert described.object is not None
    assert external.external is not None
    assert pods.pods is not None
    assert resource.resource is not None
    assert container.container_resource is not None
    assert described.object.described_object.kind == "WatermarkPolicy"
    assert described.object.target.average_value == "1"
    assert external.external.metric.selector is not None
    assert external.external.metric.selector.match_labels == {"policy": "checkout"}
    assert external.external.target.value == "3"
    assert (pods.pods.metric.name, pods.pods.target.average_value) == ("rps", "100")
    assert resource.resource.target.average_utilization == 60
    assert container.container_resource.container == "app"
    assert spec.behavior is not None
    assert spec.behavior.scale_up is not None
    assert spec.behavior.scale_down is not None
    assert (spec.behavior.scale_up.tolerance, spec.behavior.scale_up.stabilization_window_seconds) == ("0", 0)
    assert spec.behavior.scale_down.tolerance == "50m"
    assert spec.behavior.scale_down.policies is not None
    assert spec.behavior.scale_down.policies[0].period_seconds == 10
    assert (status.last_scale_time, status.current_replicas, status.desired_replicas) == ("2026-01-01T12:00:00Z", 3, 4)


def test_a_bare_hpa_has_no_min_and_no_behavior() -> None:
    found = read(HorizontalPodAutoscaler, {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3}})
    assert (found.spec.min_replicas, found.spec.behavior, found.spec.metrics) == (None, None, None)


def test_a_crd_tells_names_versions_and_scale_paths() -> None:
    found = read(
        CustomResourceDefinition,
        {
            "metadata": {"name": "rollouts.argoproj.io"},
            "spec": {
                "group": "argoproj.io",
                "scope": "Namespaced",
                "names": {"kind": "Rollout", "plural": "rollouts"},
                "versions": [
                    {
                        "name": "v1alpha1",
                        "served": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                        "subresources": {
                            "status": {},
                            "scale": {
                                "specReplicasPath": ".spec.replicas",
                                "statusReplicasPath": ".status.HPAReplicas",
                                "labelSelectorPath": ".status.selector",
                            },
                        },
                    }
                ],
            },
        },
    )
    version = found.spec.versions[0]
    assert (found.spec.group, found.spec.names.kind, found.spec.names.plural) == ("argoproj.io", "Rollout", "rollouts")
    assert version.subresources is not None
    assert version.subresources.scale is not None
    assert version.subresources.scale.status_replicas_path == ".status.HPAReplicas"


def test_a_config_map_and_a_resource_list_are_read() -> None:
    assert read(ConfigMap, {"metadata": {"name": "x"}, "data": {"client-ca-file": "pem"}}).data == {
        "client-ca-file": "pem"
    }
    listed = read(
        ApiResourceList,
        {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]},
    )
    assert (listed.group_version, listed.resources[0].kind, listed.resources[0].namespaced) == (
        "apps/v1",
        "Deployment",
        True,
    )
