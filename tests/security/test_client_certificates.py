"""Client certificates: the front proxy's by CA and name, a cluster user's by the client CA."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trustme

from adapter.apiserver.authentication.requestheader import AuthenticationConfig, Peer, parse_config_map
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import HPA, Service, as_user, pem
from tests.security.certs import CLIENT, SERVER, Holder, root
from tests.security.raw_requests import METRIC, as_proxy, exchanged, head

CLOSE = "Connection: close"


def leaf(holder: Holder) -> trustme.LeafCert:
    """A certificate for the clients of the kit, which only call `configure_cert`."""
    return cast("trustme.LeafCert", holder)


def trust(authority: Holder, **more: str) -> AuthenticationConfig:
    return parse_config_map({"requestheader-client-ca-file": authority.pem, **more})


@pytest.fixture
def authority(tmp_path: Path) -> Holder:
    return root(tmp_path)


@pytest.fixture
async def users(service: Service, cluster: Cluster, front_proxy: trustme.CA, tmp_path: Path) -> Holder:
    """The cluster's client CA, in use."""
    found = root(tmp_path)
    cluster.trust(pem(front_proxy), **{"client-ca-file": found.pem})
    await following(service, found.pem)
    return found


async def following(service: Service, bundle: str) -> None:
    """Wait until connections are verified against this client CA (empty: none)."""
    async with asyncio.timeout(30):
        while True:
            server = service.server
            known, served = server._authenticator.config, server._in_use
            if known.client_ca == bundle and served is not None and served[1] == known.ca_bundle:
                return
            await asyncio.sleep(0.005)


def asked_about(service: Service) -> list[dict[str, Any]]:
    return [body["spec"] for path, body in service.cluster.bodies if path == REVIEWS]


async def answered(service: Service, holder: Holder, *fields: str) -> bytes:
    """The status code of a request with this certificate; empty if the handshake failed."""
    return (await exchanged(service, leaf(holder), head(METRIC, CLOSE, *fields)))[9:12]


# --- names that are allowed


@pytest.mark.parametrize(
    ("names", "name", "counts"),
    [
        (None, "anybody", True),
        ("", "anybody", True),
        ("[]", "anybody", True),
        ("[]", "", True),
        ('[""]', "", True),
        ('[""]', "anybody", False),
        ('["", "front-proxy-client"]', "anybody", False),
        ('["", "front-proxy-client"]', "front-proxy-client", True),
        ('["front-proxy-client"]', "", False),
        ('["front-proxy-client"]', "Front-Proxy-Client", False),
    ],
)
def test_allowed_names_match_as_in_go(authority: Holder, names: str | None, name: str, counts: bool) -> None:
    """An empty list allows any name, an empty name in it only the empty one."""
    more = {} if names is None else {"requestheader-allowed-names": names}
    peer = Peer((authority.issue(name, ["o"]).certificate,))
    assert peer.is_front_proxy(trust(authority, **more), dt.datetime.now(dt.UTC).timestamp()) is counts


