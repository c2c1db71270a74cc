"""Identity headers: who may send them, how they are read, and that no cache takes one identity for another."""

import asyncio
import datetime as dt

import pytest
import trustme

from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import Service, as_user, pem
from tests.security.wire import METRIC, as_proxy, exchanged, head, statuses

CLOSE = "Connection: close"


def asked_about(service: Service) -> list[dict[str, object]]:
    return [body["spec"] for path, body in service.cluster.bodies if path == REVIEWS]


@pytest.mark.parametrize(
    "field",
    [
        "X-Remote-User: system:admin",
        "x-rEmOtE-uSeR: system:admin",
        "X-Remote-Group: system:masters",
        "X-Remote-Extra-Scopes: all",
        "X_Remote_User: system:admin",
        "X-Remote_User: system:admin",
        "X-Remote-User : system:admin",
        "Impersonate-User: system:admin",
        "Impersonate-Group: system:masters",
        "X-Forwarded-User: system:admin",
        "X-Forwarded-Client-Cert: Subject=front-proxy-client",
        "X-SSL-Client-CN: front-proxy-client",
    ],
)
async def test_no_header_makes_a_stranger_somebody(service: Service, field: str) -> None:
    assert set(await statuses(service, None, head(METRIC, field, CLOSE))) <= {400, 401}
    assert asked_about(service) == []


async def test_the_first_of_two_users_counts_and_none_is_put_together(
    service: Service, proxy: trustme.LeafCert
) -> None:
    sent = head(METRIC, "X-Remote-User: bob", "X-Remote-User: system:admin", CLOSE)
    assert await statuses(service, proxy, sent) == [200]
    assert [spec["user"] for spec in asked_about(service)] == ["bob"]


@pytest.mark.parametrize("field", ["X_Remote_Group: system:masters", "X-Remote_Group: system:masters"])
async def test_an_underscore_is_no_hyphen(service: Service, proxy: trustme.LeafCert, field: str) -> None:
    assert set(await statuses(service, proxy, head(METRIC, *as_proxy(field, CLOSE)))) <= {200, 400}
    for spec in asked_about(service):
        assert spec["groups"] == ["system:authenticated"]


async def test_a_comma_joins_no_groups(service: Service, proxy: trustme.LeafCert) -> None:
    assert await statuses(service, proxy, head(METRIC, *as_proxy("X-Remote-Group: a, system:masters", CLOSE))) == [200]
    assert [spec["groups"] for spec in asked_about(service)] == [["a, system:masters", "system:authenticated"]]


@pytest.mark.parametrize("field", ["Impersonate-User: system:admin", "Impersonate-Group: system:masters"])
async def test_impersonation_is_the_api_servers_affair_and_changes_nobody(
    service: Service, proxy: trustme.LeafCert, field: str
) -> None:
    service.cluster.tokens["good"] = {"username": "bob"}
    assert await statuses(service, proxy, head(METRIC, *as_proxy(field, CLOSE))) == [200]
    assert await statuses(service, None, head(METRIC, "Authorization: Bearer good", field, CLOSE)) == [200]
    assert {spec["user"] for spec in asked_about(service)} == {"bob"}
    assert {tuple(spec["groups"]) for spec in asked_about(service)} == {("system:authenticated",)}


async def test_what_one_request_said_is_forgotten_with_the_next_on_its_connection(
    service: Service, proxy: trustme.LeafCert
) -> None:
    admin = head(METRIC, *as_proxy("X-Remote-Group: system:masters", user="admin"))
    assert await statuses(service, proxy, admin + head(METRIC)) == [200, 401]


async def test_a_certificate_that_nobody_knows_or_that_is_expired_gets_no_answer(
    service: Service, front_proxy: trustme.CA
) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    for leaf in (
        trustme.CA().issue_cert("x.test", common_name="front-proxy-client"),
        front_proxy.issue_cert("x.test", common_name="front-proxy-client", not_after=past),
    ):
        assert await exchanged(service, leaf, head(METRIC, *as_proxy(CLOSE))) == b""
    assert asked_about(service) == []


async def test_a_certificate_that_claims_the_authoritys_name_is_refused(
    service: Service, front_proxy: trustme.CA
) -> None:
    """The same subject as the real authority, but another key."""
    forged = trustme.CA()
    forged._certificate = front_proxy._certificate  # what it signs names the real one as its issuer
    leaf = forged.issue_cert("x.test", common_name="front-proxy-client")
    assert await exchanged(service, leaf, head(METRIC, *as_proxy(CLOSE))) == b""


# --- what is remembered of one identity is never another's


@pytest.mark.parametrize(
    ("allowed", "other"),
    [
        (as_user("bob", "a"), as_user("bob", "b")),
        (as_user("bob", "a"), as_user("bo", "ba")),
        (as_user("bob"), as_user("bob", "a")),
        (as_user("bob", **{"X-Remote-Extra-A": "b"}), as_user("bob", **{"X-Remote-Extra-Ab": ""})),
        (as_user("bob", **{"X-Remote-Extra-A": "b"}), as_user("bob", **{"X-Remote-Extra-A": "c"})),
        (as_user("bob"), as_user("bob ")),
        (as_user("bob"), as_user("BOB")),
    ],
)
async def test_a_right_of_one_identity_is_not_given_to_one_like_it(
    service: Service, proxy: trustme.LeafCert, allowed: dict[str, str], other: dict[str, str]
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=allowed)).status == 200
    [first] = asked_about(service)
    service.cluster.may = lambda spec: all(spec[key] == first[key] for key in ("user", "groups", "extra"))
    same = {
        key: value.strip() for key, value in other.items()
    } == allowed  # white space around a value is no part of it
    assert (await service.ask(METRIC, leaf=proxy, headers=other)).status == (200 if same else 403)


async def test_a_token_and_a_proxied_user_of_the_same_name_are_reviewed_apart(
    service: Service, proxy: trustme.LeafCert
) -> None:
    service.cluster.tokens["good"] = {"username": "bob", "uid": "7"}
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user("bob"))).status == 200
    service.cluster.may = lambda spec: not spec["uid"]
    assert (await service.ask(METRIC, headers={"Authorization": "Bearer good"})).status == 403


async def test_tokens_that_are_alike_are_verified_each(service: Service) -> None:
    service.cluster.tokens["good"] = {"username": "bob"}
    assert (await service.ask(METRIC, headers={"Authorization": "Bearer good"})).status == 200
    for token in ("goo", "good1", "Good", "good good", "good\tx", '"good"'):
        assert (await service.ask(METRIC, headers={"Authorization": f"Bearer {token}"})).status == 401


async def test_a_right_to_one_object_is_none_to_another_asked_for_at_the_same_time(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    cluster.may = lambda spec: spec["resourceAttributes"]["name"] == "checkout"
    others = [METRIC.replace("/checkout/", f"/{name}/") for name in ("checkout2", "checkou", "Checkout", "%2A")]
    answers = await asyncio.gather(
        *(service.ask(target, leaf=proxy, headers=as_user("bob")) for target in (METRIC, *others))
    )
    assert [answer.status for answer in answers] == [200, 403, 403, 403, 403]


async def test_another_trust_forgets_what_headers_meant(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user("bob"))).status == 200
    cluster.trust(pem(front_proxy), **{"requestheader-username-headers": '["X-Other-User"]'})
    async with asyncio.timeout(30):
        while (await service.ask(METRIC, leaf=proxy, headers=as_user("bob"))).status != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await service.ask(METRIC, leaf=proxy, headers={"X-Other-User": "bob"})).status == 200
