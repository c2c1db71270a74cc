"""Authorization: reviews by identity and attributes, their cache, and no allow on failure."""

import asyncio

import pytest

from adapter.apiserver.authentication import Identity
from adapter.apiserver.authorization import Authorizer
from adapter.apiserver.request_info import Attributes, parse_target
from adapter.apiserver.status import StatusError
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.kube.conftest import Clock, clock, metrics

__all__ = ["clock", "metrics"]
USER = Identity("u", "7", ("g", "system:authenticated"), (("scopes", ("a", "b")),))
BASE = "/apis/custom.metrics.k8s.io/v1beta2"
PODS = Attributes("get", "custom.metrics.k8s.io", "v1beta2", "pods", "m", "*", "ns")


@pytest.fixture
async def authorizer(session: Session, clock: Clock, metrics: Metrics) -> Authorizer:
    return Authorizer(session, metrics, lambda: clock.monotonic)


async def refusal(authorizer: Authorizer, identity: Identity = USER, attributes: Attributes = PODS) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await authorizer.check(identity, attributes)
    return caught.value


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        (
            f"{BASE}/namespaces/shop/deployments.apps/web/m",
            {
                "resourceAttributes": {
                    "verb": "get",
                    "group": "custom.metrics.k8s.io",
                    "version": "v1beta2",
                    "resource": "deployments.apps",
                    "subresource": "m",
                    "name": "web",
                    "namespace": "shop",
                }
            },
        ),
        (BASE, {"nonResourceAttributes": {"verb": "get", "path": BASE}}),
    ],
)
async def test_a_review_carries_the_whole_identity_and_the_resource_or_the_path(
    authorizer: Authorizer, cluster: Cluster, target: str, asked: dict[str, object]
) -> None:
    await authorizer.check(USER, parse_target(target).attributes)
    [(path, review)] = cluster.bodies
    assert (path, review["kind"], review["apiVersion"]) == (REVIEWS, "SubjectAccessReview", "authorization.k8s.io/v1")
    identity = {"user": "u", "uid": "7", "groups": ["g", "system:authenticated"], "extra": {"scopes": ["a", "b"]}}
    assert review["spec"] == identity | asked


def counted(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value("effective_load_authorization_reviews_total", {"result": result})


async def test_any_other_attributes_are_reviewed_also_at_once(authorizer: Authorizer, cluster: Cluster) -> None:
    changes = {"user": "v", "uid": "8", "groups": ("h",), "extra": ()}
    identities = [USER._replace(**{field: value}) for field, value in changes.items()]
    others = [PODS._replace(**{field: "other"}) for field in Attributes._fields if field != "path"]
    asked = [(USER, PODS), *((each, PODS) for each in identities), *((USER, each) for each in others)]
    await asyncio.gather(*(authorizer.check(*each) for each in asked))
    assert cluster.reviews() == len(asked)
    await asyncio.gather(*(authorizer.check(*each) for each in asked))
    assert cluster.reviews() == len(asked)


async def test_an_expired_allow_is_not_used_where_its_review_fails(
    authorizer: Authorizer, cluster: Cluster, clock: Clock, metrics: Metrics
) -> None:
    for _ in range(3):  # it is cached for five minutes
        await authorizer.check(USER, PODS)
        clock.pass_(140)
    assert (cluster.reviews(), counted(metrics, "allowed"), counted(metrics, "denied")) == (1, 1, None)
    cluster.faults[REVIEWS] = 500
    error = await refusal(authorizer)
    assert (error.code, error.reason, "made to fail" in error.message) == (503, "ServiceUnavailable", False)


@pytest.mark.parametrize("reason", [{"reason": "no rule"}, {}], ids=["Webhook", "RBAC"])
async def test_a_deny_is_cached_for_ten_seconds(
    authorizer: Authorizer, cluster: Cluster, clock: Clock, metrics: Metrics, reason: dict[str, str]
) -> None:
    cluster.answered = lambda review: {**review, "status": {"allowed": False, **reason}}
    for seconds in (9, 2):
        error = await refusal(authorizer)
        assert (error.code, f'"{PODS.name}" is forbidden: User "' in error.message) == (403, True)
        clock.pass_(seconds)
    assert (cluster.reviews(), counted(metrics, "allowed"), counted(metrics, "denied")) == (1, None, 1)
    cluster.answered = None
    await authorizer.check(USER, PODS)


@pytest.mark.parametrize("other", [{"user": "admin"}, {"resourceAttributes": {"verb": "get"}}, {}], ids=str)
async def test_an_answer_to_another_review_allows_nothing(
    authorizer: Authorizer, cluster: Cluster, other: dict[str, object]
) -> None:
    """As on a connection whose answers are one off."""
    cluster.answered = lambda review: {
        "spec": {**review["spec"], **other} if other else {},
        "status": {"allowed": True},
    }
    assert (await refusal(authorizer)).code == 503


@pytest.mark.parametrize("status", [{"allowed": True, "denied": True}, {"allowed": "true"}, {}], ids=str)
async def test_a_review_that_is_not_a_plain_allow_is_a_deny(
    authorizer: Authorizer, cluster: Cluster, status: dict[str, object]
) -> None:
    cluster.answered = lambda review: {**review, "status": status}
    assert (await refusal(authorizer)).code == 403


async def test_concurrent_equal_reviews_share_one(authorizer: Authorizer, cluster: Cluster) -> None:
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    checks = [asyncio.create_task(authorizer.check(USER, PODS)) for _ in range(5)]
    await cluster.waiting.wait()
    hold.set()
    await asyncio.gather(*checks)
    assert cluster.reviews() == 1


async def test_a_review_has_a_deadline(authorizer: Authorizer, cluster: Cluster) -> None:
    authorizer.deadline_seconds = 0.05
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    error = await refusal(authorizer)
    assert (error.code, "0.05 s" in error.message) == (503, True)
    hold.set()
