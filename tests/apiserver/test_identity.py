"""Authentication by the front proxy's certificate and headers."""

import asyncio
import contextlib

import aiohttp
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.authentication import EMPTY_CONFIG, Identity, IdentityHeaders, RawHeaders, parse_config_map
from adapter.apiserver.status import CertificateError
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import HPA, Answer, Service, as_user, pem

METRIC = (
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/checkout/effective_cpu"
)


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


def who(decoder: IdentityHeaders, *pairs: tuple[str, str]) -> Identity | None:
    return decoder.identity(decoder.select(raw(*pairs)))


@pytest.fixture(scope="module")
def decoder(front_proxy: trustme.CA) -> IdentityHeaders:
    return IdentityHeaders(parse_config_map(config(front_proxy)))


def test_the_identity_is_user_groups_and_extra(decoder: IdentityHeaders) -> None:
    found = who(
        decoder,
        ("Accept", "*/*"),
        ("X-Remote-User", HPA),
        ("X-Remote-Group", "system:serviceaccounts"),
        ("X-Remote-Group", "other"),
        ("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=1"),
        ("X-Remote-Extra-Scopes", "a"),
        ("X-Remote-Extra-Scopes", "b"),
    )
    assert found == Identity(
        HPA,
        "",
        ("system:serviceaccounts", "other", "system:authenticated"),
        (("authentication.kubernetes.io/credential-id", ("JTI=1",)), ("scopes", ("a", "b"))),
    )


def test_the_callers_of_discovery_come_without_a_group_and_are_authenticated(decoder: IdentityHeaders) -> None:
    found = who(decoder, ("X-Remote-User", "system:kube-aggregator"))
    assert found == Identity("system:kube-aggregator", "", ("system:authenticated",))


def test_a_group_is_not_added_twice(decoder: IdentityHeaders) -> None:
    found = who(decoder, ("X-Remote-User", "u"), ("X-Remote-Group", "system:authenticated"))
    assert found is not None
    assert found.groups == ("system:authenticated",)


def test_anonymous_users_are_not_put_into_the_authenticated_group(decoder: IdentityHeaders) -> None:
    found = who(decoder, ("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated"))
    assert found is not None
    assert found.groups == ("system:unauthenticated",)
    assert who(decoder, ("X-Remote-User", "system:anonymous")) == Identity("system:anonymous")


def test_names_compare_without_case_and_the_first_user_header_with_a_value_counts(decoder: IdentityHeaders) -> None:
    assert who(decoder, ("x-user", "second"), ("X-REMOTE-USER", "first")) == Identity(
        "first", "", ("system:authenticated",)
    )
    found = who(decoder, ("X-User", "second"), ("X-Remote-User", ""))
    assert found is not None
    assert found.user == "second"
    assert who(decoder, ("X-Remote-User", "")) is None
    assert who(decoder, ("X-Remote-Group", "system:masters")) is None


def test_a_uid_is_taken_only_where_the_proxy_is_known_to_set_it(front_proxy: trustme.CA) -> None:
    pairs = (("X-Remote-User", "u"), ("X-Remote-Uid", "42"))
    assert who(IdentityHeaders(parse_config_map(config(front_proxy))), *pairs) == Identity(
        "u", "", ("system:authenticated",)
    )
    told = IdentityHeaders(parse_config_map(config(front_proxy, **{"requestheader-uid-headers": '["X-Remote-Uid"]'})))
    assert who(told, *pairs) == Identity("u", "42", ("system:authenticated",))


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="utf-8"))), max_size=20))
def test_no_header_makes_the_decoder_fail(pairs: list[tuple[str, str]]) -> None:
    decoder = IdentityHeaders(EMPTY_CONFIG)
    assert decoder.identity(decoder.select(raw(*pairs))) is None


def test_a_header_that_only_looks_like_an_identitys_is_no_part_of_what_is_remembered(decoder: IdentityHeaders) -> None:
    """The front proxy passes a client's `X-Remote-A` on; with 300 such in each request a user took 170 MiB."""
    assert decoder.select(raw(("X-Remote-A", "1"), ("X-Remote-User", HPA))) == raw(("X-Remote-User", HPA))


def test_any_number_of_header_names_keeps_the_caches_bounded(front_proxy: trustme.CA) -> None:
    decoder = IdentityHeaders(parse_config_map(config(front_proxy)))
    for number in range(6000):
        who(decoder, (f"X-Remote-Extra-{number}", "v"), ("X-Remote-User", f"u{number}"))
    assert len(decoder.identities) <= 4096


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