async def test_an_empty_allowed_name_admits_no_other_name(
    service: Service, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    other = front_proxy.issue_cert("other.test", common_name="somebody-else")
    cluster.trust(pem(front_proxy), allowed=[""])
    async with asyncio.timeout(30):
        while service.server._authenticator.config.allowed_names != {""}:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert (await service.ask(METRIC, leaf=other, headers=as_user())).status == 401


# --- users' certificates


async def test_a_certificate_of_the_client_ca_is_its_user(service: Service, users: Holder) -> None:
    holder = users.issue("jane", ["dev", "ops"])
    assert await answered(service, holder) == b"200"
    [spec] = asked_about(service)
    assert (spec["user"], spec["groups"]) == ("jane", ["dev", "ops", "system:authenticated"])
    assert spec["extra"] == {"authentication.kubernetes.io/credential-id": [f"X509SHA256={holder.fingerprint}"]}


@pytest.mark.parametrize("name", ["jane", "front-proxy-client"])
async def test_a_users_certificate_never_counts_as_the_front_proxys(service: Service, users: Holder, name: str) -> None:
    """Its identity headers are ignored, whatever its common name."""
    assert (
        await answered(service, users.issue(name), *as_proxy("X-Remote-Group: system:masters", user="admin")) == b"200"
    )
    [spec] = asked_about(service)
    assert (spec["user"], spec["groups"]) == (name, ["system:authenticated"])


async def test_a_user_with_hundreds_of_groups_in_the_certificate_is_answered(service: Service, users: Holder) -> None:
    holder = users.issue("jane", [f"team-{index:03}-of-the-cluster" for index in range(150)])
    assert len(holder.pem) > 6 * 1024
    assert await answered(service, holder) == b"200"


async def test_the_right_of_a_user_is_reviewed_and_refused(service: Service, users: Holder) -> None:
    service.cluster.may = lambda spec: spec["user"] != "jane"
    assert await answered(service, users.issue("jane")) == b"403"


async def test_a_certificate_without_a_common_name_identifies_no_user(service: Service, users: Holder) -> None:
    assert await answered(service, users.issue("", ["system:masters"])) == b"401"


async def test_a_certificate_takes_precedence_over_a_token(service: Service, users: Holder) -> None:
    service.cluster.tokens["good"] = {"username": "bob"}
    assert await answered(service, users.issue("jane"), "Authorization: Bearer good") == b"200"
    assert await answered(service, users.issue(""), "Authorization: Bearer good") == b"200"
    assert [spec["user"] for spec in asked_about(service)] == ["jane", "bob"]


@pytest.mark.parametrize(
    ("uses", "is_taken"), [((CLIENT,), True), ((CLIENT, SERVER), True), ((), True), ((SERVER,), False)]
)
async def test_only_a_certificate_for_clients_counts(
    service: Service, users: Holder, uses: tuple[Any, ...], is_taken: bool
) -> None:
    """A server certificate of the same CA is easier to steal; one without extended key usage has all usages."""
    assert await answered(service, users.issue("jane", uses=uses)) == (b"200" if is_taken else b"")


async def test_a_certificate_of_an_intermediate_is_valid_if_the_client_sends_the_chain(
    service: Service, users: Holder
) -> None:
    between = users.issue("between", authority=True)
    holder = between.issue("jane")
    assert await answered(service, holder) == b"200"
    holder.above = ()
    assert await answered(service, holder) == b""


async def test_a_user_certificate_cannot_issue_others(service: Service, users: Holder) -> None:
    jane = users.issue("jane")
    forged = jane.issue("system:admin", ["system:masters"])
    forged.above = (jane.certificate,)
    assert await answered(service, forged) == b""


async def test_a_certificate_that_expires_on_an_open_connection_is_rejected(service: Service, users: Holder) -> None:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    holder = leaf(users.issue("jane", until=end))
    assert (await service.ask(METRIC, leaf=holder)).status == 200
    service.wall.now = end.timestamp() + 1
    assert (await service.ask(METRIC, leaf=holder)).status == 401


async def test_an_expired_intermediate_invalidates_its_users(service: Service, users: Holder) -> None:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    holder = leaf(users.issue("between", authority=True, until=end).issue("jane"))
    assert (await service.ask(METRIC, leaf=holder)).status == 200
    service.wall.now = end.timestamp() + 1
    assert (await service.ask(METRIC, leaf=holder)).status == 401


@pytest.mark.parametrize("is_dismissed", [True, False], ids=["idle", "before it is dismissed"])
async def test_a_removed_client_ca_invalidates_its_users_on_open_connections(
    service: Service,
    users: Holder,
    cluster: Cluster,
    front_proxy: trustme.CA,
    tmp_path: Path,
    is_dismissed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_dismissed:
        monkeypatch.setattr(service.server, "_dismiss_peers", lambda: None)
    shown = service.context(leaf(users.issue("jane")))
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=shown)
    writer.write(head(METRIC))
    assert b" 200 " in await reader.readuntil(b"]}")
    other = root(tmp_path, "another")
    cluster.trust(pem(front_proxy), **{"client-ca-file": other.pem})
    await following(service, other.pem)
    if not is_dismissed:
        writer.write(head(METRIC))
    async with asyncio.timeout(10):
        assert (await reader.read())[9:12] == (b"" if is_dismissed else b"401")
    writer.close()
    assert await answered(service, users.issue("jane")) == b""
    assert await answered(service, other.issue("jane")) == b"200"


async def test_a_ca_that_is_renewed_with_its_key_keeps_its_users(
    service: Service, users: Holder, cluster: Cluster, front_proxy: trustme.CA, tmp_path: Path
) -> None:
    holder = leaf(users.issue("between", authority=True).issue("jane"))
    assert (await service.ask(METRIC, leaf=holder)).status == 200
    renewed = root(tmp_path, key=users.key)
    cluster.trust(pem(front_proxy), **{"client-ca-file": renewed.pem})
    await following(service, renewed.pem)
    assert (await service.ask(METRIC, leaf=holder)).status == 200


# --- both bundles


async def test_with_one_ca_in_both_bundles_names_and_headers_decide(
    service: Service, cluster: Cluster, tmp_path: Path
) -> None:
    """In Go's order: the front proxy where its name is allowed and it names a user, else the certificate's user."""
    one = root(tmp_path)
    cluster.trust(one.pem, **{"client-ca-file": one.pem})
    await following(service, one.pem)
    proxy, jane = one.issue("front-proxy-client"), one.issue("jane")
    for holder in (proxy, jane):
        assert await answered(service, holder, *as_proxy(user=HPA)) == b"200"
        assert await answered(service, holder) == b"200"
    assert [spec["user"] for spec in asked_about(service)] == [HPA, "front-proxy-client", "jane"]


async def test_a_client_ca_alone_admits_users_and_no_front_proxy(
    service: Service, cluster: Cluster, tmp_path: Path
) -> None:
    one = root(tmp_path)
    cluster.trust("", **{"client-ca-file": one.pem})
    await following(service, one.pem)
    assert await answered(service, one.issue("front-proxy-client"), *as_proxy(user="admin")) == b"200"
    assert [spec["user"] for spec in asked_about(service)] == ["front-proxy-client"]


async def test_an_invalid_client_ca_disables_users_and_not_the_front_proxy(
    service: Service, users: Holder, cluster: Cluster, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    cluster.trust(pem(front_proxy), **{"client-ca-file": "no certificate"})
    await following(service, "")
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200
    assert await answered(service, users.issue("jane")) == b""
    found = service.metrics.registry.get_sample_value(
        "effective_load_errors_total", {"reason": "authentication_config"}
    )
    assert found
    assert "client-ca-file holds no certificates" in service.server._authenticator.config.client_ca_error


def test_bundles_with_text_between_their_certificates_are_read(authority: Holder, tmp_path: Path) -> None:
    other = root(tmp_path, "other")
    bundle = f"# ours\n{authority.pem}\n\nand another\n{other.pem}"
    found = parse_config_map(
        {"client-ca-file": bundle, "requestheader-allowed-names": msgspec.json.encode(["x"]).decode()}
    )
    assert (len(found.client_ca_certificates), found.requestheader_ca, found.allowed_names) == (2, "", frozenset())
    now = dt.datetime.now(dt.UTC).timestamp()
    for holder in (authority, other):
        assert Peer((holder.issue("jane").certificate,)).client_identity(found, now) is not None


def test_a_certificate_in_the_bundle_that_is_not_a_ca_verifies_only_itself(authority: Holder) -> None:
    """Such a certificate is trusted itself, and issues nothing."""
    jane = authority.issue("jane")
    found = parse_config_map({"client-ca-file": jane.pem})
    now = dt.datetime.now(dt.UTC).timestamp()
    assert Peer((jane.certificate,)).client_identity(found, now) is not None
    assert Peer((jane.issue("admin").certificate,)).client_identity(found, now) is None


async def test_a_resumed_session_is_checked_by_its_certificate(
    service: Service, users: Holder, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    """TLS 1.2 resumes sessions within one context, without verifying a chain again."""
    context = service.context(leaf(users.issue("jane")))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    port = service.server.port
    session, _, first = await asyncio.to_thread(connected, port, context, None)
    _, reused, second = await asyncio.to_thread(connected, port, context, session)
    assert (reused, first, second) == (True, b"200", b"200")
    cluster.trust(pem(front_proxy))
    await following(service, "")
    with contextlib.suppress(OSError):
        assert (await asyncio.to_thread(connected, port, context, session))[2] in {b"", b"401"}


def connected(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool | None, bytes]:
    """A connection's TLS session, whether it was resumed, and the status code of a request on it."""
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, session=session) as tls:
        tls.sendall(head(METRIC, CLOSE))
        return tls.session, tls.session_reused, tls.recv(100)[9:12]
