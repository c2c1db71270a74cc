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


@pytest.mark.parametrize(
    ("field", "groups"),
    [
        pytest.param("X-Remote-User: system:admin", [], id="a second user: the first counts"),
        pytest.param("X_Remote_Group: system:masters", [], id="an underscore is no hyphen"),
        pytest.param("X-Remote_Group: system:masters", [], id="nor is one of two"),
        pytest.param("X-Remote-Group: a, system:masters", ["a, system:masters"], id="a comma joins no groups"),
        pytest.param("X-Remote-Group: system:masters2", ["system:masters2"], id="a group that begins as the masters'"),
        pytest.param("Impersonate-User: system:admin", [], id="no user is impersonated"),
        pytest.param("Impersonate-Group: system:masters", [], id="no group is impersonated"),
    ],
)
async def test_a_header_adds_nothing_to_the_identity_but_the_group_that_it_names(
    service: Service, proxy: trustme.LeafCert, field: str, groups: list[str]
) -> None:
    assert await statuses(service, proxy, head(METRIC, *as_proxy(field, CLOSE))) == [200]
    [spec] = asked_about(service)
    assert (spec["user"], spec["groups"]) == ("bob", [*groups, "system:authenticated"])


async def test_an_identity_does_not_carry_over_to_the_next_request_of_its_connection(
    service: Service, proxy: trustme.LeafCert
) -> None:
    admin = head(METRIC, *as_proxy("X-Remote-Group: system:masters", user="admin"))
    assert await statuses(service, proxy, admin + head(METRIC)) == [200, 401]


async def test_an_unknown_forged_or_expired_certificate_gets_no_answer_whatever_its_name(
    service: Service, front_proxy: trustme.CA, client_authority: trustme.CA
) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    forged = trustme.CA()
    forged._certificate = front_proxy._certificate  # noqa: SLF001  what it signs names the real one as its issuer
    for authority, until in ((trustme.CA(), None), (client_authority, None), (forged, None), (front_proxy, past)):
        leaf = authority.issue_cert("x.test", common_name="front-proxy-client", not_after=until)
        assert await exchanged(service, leaf, head(METRIC, *as_proxy(CLOSE))) == b""
    assert asked_about(service) == []


# --- what is remembered of one identity is never another's


@pytest.mark.parametrize(
    ("allowed", "other"),
    [
        (as_user("bob", "a"), as_user("bob", "b")),
        (as_user("bob", "a"), as_user("bo", "ba")),
        (as_user("bob"), as_user("bob", "a")),
        (as_user("bob", "a"), as_user("bob")),
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
