"""Identity headers: who may send them, how they are decoded, and that no cache confuses identities."""

import asyncio
import datetime as dt

import pytest
import trustme

from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import Service, as_user, pem
from tests.security.raw_requests import METRIC, as_proxy, exchanged, head, statuses

CLOSE = "Connection: close"


def asked_about(service: Service) -> list[dict[str, object]]:
    return [body["spec"] for path, body in service.cluster.bodies if path == REVIEWS]


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
async def test_impersonation_headers_are_ignored(service: Service, proxy: trustme.LeafCert, field: str) -> None:
    assert await statuses(service, proxy, head(METRIC, *as_proxy(field, CLOSE))) == [200]
    assert {spec["user"] for spec in asked_about(service)} == {"bob"}
    assert {tuple(spec["groups"]) for spec in asked_about(service)} == {("system:authenticated",)}


async def test_an_identity_does_not_carry_over_to_the_next_request_of_its_connection(
    service: Service, proxy: trustme.LeafCert
) -> None:
    admin = head(METRIC, *as_proxy("X-Remote-Group: system:masters", user="admin"))
    assert await statuses(service, proxy, admin + head(METRIC)) == [200, 401]


async def test_an_unknown_or_expired_certificate_gets_no_answer(service: Service, front_proxy: trustme.CA) -> None:
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
    # What it signs names the real one as its issuer.
    forged._certificate = front_proxy._certificate  # noqa: SLF001
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
async def test_a_right_is_not_given_to_a_similar_identity(
    service: Service, proxy: trustme.LeafCert, allowed: dict[str, str], other: dict[str, str]
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=allowed)).status == 200
    [first] = asked_about(service)
    service.cluster.may = lambda spec: all(spec[key] == first[key] for key in ("user", "groups", "extra"))
    same = {
        key: value.strip() for key, value in other.items()
    } == allowed  # white space around a value is no part of it
    assert (await service.ask(METRIC, leaf=proxy, headers=other)).status == (200 if same else 403)


async def test_concurrent_requests_for_two_objects_are_authorized_separately(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    cluster.may = lambda spec: spec["resourceAttributes"]["name"] == "checkout"
    others = [METRIC.replace("/checkout/", f"/{name}/") for name in ("checkout2", "checkou", "Checkout", "%2A")]
    answers = await asyncio.gather(
        *(service.ask(target, leaf=proxy, headers=as_user("bob")) for target in (METRIC, *others))
    )
    assert [answer.status for answer in answers] == [200, 403, 403, 403, 403]


async def test_a_new_configuration_drops_cached_identities(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user("bob"))).status == 200
    cluster.trust(pem(front_proxy), **{"requestheader-username-headers": '["X-Other-User"]'})
    async with asyncio.timeout(30):
        while (await service.ask(METRIC, leaf=proxy, headers=as_user("bob"))).status != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await service.ask(METRIC, leaf=proxy, headers={"X-Other-User": "bob"})).status == 200
