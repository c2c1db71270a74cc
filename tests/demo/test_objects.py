"""The demo's objects: the HPA that README shows, the stock HPA, equal Deployments."""

from typing import Any

import kubernetes_validate
import pytest

from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from lab.demo.objects import HIGH, OURS, PODS_AT_FIRST, STOCK, manifests, scaling, workloads
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane


def by_name(kind: str, **more: Any) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in manifests("shop", **more) if item["kind"] == kind}


@pytest.mark.parametrize("item", workloads("shop") + scaling("shop")[1:], ids=lambda item: item["metadata"]["name"])
def test_the_manifests_are_valid(item: dict[str, Any]) -> None:
    kubernetes_validate.validate(item, "1.37", strict=True)


def test_the_deployments_differ_only_in_their_names() -> None:
    ours, stock = by_name("Deployment").values()
    assert ours["spec"]["replicas"] == PODS_AT_FIRST == 5
    assert str(ours).replace(OURS, STOCK) == str(stock)


def test_the_hpa_takes_the_policys_count_with_tolerance_zero() -> None:
    hpa = by_name("HorizontalPodAutoscaler")[OURS]["spec"]
    assert hpa["metrics"] == [
        {
            "type": "Object",
            "object": {
                "describedObject": {
                    "apiVersion": "effective-load.io/v1alpha1",
                    "kind": "WatermarkPolicy",
                    "name": OURS,
                },
                "metric": {"name": "desired_replicas"},
                "target": {"type": "AverageValue", "averageValue": "1"},
            },
        }
    ]
    assert {hpa["behavior"][way]["tolerance"] for way in ("scaleUp", "scaleDown")} == {"0"}


def test_the_stock_hpa_has_the_high_watermark_as_target_and_the_default_tolerance() -> None:
    ours, stock = (by_name("HorizontalPodAutoscaler")[name]["spec"] for name in (OURS, STOCK))
    assert stock["metrics"][0]["resource"]["target"] == {"type": "AverageValue", "averageValue": f"{HIGH}m"}
    assert "tolerance" not in str(stock)
    assert (stock["minReplicas"], stock["maxReplicas"]) == (ours["minReplicas"], ours["maxReplicas"])
    windows = [spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] for spec in (ours, stock)]
    assert windows[0] == windows[1]


def test_the_adapter_can_read_the_policy_and_its_hpa() -> None:
    policy = parse_policy(scaling("shop")[0])
    hpa = parse_hpa(by_name("HorizontalPodAutoscaler")[OURS])
    assert (policy.namespace, policy.hpa, hpa.target.name) == ("shop", OURS, OURS)


def test_given_nodes_bind_the_pods_to_nodes_that_kwok_plays() -> None:
    pod = by_name("Deployment", nodes=("kwok-0", "kwok-1"))[OURS]["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    named = [term["matchFields"][0]["values"] for term in required["nodeSelectorTerms"]]
    assert named == [["kwok-0"], ["kwok-1"]]
    assert pod["tolerations"] == [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    kubernetes_validate.validate(by_name("Deployment", nodes=("kwok-0",))[OURS], "1.37", strict=True)


@pytest.mark.integration
def test_the_api_server_accepts_all_objects(api_server: ControlPlane, api_namespace: str) -> None:
    install_crds(api_server)
    for item in manifests(api_namespace, nodes=("kwok-0",)):
        api_server.client.apply(item, dry_run=True)
