"""Authorization: reviews by identity and attributes, their cache, and no allow on failure."""

import asyncio

import pytest
import trustme

from adapter.apiserver.authentication import Identity
from adapter.apiserver.authorization import Authorizer, ReviewClient, forbidden
from adapter.apiserver.request_info import Attributes, parse_target
from adapter.apiserver.status import StatusError
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import Clock, Service, as_user

USER = Identity("u", "7", ("g", "system:authenticated"), (("scopes", ("a", "b")),))
BASE = "/apis/custom.metrics.k8s.io/v1beta2"
PODS = Attributes("get", "custom.metrics.k8s.io", "v1beta2", "pods", "m", "*", "ns")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def authorizer(session: Session, clock: Clock, metrics: Metrics) -> Authorizer:
    return Authorizer(ReviewClient(session), metrics, clock)


async def refusal(authorizer: Authorizer, identity: Identity = USER, attributes: Attributes = PODS) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await authorizer.check(identity, attributes)
    return caught.value


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (
            f"{BASE}/namespaces/shop/pods/%2A/m",
            ("get", "custom.metrics.k8s.io", "v1beta2", "pods", "m", "*", "shop"),
        ),
        (
            f"{BASE}/namespaces/shop/deployments.apps/web/m",
            ("get", "custom.metrics.k8s.io", "v1beta2", "deployments.apps", "m", "web", "shop"),
        ),
        (f"{BASE}/namespaces/shop/metrics/m", ("get", "custom.metrics.k8s.io", "v1beta2", "metrics", "", "m", "shop")),
        (f"{BASE}/nodes/n/m", ("get", "custom.metrics.k8s.io", "v1beta2", "nodes", "m", "n", "")),
        (
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/m?labelSelector=a",
            ("list", "external.metrics.k8s.io", "v1beta1", "m", "", "", "shop"),
        ),
    ],
)
async def test_a_review_asks_about_the_resource(
    authorizer: Authorizer, cluster: Cluster, target: str, expected: tuple[str, ...]
) -> None:
    await authorizer.check(USER, parse_target(target).attributes)
    [(path, review)] = cluster.bodies
    assert (path, review["kind"], review["apiVersion"]) == (REVIEWS, "SubjectAccessReview", "authorization.k8s.io/v1")
    names = ("verb", "group", "version", "resource", "subresource", "name", "namespace")
    assert review["spec"]["resourceAttributes"] == dict(zip(names, expected, strict=True))
    assert "nonResourceAttributes" not in review["spec"]


@pytest.mark.parametrize("path", ["/apis", "/apis/custom.metrics.k8s.io", BASE, "/openapi/v2", "/version", "/nowhere"])
async def test_a_review_of_discovery_asks_about_the_path(authorizer: Authorizer, cluster: Cluster, path: str) -> None:
    await authorizer.check(USER, parse_target(path).attributes)
    [(_, review)] = cluster.bodies
    assert review["spec"]["nonResourceAttributes"] == {"verb": "get", "path": path}
    assert "resourceAttributes" not in review["spec"]


async def test_a_review_carries_the_whole_identity(authorizer: Authorizer, cluster: Cluster) -> None:
    await authorizer.check(USER, PODS)
    spec = cluster.bodies[0][1]["spec"]
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == (
        "u",
        "7",
        ["g", "system:authenticated"],
        {"scopes": ["a", "b"]},
    )


async def test_system_masters_need_no_review(authorizer: Authorizer, cluster: Cluster) -> None:
    cluster.may = lambda _: False
    await authorizer.check(Identity("admin", "", ("system:masters",)), PODS)
    assert cluster.reviews() == 0


async def test_an_allow_is_fresh_for_a_minute(authorizer: Authorizer, cluster: Cluster, clock: Clock) -> None:
    for _ in range(3):
        await authorizer.check(USER, PODS)
        clock.now += 20
    assert cluster.reviews() == 1


