"""`scaleTargetRef` of an HPA is data: no value becomes another path, and invented kinds cost next to nothing."""

from collections.abc import Iterable

import pytest

from adapter.evaluation import targets
from adapter.kube.api import GroupVersionResource, path
from adapter.kube.errors import KubeError
from adapter.runtime.backoff import Backoff
from tests.engine.cluster import Object
from tests.engine.kit import DESIRED, Service, Stand, running, standing

WEB = Service("shop", "web", "deployments", "cpu")
THING = Service("cart", "thing", "widgets", "cpu")


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(lambda _, bound: min(bound, 0.1)))


def refer(stand: Stand, service: Service, api_version: str, kind: str, name: str = "") -> None:
    """Change the target reference of a service's HPA."""
    hpa = stand.cluster.objects["horizontalpodautoscalers"][f"{service.namespace}/{service.name}"]
    reference = {"apiVersion": api_version, "kind": kind, "name": name or service.name}
    stand.cluster.put("horizontalpodautoscalers", {**hpa, "spec": {**hpa["spec"], "scaleTargetRef": reference}})


def invent(stand: Stand, namespace: str, kinds: Iterable[tuple[str, str]]) -> list[Service]:
    """Policies whose HPAs name kinds that do not exist; the first is the oldest."""
    found = []
    for number, (api_version, kind) in enumerate(kinds):
        service = Service(namespace, f"odd{number}", "deployments", "cpu")
        stand.add(service)
        policy: Object = stand.cluster.objects["watermarkpolicies"][f"{namespace}/odd{number}"]
        policy["metadata"]["creationTimestamp"] = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        stand.cluster.put("watermarkpolicies", policy)
        refer(stand, service, api_version, kind)
        found.append(service)
    return found


ADMITTED = [
    ("%61pps/v1", "Deployment", "web", "scaleTargetRef.apiVersion: '%61pps/v1'"),
    ("../v1", "Deployment", "web", "scaleTargetRef.apiVersion: '../v1'"),
    ("apps/..", "Deployment", "web", "scaleTargetRef.apiVersion: 'apps/..'"),
    ("apps?x=1/v1", "Deployment", "web", "scaleTargetRef.apiVersion: 'apps?x=1/v1'"),
    ("apps#/v1", "Deployment", "web", "scaleTargetRef.apiVersion: 'apps#/v1'"),
    ("APPS/V1", "Deployment", "web", "scaleTargetRef.apiVersion: 'APPS/V1'"),
    ("apps/v1 ", "Deployment", "web", "scaleTargetRef.apiVersion: 'apps/v1 '"),
    ("apps/", "Deployment", "web", "scaleTargetRef.apiVersion: 'apps/'"),
    (f"{'a' * 254}/v1", "Deployment", "web", "scaleTargetRef.apiVersion: 'aaa"),
    ("apps/v1", "Déploiement", "web", "scaleTargetRef.kind: 'Déploiement'"),
    ("apps/v1", "1Deployment", "web", "scaleTargetRef.kind: '1Deployment'"),
    ("apps/v1", "D" * 300, "web", "scaleTargetRef.kind: 'DDD"),
    ("apps/v1", "Deployment", "web" * 300, "scaleTargetRef.name: 'webweb"),
    ("apps/v1", "Deployment", "Web", "scaleTargetRef.name: 'Web'"),
    ("apps/v1", "Deployment", "web?x=1#y", "scaleTargetRef.name: 'web?x=1#y'"),
    ("apps/v1", "Deployment", "web,metadata.namespace=pay", "scaleTargetRef.name: 'web,metadata.namespace=pay'"),
    ("apps/v1", "Deployment", "we\nb", "scaleTargetRef.name: 'we\\nb'"),
]
"""What Kubernetes 1.36 admits, and what the policy says of it."""


@pytest.mark.parametrize(("api_version", "kind", "name", "says"), ADMITTED)
async def test_an_invalid_reference_causes_no_request_and_its_policy_says_why(
    api_version: str, kind: str, name: str, says: str
) -> None:
    async with standing() as stand:
        stand.add(WEB)
        odd = Service("shop", "odd", "deployments", "cpu")
        stand.add(odd)
        refer(stand, odd, api_version, kind, name)
        async with running(stand):
            await stand.until_answered(["web"])
            await stand.until_refused(["odd"], says)
            assert "HorizontalPodAutoscaler odd: spec." in await stand.answer(odd)
            asked = [one for one in stand.cluster.asked if "/apis/" in one]
            known = ("apps/v1", "effective-load.io", "autoscaling", "discovery.k8s.io", "metrics.k8s.io")
            assert [one for one in asked if not any(f"/apis/{group}" in one for group in known)] == []
            lists = [one for one in asked if one == "GET /apis/apps/v1/deployments"]
            assert len(lists) == 2  # a list and a watch


@pytest.mark.parametrize(
    "kinds",
    [
        [(f"invented{number}.example.org/v1", "Thing") for number in range(300)],
        [("apps/v1", f"Thing{number}") for number in range(300)],
        [("example.com/v1", f"Thing{number}") for number in range(300)],
    ],
    ids=["of groups that nobody serves", "of a built-in group", "of a group that is served"],
)
@pytest.mark.usefixtures("_short_pauses")
async def test_three_hundred_invented_kinds_cost_few_requests(
    kinds: list[tuple[str, str]],
) -> None:
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        odd = invent(stand, "shop", kinds)
        async with running(stand):
            await stand.until_answered(["web", "thing"])
            await stand.until_refused(["odd0", odd[-1].name], "the API server serves no")
            lookups = [one for one in stand.cluster.asked if one.count("/") <= 3]
            assert len(lookups) < len(kinds)  # they share the documents of discovery
            assert await stand.answer(WEB) == await stand.answer(THING) == DESIRED


@pytest.mark.usefixtures("_short_pauses")
async def test_a_crd_that_appears_later_is_found_after_failed_lookups() -> None:
    async with standing() as stand:
        stand.cluster.gone.add("widgets")
        stand.add(THING)
        async with running(stand):
            await stand.until_refused(["thing"], "serves no example.com/v1")
            stand.cluster.mend()
            await stand.until_answered()


@pytest.mark.parametrize("segment", ["", ".", "..", "a/b", "/", "%61pps", "a%2Fb"])
def test_no_segment_becomes_another_path(segment: str) -> None:
    with pytest.raises(KubeError):
        path("apis", segment)
    with pytest.raises(KubeError):
        GroupVersionResource("apps/v1", segment).collection()
    if segment:
        with pytest.raises(KubeError):
            GroupVersionResource("apps/v1", "deployments").collection(segment)
