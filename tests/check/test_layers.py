"""A check of a cluster: layers, causes first; the layers below an error wait."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.check.installation import CUSTOM
from adapter.commands.check.report import lines
from adapter.commands.check.run import check_cluster
from adapter.policy.behavior import count_metric
from adapter.runtime.times import format_time
from adapter.settings import Settings
from tests.check.test_installation import API_SERVICES, api_service
from tests.check.test_rights import REVIEWS, Rights
from tests.kube.fake import FakeApi, hang_up, status, text

POLICIES = "/apis/effective-load.io/v1alpha1/watermarkpolicies"
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
APPS = "/apis/apps/v1"
PODS = "/api/v1/namespaces/shop/pods"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
RIVALS = "/apis/keda.sh/v1alpha1/scaledobjects"
Checked = Callable[..., Awaitable[list[str]]]
CALM = {way: {"tolerance": "0", "stabilizationWindowSeconds": 60} for way in ("scaleUp", "scaleDown")}


def answer(body: Any) -> Any:
    return text(json.dumps(body))


def items(*found: Any) -> Any:
    return answer({"items": found})


def policy(name: str = "web", age: float = 0.0, **ready: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": "Decided", "message": "", **ready}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1"}]},
        "status": {"assessedAt": format_time(time.time() - age), "conditions": [condition]},
    }


def hpa(name: str = "web", metric: Any = None, active: str = "True", **spec: Any) -> dict[str, Any]:
    condition = {"type": "ScalingActive", "status": active, "reason": "FailedGetObjectMetric", "message": "no metric"}
    known = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 5,
        "metrics": [metric or count_metric("web")],
        "behavior": CALM,
    }
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": known | spec,
        "status": {"conditions": [condition]},
    }


def pod(name: str, owner: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}}
    metadata["creationTimestamp"] = format_time(time.time() - 600)  # type: ignore[assignment]
    kind = "Job" if owner else "ReplicaSet"
    metadata["ownerReferences"] = [{"controller": True, "kind": kind, "name": owner or "web-5d"}]  # type: ignore[assignment]
    metadata["labels"]["pod-template-hash"] = "5d"  # type: ignore[index]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": metadata["creationTimestamp"]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}, "status": {"conditions": [ready]}}


def usage(*names: str) -> Any:
    at, containers = format_time(time.time() - 10), [{"name": "app", "usage": {"cpu": "1"}}]
    return items(
        *({"metadata": {"name": one}, "timestamp": at, "window": "15s", "containers": containers} for one in names)
    )


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A cluster in order, with one policy, its HPA and two pods."""
    selector = {"matchLabels": {"app": "web"}}
    workload = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 2, "selector": selector},
    }
    names = ("deployments", "deployments/scale")
    async with FakeApi() as api:
        api.answers |= {
            "/version": answer({"gitVersion": "v1.35.0"}),
            REVIEWS: Rights().answer,
            **{f"{API_SERVICES}/{name}": api_service() for name in CUSTOM},
            "/apis/discovery.k8s.io/v1/namespaces/effective-load/endpointslices": items(),
            APPS: answer({"resources": [{"name": one, "kind": "Deployment", "namespaced": True} for one in names]}),
            f"{APPS}/namespaces/shop/deployments": items(workload),
            PODS: items(pod("web-1"), pod("web-2")),
            POLICIES: items(policy()),
            HPAS: items(hpa()),
            USAGE: usage("web-1", "web-2"),
        }
        yield api


