"""`scaleTargetRef` of an HPA is data: no value becomes another path, and invented kinds cost next to nothing."""

from collections.abc import Iterable, Sequence

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


def invent(stand: Stand, namespace: str, references: Iterable[Sequence[str]]) -> list[Service]:
    """Policies whose HPAs refer to API versions, kinds and names that do not exist; the first is the oldest."""
    found = []
    for number, reference in enumerate(references):
        service = Service(namespace, f"odd{number}", "deployments", "cpu")
        stand.add(service)
        policy: Object = stand.cluster.objects["watermarkpolicies"][f"{namespace}/odd{number}"]
        policy["metadata"]["creationTimestamp"] = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        stand.cluster.put("watermarkpolicies", policy)
        hpa = stand.cluster.objects["horizontalpodautoscalers"][f"{namespace}/odd{number}"]
        target = dict(zip(("apiVersion", "kind", "name"), (*reference, service.name), strict=False))
        stand.cluster.put("horizontalpodautoscalers", {**hpa, "spec": {**hpa["spec"], "scaleTargetRef": target}})
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


async def test_invalid_references_cause_no_request_and_their_policies_say_why() -> None:
    async with standing(WEB) as stand:
        odd = invent(stand, "shop", [reference for *reference, _ in ADMITTED])
        async with running(stand):
            await stand.until_answered(["web"])
            for service, (*_, says) in zip(odd, ADMITTED, strict=True):
                await stand.until_refused([service.name], says)
                assert f"HorizontalPodAutoscaler {service.name}: spec." in await stand.answer(service)
            asked = [one for one in stand.cluster.asked if "/apis/" in one]
            known = ("apps/v1", "effective-load.io", "autoscaling", "discovery.k8s.io", "metrics.k8s.io")
            assert [one for one in asked if not any(f"/apis/{group}" in one for group in known)] == []
            lists = [one for one in asked if one == "GET /apis/apps/v1/deployments"]
            assert len(lists) == 2  # a list and a watch


@pytest.mark.usefixtures("_short_pauses")
async def test_sixty_invented_kinds_cost_few_requests() -> None:
    """Of groups that nobody serves, of a built-in group, and of a group that is served."""
    versions = [*(f"invented{number}.example.org/v1" for number in range(20)), "apps/v1", "example.com/v1"]
    kinds = [(version, f"Thing{number}") for number in range(20) for version in (versions[number], *versions[20:])]
    async with standing(WEB, THING) as stand:
        odd = invent(stand, "shop", kinds)
        async with running(stand):
            await stand.until_answered(["web", "thing"])
            await stand.until_refused([one.name for one in (*odd[:3], *odd[-3:])], "the API server serves no")
            lookups = [one for one in stand.cluster.asked if one.count("/") <= 3]
            assert len(lookups) < 10  # they share the documents of discovery
            assert await stand.answer(WEB) == await stand.answer(THING) == DESIRED


@pytest.mark.long
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