async def test_any_other_attributes_are_reviewed(authorizer: Authorizer, cluster: Cluster) -> None:
    await authorizer.check(USER, PODS)
    others = [
        (USER._replace(user="v"), PODS),
        (USER._replace(uid="8"), PODS),
        (USER._replace(groups=("h",)), PODS),
        (USER._replace(extra=()), PODS),
        (USER, PODS._replace(verb="list")),
        (USER, PODS._replace(group="external.metrics.k8s.io")),
        (USER, PODS._replace(version="v1beta1")),
        (USER, PODS._replace(resource="services")),
        (USER, PODS._replace(subresource="n")),
        (USER, PODS._replace(name="p")),
        (USER, PODS._replace(namespace="other")),
    ]
    for count, (identity, attributes) in enumerate(others, start=2):
        await authorizer.check(identity, attributes)
        assert cluster.reviews() == count


async def test_a_deny_is_cached_for_ten_seconds(authorizer: Authorizer, cluster: Cluster, clock: Clock) -> None:
    cluster.may = lambda _: False
    assert (await refusal(authorizer)).code == 403
    clock.now += 9
    assert (await refusal(authorizer)).code == 403
    assert cluster.reviews() == 1
    cluster.may = lambda _: True
    clock.now += 2
    await authorizer.check(USER, PODS)


async def test_a_review_that_allows_and_denies_is_a_deny(session: Session, clock: Clock, metrics: Metrics) -> None:
    class Undecided(ReviewClient):
        async def create(self, review: bytes, timeout: float) -> bytes:  # noqa: ASYNC109  the client's own
            return b'{"status": {"allowed": true, "denied": true}}'

    assert (await refusal(Authorizer(Undecided(session), metrics, clock))).code == 403


async def test_an_old_allow_is_used_while_its_renewal_runs(
    authorizer: Authorizer, cluster: Cluster, clock: Clock
) -> None:
    await authorizer.check(USER, PODS)
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    clock.now += 61
    for _ in range(3):
        await authorizer.check(USER, PODS)
    await cluster.waiting.wait()
    assert cluster.reviews() == 2
    hold.set()
    await settled(authorizer)
    clock.now += 50
    await authorizer.check(USER, PODS)
    assert cluster.reviews() == 2


async def settled(authorizer: Authorizer) -> None:
    await asyncio.gather(*authorizer.renewals.flights.values(), return_exceptions=True)


async def test_allows_that_expire_together_are_renewed_a_few_at_a_time_and_delay_no_new_review(
    authorizer: Authorizer, cluster: Cluster, clock: Clock
) -> None:
    known = [PODS._replace(name=f"p{number}") for number in range(30)]
    for attributes in known:
        await authorizer.check(USER, attributes)
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    clock.now += 61
    for attributes in known:
        await authorizer.check(USER, attributes)
    asking = asyncio.create_task(authorizer.check(USER, PODS))
    async with asyncio.timeout(30):
        while cluster.reviews() < 30 + 4 + 1:  # noqa: ASYNC110  a request that is held back tells nobody
            await asyncio.sleep(0)
    assert cluster.reviews() == 30 + 4 + 1
    hold.set()
    await asking
    await settled(authorizer)
    assert cluster.reviews() == 30 + 30 + 1


async def test_a_right_that_was_taken_away_is_gone_with_the_next_review(
    authorizer: Authorizer, cluster: Cluster, clock: Clock
) -> None:
    await authorizer.check(USER, PODS)
    cluster.may = lambda _: False
    clock.now += 61
    await authorizer.check(USER, PODS)
    await settled(authorizer)
    assert (await refusal(authorizer)).code == 403


async def test_an_allow_expires_after_five_minutes(authorizer: Authorizer, cluster: Cluster, clock: Clock) -> None:
    await authorizer.check(USER, PODS)
    cluster.faults[REVIEWS] = 500
    clock.now += 299
    await authorizer.check(USER, PODS)
    await settled(authorizer)
    clock.now += 2
    assert (await refusal(authorizer)).code == 503