def test_a_cluster_without_aggregation_has_no_front_proxy() -> None:
    assert parse_config_map({}) == EMPTY_CONFIG


# --- over TLS


async def test_identity_headers_of_the_front_proxy_are_accepted(service: Service, proxy: trustme.LeafCert) -> None:
    answer = await service.ask(METRIC, leaf=proxy, headers=as_user(HPA, "system:serviceaccounts"))
    assert answer.status == 200
    [(_, review)] = [found for found in service.cluster.bodies if found[0] == REVIEWS]
    assert review["spec"]["user"] == HPA
    assert review["spec"]["groups"] == ["system:serviceaccounts", "system:authenticated"]


def unauthorized(answer: Answer) -> bool:
    return (answer.status, answer.json()["reason"]) == (401, "Unauthorized")


async def test_a_cluster_users_certificate_is_nobodys_whatever_its_name(
    service: Service, client_authority: trustme.CA
) -> None:
    imposter = client_authority.issue_cert("front-proxy.test", common_name="front-proxy-client")
    with pytest.raises(OSError, match=r"(?i)unknown ca|reset|closed"):
        await handshake(service, imposter)
    assert service.cluster.reviews() == 0


async def handshake(service: Service, leaf: trustme.LeafCert) -> bytes:
    """One request on a new connection; in TLS 1.3 the server's rejection arrives with the first read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(leaf))
    try:
        writer.write(f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: system:admin\r\n\r\n".encode())
        line = await reader.readline()
        if not line:
            raise ConnectionResetError("closed")
        return line
    finally:
        writer.close()


async def test_without_allowed_names_any_certificate_of_the_ca_is_the_front_proxys(
    service: Service, front_proxy: trustme.CA, cluster: Cluster
) -> None:
    other = front_proxy.issue_cert("other.test", common_name="somebody-else")
    cluster.trust(pem(front_proxy), allowed=[])
    await until(service, other, 200)


async def until(service: Service, leaf: trustme.LeafCert, status: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(aiohttp.ClientError):  # refused until then
                if (await service.ask(METRIC, leaf=leaf, headers=as_user())).status == status:
                    return
            await asyncio.sleep(0.01)


# --- rotation


async def test_a_new_ca_replaces_the_old_one_without_a_restart(
    service: Service, front_proxy: trustme.CA, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    fresh = trustme.CA()
    renewed = fresh.issue_cert("front-proxy.test", common_name="front-proxy-client")
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200

    cluster.trust(pem(front_proxy) + pem(fresh))
    await connected(service, renewed)
    assert (await service.ask(METRIC, leaf=renewed, headers=as_user())).status == 200
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200

    cluster.trust(pem(fresh))
    await refused(service, proxy)
    assert (await service.ask(METRIC, leaf=renewed, headers=as_user())).status == 200


async def connected(service: Service, leaf: trustme.LeafCert) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await handshake(service, leaf)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


async def refused(service: Service, leaf: trustme.LeafCert) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await handshake(service, leaf)
            except OSError:
                return
            await asyncio.sleep(0.01)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    await reader.readexactly(length)
    return int(head.split()[1])


async def test_idle_connections_of_a_removed_ca_are_closed(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(proxy))
    request = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode()
    assert await exchange(reader, writer, request) == 200
    cluster.trust(pem(trustme.CA()))
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()


async def test_a_certificate_that_expires_on_an_open_connection_is_rejected(
    service: Service, front_proxy: trustme.CA
) -> None:
    import datetime as dt

    moment = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    brief = front_proxy.issue_cert("brief.test", common_name="front-proxy-client", not_after=moment)
    assert (await service.ask(METRIC, leaf=brief, headers=as_user())).status == 200
    service.wall.now = moment.timestamp() + 1
    assert unauthorized(await service.ask(METRIC, leaf=brief, headers=as_user()))


async def test_a_config_map_that_breaks_or_vanishes_changes_nothing(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    from tests.apiserver.cluster import CONFIG_MAP

    for breaking in (lambda: cluster.trust("no certificate"), lambda: cluster.objects.pop(CONFIG_MAP)):
        seen = cluster.asked[f"GET {CONFIG_MAP}"]
        breaking()
        await cluster.until(lambda seen=seen: cluster.asked[f"GET {CONFIG_MAP}"] >= seen + 3)  # type: ignore[misc]
        assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200
