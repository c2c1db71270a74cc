"""Authentication by the front proxy's certificate and headers."""

import asyncio
import datetime as dt

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.authentication import (
    EMPTY_CONFIG,
    Identity,
    RawHeaders,
    RequestheaderConfig,
    identity_of,
    parse_config_map,
)
from adapter.apiserver.status import CertificateError
from tests.apiserver.cluster import CONFIG_MAP, Cluster
from tests.apiserver.conftest import Ask, Service, as_user, pem
from tests.security.raw_requests import METRIC, as_proxy, head, statuses


def config(authority: trustme.CA, **more: str) -> dict[str, str]:
    return {
        "requestheader-client-ca-file": pem(authority),
        "requestheader-username-headers": '["X-Remote-User","X-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        **more,
    }


def raw(*pairs: tuple[str, str]) -> RawHeaders:
    return tuple((name.encode(), value.encode()) for name, value in pairs)


@pytest.fixture(scope="module")
def known(front_proxy: trustme.CA) -> RequestheaderConfig:
    return parse_config_map(config(front_proxy))


USER = ("X-Remote-User", "u")
AUTHENTICATED = ("system:authenticated",)


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([USER], Identity("u", "", AUTHENTICATED)),  # discovery's callers come without a group
        ([USER, ("X-Remote-Group", "system:authenticated")], Identity("u", "", AUTHENTICATED)),
        ([("X-Remote-User", "system:anonymous")], Identity("system:anonymous")),
        ([("x-user", "second"), ("X-REMOTE-USER", "u")], Identity("u", "", AUTHENTICATED)),
        ([("X-User", "second"), ("X-Remote-User", "")], Identity("second", "", AUTHENTICATED)),
        ([USER, ("X-Remote-Uid", "42")], Identity("u", "", AUTHENTICATED)),
        (
            [USER, ("X-Remote-Extra-a%62", "1"), ("X-Remote-Extra-ab", "2")],
            Identity("u", "", AUTHENTICATED, (("ab", ("1", "2")),)),
        ),
        ([("X-Remote-User", "")], None),
        ([("X-Remote-Group", "system:masters")], None),
        (
            [
                ("Accept", "*/*"),
                USER,
                ("X-Remote-Group", "system:serviceaccounts"),
                ("X-Remote-Group", "other"),
                ("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=1"),
                ("X-Remote-Extra-Scopes", "a"),
                ("X-Remote-Extra-Scopes", "b"),
            ],
            Identity(
                "u",
                "",
                ("system:serviceaccounts", "other", *AUTHENTICATED),
                (("authentication.kubernetes.io/credential-id", ("JTI=1",)), ("scopes", ("a", "b"))),
            ),
        ),
    ],
)
def test_the_identity_is_the_first_user_with_groups_and_extra(
    known: RequestheaderConfig, pairs: list[tuple[str, str]], found: Identity | None
) -> None:
    assert identity_of(known, raw(*pairs)) == found


def test_a_uid_is_taken_where_the_proxy_is_known_to_set_it(front_proxy: trustme.CA) -> None:
    told = parse_config_map(config(front_proxy, **{"requestheader-uid-headers": '["X-Remote-Uid"]'}))
    assert identity_of(told, raw(USER, ("X-Remote-Uid", "42"))) == Identity("u", "42", AUTHENTICATED)


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="utf-8"))), max_size=20))
def test_no_header_makes_the_decoder_fail(pairs: list[tuple[str, str]]) -> None:
    assert identity_of(EMPTY_CONFIG, raw(*pairs)) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"requestheader-client-ca-file": "no certificate"},
        {"requestheader-allowed-names": "front-proxy-client"},
        {"requestheader-username-headers": '{"a": 1}'},
    ],
)
def test_an_invalid_config_map_is_rejected(front_proxy: trustme.CA, broken: dict[str, str]) -> None:
    with pytest.raises(CertificateError):
        parse_config_map({**config(front_proxy), **broken})


ASKED = head(METRIC, *as_proxy("Connection: close"))


async def until_answered(service: Service, leaf: trustme.LeafCert, answers: list[int]) -> None:
    async with asyncio.timeout(30):
        while await statuses(service, leaf, ASKED) != answers:  # noqa: ASYNC110  a handshake that fails has no event
            await asyncio.sleep(0.01)


async def test_without_allowed_names_any_certificate_of_the_ca_is_the_front_proxys(
    service: Service, front_proxy: trustme.CA, cluster: Cluster
) -> None:
    other = front_proxy.issue_cert("other.test", common_name="somebody-else")
    cluster.trust(pem(front_proxy), allowed=[])
    await until_answered(service, other, [200])


async def test_a_new_ca_replaces_the_old_one_without_a_restart(
    service: Service, front_proxy: trustme.CA, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    fresh = trustme.CA()
    renewed = fresh.issue_cert("front-proxy.test", common_name="front-proxy-client")
    cluster.trust(pem(front_proxy) + pem(fresh))
    await until_answered(service, renewed, [200])
    assert await statuses(service, proxy, ASKED) == [200]
    cluster.trust(pem(fresh))
    await until_answered(service, proxy, [])
    assert await statuses(service, renewed, ASKED) == [200]


async def test_a_certificate_that_expires_on_an_open_connection_is_rejected(
    service: Service, front_proxy: trustme.CA
) -> None:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    brief = front_proxy.issue_cert("brief.test", common_name="front-proxy-client", not_after=moment)
    assert (await service.ask(METRIC, leaf=brief, headers=as_user())).status == 200
    service.wall.now = moment.timestamp() + 1
    answer = await service.ask(METRIC, leaf=brief, headers=as_user())
    assert (answer.status, answer.json()["reason"]) == (401, "Unauthorized")


async def test_a_config_map_that_breaks_or_vanishes_changes_nothing(ask: Ask, cluster: Cluster) -> None:
    for breaking in (lambda: cluster.trust("no certificate"), lambda: cluster.objects.pop(CONFIG_MAP)):
        seen = cluster.asked[f"GET {CONFIG_MAP}"]
        breaking()
        await cluster.until(lambda seen=seen: cluster.asked[f"GET {CONFIG_MAP}"] >= seen + 3)  # type: ignore[misc]
        assert (await ask(METRIC)).status == 200