async def test_a_deny_is_never_used_stale_and_a_failed_review_allows_nothing(
    authorizer: Authorizer, cluster: Cluster, clock: Clock
) -> None:
    cluster.may = lambda _: False
    await refusal(authorizer)
    cluster.faults[REVIEWS] = 500
    clock.now += 11
    error = await refusal(authorizer)
    assert (error.code, error.reason, "made to fail" in error.message) == (503, "ServiceUnavailable", False)


async def test_a_failed_review_is_not_cached(authorizer: Authorizer, cluster: Cluster) -> None:
    cluster.faults[REVIEWS] = 429
    assert (await refusal(authorizer)).code == 503
    del cluster.faults[REVIEWS]
    await authorizer.check(USER, PODS)


async def test_a_review_has_a_deadline(session: Session, cluster: Cluster, clock: Clock, metrics: Metrics) -> None:
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    error = await refusal(Authorizer(ReviewClient(session), metrics, clock, deadline=0.05))
    assert (error.code, "0.05 s" in error.message) == (503, True)
    hold.set()


async def test_concurrent_identical_requests_share_one_review(authorizer: Authorizer, cluster: Cluster) -> None:
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    asking = [asyncio.create_task(authorizer.check(USER, PODS)) for _ in range(20)]
    await cluster.waiting.wait()
    hold.set()
    await asyncio.gather(*asking)
    assert cluster.reviews() == 1


async def test_an_identity_that_is_not_utf8_is_a_401(authorizer: Authorizer) -> None:
    assert (await refusal(authorizer, USER._replace(user="\udcff"))).code == 401


async def test_reviews_are_counted_by_result(authorizer: Authorizer, cluster: Cluster, metrics: Metrics) -> None:
    await authorizer.check(USER, PODS)
    await authorizer.check(USER, PODS)
    cluster.may = lambda _: False
    await refusal(authorizer, USER._replace(user="v"))
    counted = {
        result: metrics.registry.get_sample_value("effective_load_authorization_reviews_total", {"result": result})
        for result in ("allowed", "denied")
    }
    assert counted == {"allowed": 1, "denied": 1}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            PODS,
            (
                'pods.custom.metrics.k8s.io "*" is forbidden: User "u" cannot get resource "pods/m" in API group '
                '"custom.metrics.k8s.io" in the namespace "ns": no rule'
            ),
        ),
        (
            Attributes("list", "external.metrics.k8s.io", "v1beta1", "m", namespace="ns"),
            (
                'm.external.metrics.k8s.io is forbidden: User "u" cannot list resource "m" in API group '
                '"external.metrics.k8s.io" in the namespace "ns": no rule'
            ),
        ),
        (
            PODS._replace(resource="nodes", namespace=""),
            (
                'nodes.custom.metrics.k8s.io "*" is forbidden: User "u" cannot get resource "nodes/m" in API group '
                '"custom.metrics.k8s.io" at the cluster scope: no rule'
            ),
        ),
        (Attributes(path="/apis"), 'forbidden: User "u" cannot get path "/apis": no rule'),
    ],
)
def test_a_403_has_the_message_of_the_go_servers(attributes: Attributes, message: str) -> None:
    error = forbidden(USER, attributes, "no rule")
    assert (error.code, error.reason, error.message) == (403, "Forbidden", message)


async def test_a_user_without_the_right_gets_a_403_over_the_wire(service: Service, proxy: trustme.LeafCert) -> None:
    service.cluster.may = lambda spec: spec["user"] != "eve"
    path = f"{BASE}/namespaces/shop/deployments.apps/web/effective_cpu"
    assert (await service.ask(path, leaf=proxy, headers=as_user("bob"))).status == 200
    answer = await service.ask(path, leaf=proxy, headers=as_user("eve"))
    assert (answer.status, answer.json()["code"], answer.json()["reason"]) == (403, 403, "Forbidden")
    assert answer.json()["details"]["kind"] == "deployments.apps"
