"""Every form of an HPA metric, and targets of several kinds."""

from typing import Any

import pytest

from lab.harness.client import ApiError, Client, condition_true
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import (
    Workloads,
    external_metric,
    policy_metric,
    target_metric,
    until,
)
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

ROLLOUTS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.argo.example.com"},
    "spec": {
        "group": "argo.example.com",
        "names": {"kind": "Rollout", "plural": "rollouts", "singular": "rollout"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size.wanted",
                        "statusReplicasPath": ".status.size.seen",
                        "labelSelectorPath": ".status.podsBy",
                    },
                },
            }
        ],
    },
}


FORMS = {
    "policy": policy_metric("policy"),
    "target": target_metric("Deployment", "target"),
    "external": external_metric("external"),
}


@pytest.mark.usefixtures("adapter")
def test_policy_target_and_external_form_set_the_same_count(workloads: Workloads, load: Load) -> None:
    for name in FORMS:
        load.queue(name, 800)
        workloads.deployment(name, 5, wait=False)
    for name, metric in FORMS.items():
        workloads.wait_ready(name, 5)
        workloads.policy(name, [query_watermarks("queue", "100", "40")])
        workloads.hpa(name, metrics=[metric])
    for name in FORMS:
        workloads.wait_replicas(name, 8)
    for name in FORMS:
        workloads.hold_replicas(name, 8, syncs=1)


def test_a_target_with_other_scale_paths_is_followed(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, shared_prometheus: Prometheus
) -> None:
    client, namespace = workloads.client, workloads.namespace
    client.apply(ROLLOUTS)
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rollouts.argo.example.com"
    client.wait_for(crd, lambda item: condition_true(item, "Established"), 30, "the CRD to be established")
    make_adapter(prometheus_settings(shared_prometheus), kubeconfig=workloads.cluster.kubeconfig)
    rollout = {
        "apiVersion": "argo.example.com/v1",
        "kind": "Rollout",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"size": {"wanted": 4}},
    }
    made = _create(client, rollout)
    path = f"/apis/argo.example.com/v1/namespaces/{namespace}/rollouts/web"
    client.patch_status(path, {"size": {"seen": 4}, "podsBy": "app=web"})
    workloads.client.create(_replica_set(namespace, made["metadata"]["uid"], 4))
    _wait_running(workloads, 4)
    load.each("web", 1.5)
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")])
    workloads.hpa("web", target=("argo.example.com/v1", "Rollout", "web"))
    client.wait_for(path, lambda item: item["spec"]["size"]["wanted"] == 5, 60, "the rollout at 5")


def _create(client: Client, item: dict[str, Any]) -> dict[str, Any]:
    """Creates an object, with retries: a new kind is refused for a moment (429, storage is initializing)."""
    made: dict[str, Any] = {}

    def accepted() -> bool:
        try:
            made.update(client.create(item))
        except ApiError as error:
            if error.response.status != 429:
                raise
            return False
        return True

    until(accepted, 20, lambda: "the new kind is not served")
    return made


def _replica_set(namespace: str, owner: str, replicas: int) -> dict[str, Any]:
    labels = {"app": "web", "rollouts-pod-template-hash": "5d9f8"}
    reference = {
        "apiVersion": "argo.example.com/v1",
        "kind": "Rollout",
        "name": "web",
        "uid": owner,
        "controller": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web-5d9f8", "namespace": namespace, "ownerReferences": [reference]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "example.invalid/app:1"}]},
            },
        },
    }


def _wait_running(workloads: Workloads, count: int) -> None:
    path = f"/apis/apps/v1/namespaces/{workloads.namespace}/replicasets/web-5d9f8"
    workloads.client.wait_for(path, lambda item: item["status"].get("readyReplicas") == count, 60, "ready pods")
