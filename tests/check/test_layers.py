"""A check of a cluster: layers, causes first; the layers below an error wait."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.commands.check.installation import CUSTOM
from adapter.commands.check.report import lines
from adapter.commands.check.run import check_cluster
from adapter.policy.behavior import count_metric
from adapter.settings import Settings
from lab.harness.objects import kubeconfig
from tests.check.test_installation import API_SERVICES, api_service
from tests.check.test_rights import REVIEWS, Rights
from tests.explain.kit import answer, items
from tests.kube.fake import FakeApi, hang_up, status, text
from tests.registries.http_kit import Platform
from tests.registries.kit import served

POLICIES = "/apis/effective-load.io/v1alpha1/watermarkpolicies"
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
DECISION = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/web/decision"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
RIVALS = "/apis/keda.sh/v1alpha1/scaledobjects"
CUSTOM_API = f"{API_SERVICES}/{CUSTOM[0]}"
_DEFAULTS = Settings()
Checked = Callable[..., Awaitable[list[str]]]
CALM = {way: {"tolerance": "0", "stabilizationWindowSeconds": 60} for way in ("scaleUp", "scaleDown")}


def policy(name: str = "web", **ready: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": "Decided", "message": "", **ready}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1"}]},
        "status": {"conditions": [condition]},
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


def decision(trouble: str = "", pods: Any = (), current: int = 2, explanation: Any = (), **conditions: str) -> Any:
    """The server's decision on a policy: an error, or conditions; `pods` lack samples."""
    without = [{"name": name, "missing": {"cpu": "no sample"}} for name in pods]
    known = {"error": trouble or None, "conditions": conditions, "pods": without, "current": current}
    return answer({"decision": {**known, "explanation": explanation}, "document": {}})


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A cluster in order, with one policy, its HPA and two pods."""
    async with FakeApi() as api:
        api.answers |= {
            "/version": answer({"gitVersion": "v1.35.0"}),
            REVIEWS: Rights().answer,
            **{f"{API_SERVICES}/{name}": api_service() for name in CUSTOM},
            "/api/v1/namespaces/effective-load/pods": items(),
            POLICIES: items(policy()),
            HPAS: items(hpa()),
            USAGE: items(),
            DECISION: decision(),
        }
        yield api


@pytest.fixture
def checked(api: FakeApi, tmp_path: Path) -> Checked:
    """The lines that a check prints."""
    path = kubeconfig(tmp_path / "kubeconfig", api.url, b"", "t")

    async def run(settings: Settings | None = _DEFAULTS, policy: str = "", verbose: bool = False) -> list[str]:
        return list(lines(await check_cluster(settings, policy, str(path)), verbose=verbose))

    return run


def errors(found: list[str]) -> list[str]:
    return [line.split("  ", 2)[2].strip() for line in found if line.startswith("  error")]


async def test_a_cluster_in_order_has_no_error(checked: Checked) -> None:
    found = await checked(verbose=True)
    assert errors(found) == []
    assert "  ok       it decides" in found
    assert found[-1].startswith("0 error, 0 warning, ")


@pytest.mark.parametrize(
    ("changes", "cause", "waiting"),
    [
        ({"/version": hang_up}, "no cluster answers: GET /version: ", "rights, installation, sources"),
        ({"/readyz": text("[-]etcd failed: reason withheld\n", 500)}, "no cluster answers: its etcd fails", "rights, "),
        ({CUSTOM_API: status(404, "NotFound")}, "it does not exist, so no HPA is answered", "sources, "),
        ({USAGE: status(503, "ServiceUnavailable")}, "it does not answer, so policies on cpu", "registries, policies"),
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


OLD = {"metadata": {"name": "old", "namespace": "shop"}, "spec": {"scaleTargetRef": {"name": "web"}}}
UNREADY = policy(status="False", reason="NoDecision", message="no pod")
CAUSES: dict[str, dict[str, Any]] = {
    "the API server has no WatermarkPolicy; apply the definition": {POLICIES: status(404, "NotFound")},
    "there is no HPA web in namespace shop; write it with `effective-load migrate`": {HPAS: items()},
    "there is no HPA web in namespace shop, did you mean wbe?; name one of wbe": {HPAS: items(hpa("wbe"))},
    "it asks for desired_replicas of WatermarkPolicy lost": {HPAS: items(hpa(), hpa("lost", count_metric("lost")))},
    "it does not act (FailedGetObjectMetric): no metric": {HPAS: items(hpa(active="False"))},
    "HPAs get an error instead of a count: 422 Invalid: no Deployment": {
        DECISION: status(422, "Invalid", "no Deployment")
    },
    "metric cpu: 1 pod without a fresh sample (web-2)": {
        DECISION: decision(pods=["web-2"], InputsFresh="metric cpu: 1 pod without a fresh sample")
    },
    "HPAs get an error: query queue: connection refused; nothing listens there": {
        DECISION: decision("query queue: connection refused", pods=["web-2"], InputsFresh="query queue: …")
    },
    "its status reports that it is not ready (NoDecision): no pod": {
        DECISION: status(403, "Forbidden", "no"), POLICIES: items(UNREADY)
    },
    "ScaledObject old scales Deployment web as well: KEDA makes an HPA of it": {RIVALS: items(OLD)},
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
async def test_what_keeps_a_policy_from_scaling_is_one_error(api: FakeApi, checked: Checked, cause: str) -> None:
    api.answers |= CAUSES[cause]
    assert len([one for one in errors(await checked()) if one.startswith(cause)]) == 1


async def test_conditions_of_the_decision_are_warnings(api: FakeApi, checked: Checked) -> None:
    by_hand = "the target was scaled to 0 by hand: …"
    api.answers[DECISION] = decision(explanation=["asks for 0", by_hand], current=0, WatermarkAtLimit="it adds no pods")
    found = await checked()
    assert {f"  warning  {by_hand}", "  warning  it adds no pods"} <= {*found}
    assert errors(found) == []


async def test_what_the_clusters_settings_name_is_asked_only_where_they_are_made_for(
    api: FakeApi, checked: Checked
) -> None:
    platform, given = Platform(), "/api/v1/namespaces/effective-load/configmaps/effective-load-settings"
    async with served(platform.handle) as url:
        settings = f"registries: [{{name: main, type: Eureka, servers: ['{url}']}}]\n"
        settings += f"prometheus: {{servers: [{{name: main, url: '{url}'}}]}}"
        api.answers[given] = answer({"data": {"settings.yaml": settings}})
        found = "\n".join(await checked(None))
    assert "  skipped  what the cluster's settings name is asked only where they are made for" in found
    assert platform.asked == []


async def test_one_policy_is_checked_with_its_own_hpa_alone(api: FakeApi, checked: Checked) -> None:
    places = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies"
    api.answers |= {places: items(policy(), policy("cart")), HPAS.replace("/hor", "/namespaces/shop/hor"): items(hpa())}
    found = await checked(policy="shop/web", verbose=True)
    assert "policy shop/web" in found
    assert "policy shop/cart" not in found
    assert "there is no WatermarkPolicy absent in namespace shop" in errors(await checked(policy="shop/absent"))
