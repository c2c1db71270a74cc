"""What `check` reads of a cluster: who else scales a policy's target, and how often it asks."""

import json
from collections.abc import AsyncIterator, Callable
from fractions import Fraction
from typing import Any

import pytest
from aiohttp import web

from adapter.commands.cluster import Cluster, ClusterError
from adapter.kube.session import Session
from adapter.policy.conformance import flaws
from adapter.policy.linking import MAX_SELECTOR_REQUIREMENTS, Neighbours
from tests.kube.fake import FakeApi, text

APPS, HPAS = "/apis/apps/v1", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
POLICIES = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies"


def hpa(name: str, target: str) -> dict[str, Any]:
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"scaleTargetRef": scaled, "maxReplicas": 9}}


def policy(name: str, of: str = "", high: str = "1") -> dict[str, Any]:
    metrics = [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": high}]
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"hpa": of or name, "metrics": metrics},
    }


def items(*found: dict[str, Any]) -> Any:
    """A list of these, or of the one that a field selector names."""

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        return web.json_response({"items": [one for one in found if name in {"", one["metadata"]["name"]}]})

    return answer


def deployment(labels: dict[str, str]) -> dict[str, Any]:
    """Deployment web, which selects these labels."""
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    return {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": spec, "status": {}}


SCALABLE = {
    "resources": [
        {"name": name, "kind": "Deployment", "namespaced": True} for name in ("deployments", "deployments/scale")
    ]
}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers[APPS] = text(json.dumps(SCALABLE))
        api.answers[f"{APPS}/namespaces/shop/deployments"] = items(deployment({"app": "web"}))
        api.answers["/api/v1/namespaces/shop/pods"] = items()
        api.answers[HPAS] = items(hpa("web", "web"), hpa("beside", "web"), hpa("other", "other"))
        yield api


@pytest.fixture
async def cluster(api: FakeApi) -> AsyncIterator[Cluster]:
    async with Session(api.load) as session:
        yield Cluster(session, Fraction(1, 10))


async def test_other_policies_and_hpas_of_the_same_target_are_neighbours(api: FakeApi, cluster: Cluster) -> None:
    same = (policy("beside"), policy("again", of="web"))
    others = (policy("other"), policy("lonely"), policy("broken", of="web", high="much"))
    api.answers[POLICIES] = items(policy("web"), *same, *others)
    (web,) = [one.policy for one in await cluster.policies(["shop"]) if one.name == "web"]
    assert web is not None
    wiring = (await cluster.pods(web)).wiring
    assert wiring.neighbours == Neighbours(hpas="beside", policies="again, beside")
    assert {"PolicyConflict", "SharedTarget"} <= {flaw.reason for flaw in flaws(wiring)}


def with_a_long_selector(api: FakeApi) -> None:
    labels = {f"k{number}": "v" for number in range(MAX_SELECTOR_REQUIREMENTS + 1)}
    api.answers[f"{APPS}/namespaces/shop/deployments"] = items(deployment(labels))


def with_a_faulty_hpa(api: FakeApi) -> None:
    faulty = hpa("faulty", "web")
    del faulty["spec"]["maxReplicas"]
    api.answers[HPAS] = items(hpa("web", "web"), faulty)


@pytest.mark.parametrize(
    ("change", "of", "sentence"),
    [
        (with_a_long_selector, "web", f"Deployment web: its selector has {MAX_SELECTOR_REQUIREMENTS + 1} requirements"),
        (with_a_faulty_hpa, "faulty", "HorizontalPodAutoscaler faulty: spec.maxReplicas: is required"),
        (with_a_faulty_hpa, "gone", "there is no HorizontalPodAutoscaler gone, which the policy names"),
    ],
)
async def test_what_stands_between_a_policy_and_its_pods_is_named_with_its_fault(
    api: FakeApi, cluster: Cluster, change: Callable[[FakeApi], None], of: str, sentence: str
) -> None:
    change(api)
    api.answers[POLICIES] = items(policy("web", of=of))
    (web,) = [one.policy for one in await cluster.policies(["shop"])]
    assert web is not None
    with pytest.raises(ClusterError, match=sentence):
        await cluster.pods(web)


async def test_a_namespace_is_asked_for_once_whatever_number_of_policies_it_has(api: FakeApi, cluster: Cluster) -> None:
    api.answers[POLICIES] = items(policy("web"), policy("beside"))
    for one in await cluster.policies(["shop"]):
        assert one.policy is not None
        await cluster.pods(one.policy)
    asked = [path for path, query in api.asked if "fieldSelector" not in query]
    assert (asked.count(HPAS), asked.count(POLICIES)) == (1, 2)