@pytest.fixture
def checked(api: FakeApi, tmp_path: Path) -> Checked:
    """The lines that a check prints."""
    named = {"name": "tests"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "users": [{**named, "user": {"token": "t"}}],
        "clusters": [{**named, "cluster": {"server": api.url}}],
        "contexts": [{**named, "context": {"cluster": "tests", "user": "tests"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    async def run(settings: Settings | None = None, policy: str = "", verbose: bool = False) -> list[str]:
        return list(lines(await check_cluster(settings or Settings(), policy, str(path)), verbose=verbose))

    return run


def errors(found: list[str]) -> list[str]:
    return [line.split("  ", 2)[2].strip() for line in found if line.startswith("  error")]


async def test_a_cluster_in_order_has_no_error(checked: Checked) -> None:
    found = await checked(verbose=True)
    assert errors(found) == []
    assert "  ok       metrics.k8s.io has samples of all 2 Ready pods" in found
    assert found[-1].startswith("1 policy, 1 HPA: ")


@pytest.mark.parametrize(
    ("changes", "cause", "waiting"),
    [
        ({"/version": hang_up}, "no cluster answers: GET /version: ", "rights, installation, sources"),
        (
            {"/readyz": text("[-]etcd failed: reason withheld\n", 500)},
            "no cluster answers: its etcd fails",
            "rights, inst",
        ),
        (
            {f"{API_SERVICES}/{CUSTOM[0]}": status(404, "NotFound")},
            "it does not exist, so no HPA is answered",
            "sources, ",
        ),
        (
            {USAGE: status(503, "ServiceUnavailable")},
            "it does not answer, so policies on cpu and",
            "registries, policies",
        ),
    ],
)
async def test_the_first_layer_with_an_error_makes_the_rest_wait(
    api: FakeApi, checked: Checked, changes: dict[str, Any], cause: str, waiting: str
) -> None:
    api.answers |= changes
    found = await checked()
    assert len(errors(found)) == 1
    assert errors(found)[0].startswith(cause)
    assert f"  skipped  {waiting}" in found[-2]


async def test_a_missing_role_is_the_one_cause(api: FakeApi, checked: Checked) -> None:
    rights = Rights()
    rights.denied = {("get", "deployments", "")}
    api.answers |= {REVIEWS: rights.answer, HPAS: items(hpa(active="False"))}
    (error,) = errors(await checked())
    assert error.startswith("it may not get deployments/scale.apps: apply effective-load-scales and its binding")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (lambda: {POLICIES: status(404, "NotFound")}, "the API server has no WatermarkPolicy: apply the definition"),
        (lambda: {HPAS: items()}, "there is no HPA web in namespace shop; write it with `effective-load migrate`"),
        (
            lambda: {HPAS: items(hpa("wbe"))},
            "there is no HPA web in namespace shop, did you mean wbe?; name one of wbe",
        ),
        (
            lambda: {HPAS: items(hpa(), hpa("lost", count_metric("lost")))},
            "it asks for desired_replicas of WatermarkPolicy lost",
        ),
        (
            lambda: {HPAS: items(hpa(metric={"type": "Resource", "resource": {"name": "cpu"}}))},
            "HPA web does not ask for desired_",
        ),
        (lambda: {HPAS: items(hpa(behavior={}))}, "HPA web suppresses steps of up to 10 %"),
        (lambda: {HPAS: items(hpa(active="False"))}, "it does not act (FailedGetObjectMetric): no metric"),
        (
            lambda: {f"{APPS}/namespaces/shop/deployments": items()},
            "Deployment web, which HorizontalPodAutoscaler web scales, does",
        ),
        (lambda: {USAGE: usage("web-1")}, "metrics.k8s.io has no sample of 1 of 2 Ready pods (web-2)"),
        (
            lambda: {POLICIES: items(policy(status="False", reason="NoDecision", message="no pod"))},
            "its status reports that it is",
        ),
        (lambda: {POLICIES: items(policy(age=600))}, "it writes each status within two minutes, and these are older"),
        (
            lambda: {POLICIES: items(policy(status="False", reason="WatchSilent", message="silent"))},
            "silent (reported by the status",
        ),
        (
            lambda: {
                RIVALS: items(
                    {"metadata": {"name": "old", "namespace": "shop"}, "spec": {"scaleTargetRef": {"name": "web"}}}
                )
            },
            "ScaledObject old scales Deployment web as well: KEDA makes an HPA of it",
        ),
    ],
)
async def test_what_keeps_a_policy_from_scaling_is_one_error(
    api: FakeApi, checked: Checked, changes: Callable[[], dict[str, Any]], error: str
) -> None:
    api.answers |= changes()  # their times are those of now
    found = [one for one in errors(await checked()) if one.startswith(error)]
    assert len(found) == 1


async def test_pods_of_a_job_that_the_selector_matches_are_a_warning(api: FakeApi, checked: Checked) -> None:
    api.answers[PODS] = items(pod("web-1"), pod("job-1", "migration"))
    found = await checked()
    text_of = "the selector of Deployment web also matches 1 pods of Job migration: the HPA counts them"
    assert [line for line in found if line.startswith(f"  warning  {text_of}")]


async def test_a_target_scaled_to_0_by_hand_is_a_warning(api: FakeApi, checked: Checked) -> None:
    selector = {"matchLabels": {"app": "web"}}
    workload = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 0, "selector": selector},
    }
    api.answers |= {f"{APPS}/namespaces/shop/deployments": items(workload), PODS: items()}
    found = await checked()
    assert [
        line for line in found if "its target was scaled to 0 by hand: an HPA with minReplicas 1 rests there" in line
    ]


async def test_one_policy_is_checked_with_its_own_hpa_alone(api: FakeApi, checked: Checked) -> None:
    places = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies"
    api.answers |= {places: items(policy(), policy("cart")), HPAS.replace("/hor", "/namespaces/shop/hor"): items(hpa())}
    found = await checked(policy="shop/web", verbose=True)
    assert "policy shop/web" in found
    assert "policy shop/cart" not in found
    assert "there is no WatermarkPolicy absent in namespace shop" in errors(await checked(policy="shop/absent"))


async def test_an_account_without_rights_gets_no_error(api: FakeApi, checked: Checked) -> None:
    api.answers = {"/version": answer({"gitVersion": "v1.35.0"})}
    api.otherwise = status(403, "Forbidden", 'User "bob" cannot list resource "pods" in API group ""')
    found = await checked()
    assert errors(found) == []
    assert [line for line in found if line.startswith("  skipped")]
