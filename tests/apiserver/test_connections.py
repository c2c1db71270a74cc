"""Sockets, TLS and connections of the metrics API."""

import asyncio
import dataclasses
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from adapter.apiserver.authentication.requestheader import NO_CERTIFICATE, AuthenticationConfig, Peer, parse_config_map
from adapter.apiserver.server import ServerOptions
from adapter.apiserver.serving import certificates
from adapter.apiserver.serving.connections import PeerConnections
from adapter.apiserver.serving.tls import Listener, server_context
from adapter.kube.session import Session
from harness import snapshots
from tests.apiserver.cluster import SECRET, Cluster
from tests.apiserver.conftest import HPA, Service, as_user, pem, running
from tests.apiserver.metric_requests import POLICY

METRIC = f"{POLICY}/effective_cpu"
REQUEST = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode()


async def opened(service: Service, leaf: trustme.LeafCert) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(leaf))


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes = REQUEST) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    await reader.readexactly(length)
    return head


async def test_an_answer_goes_out_in_one_write(
    service: Service, proxy: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await opened(service, proxy)
    await answered(reader, writer)
    [connection] = [c for c in service.server._connections.connections if c.peer.certificate]  # type: ignore[attr-defined]
    written: list[bytes] = []
    write = connection.transport.write  # type: ignore[union-attr]

    def spied(data: bytes) -> None:
        written.append(bytes(data))
        write(data)

    monkeypatch.setattr(connection.transport, "write", spied)
    await answered(reader, writer)
    [whole] = written
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.endswith(b"}]}")
    plain = connection.raw_transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()


async def test_a_connection_serves_many_requests_for_many_users(service: Service, proxy: trustme.LeafCert) -> None:
    service.cluster.may = lambda spec: spec["user"] != "eve"
    reader, writer = await opened(service, proxy)
    statuses = []
    for user in ("bob", "eve", "bob", "", "ann"):
        named = f"X-Remote-User: {user}\r\n" if user else "Authorization: Bearer good\r\n"
        service.cluster.tokens["good"] = {"username": "token-user"}
        request = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\n{named}\r\n".encode()
        statuses.append((await answered(reader, writer, request)).split()[1])
    assert statuses == [b"200", b"403", b"200", b"200", b"200"]
    writer.close()


async def test_pipelined_requests_are_answered_in_order(service: Service, proxy: trustme.LeafCert) -> None:
    reader, writer = await opened(service, proxy)
    writer.write(REQUEST + REQUEST.replace(b"effective_cpu", b"nope") + REQUEST)
    statuses = [(await answered(reader, writer, b"")).split()[1] for _ in range(3)]
    assert statuses == [b"200", b"404", b"200"]
    writer.close()


async def test_a_401_closes_the_connection_so_that_the_next_may_present_a_certificate(
    service: Service,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context())
    head = await answered(reader, writer)
    assert head.startswith(b"HTTP/1.1 401")
    assert b"Connection: close" in head
    assert await reader.read() == b""
    writer.close()


async def test_a_name_removed_from_allowed_names_is_rejected_on_open_connections(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    reader, writer = await opened(service, proxy)
    assert (await answered(reader, writer)).startswith(b"HTTP/1.1 200")
    cluster.trust(pem(front_proxy), allowed=["somebody-else"])
    async with asyncio.timeout(30):
        while not (head := await answered(reader, writer)).startswith(b"HTTP/1.1 401"):
            assert head.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.01)
    writer.close()


async def test_a_user_that_is_not_utf8_is_a_401(service: Service, proxy: trustme.LeafCert) -> None:
    reader, writer = await opened(service, proxy)
    request = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: ".encode() + b"\xff\xfe\r\n\r\n"
    assert (await answered(reader, writer, request)).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_user_of_another_alphabet_is_reviewed_by_name(service: Service, proxy: trustme.LeafCert) -> None:
    reader, writer = await opened(service, proxy)
    request = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: 王小明\r\n\r\n".encode()
    assert (await answered(reader, writer, request)).startswith(b"HTTP/1.1 200")
    assert service.cluster.bodies[-1][1]["spec"]["user"] == "王小明"
    writer.close()


async def test_only_http_1_1_is_offered(service: Service, proxy: trustme.LeafCert) -> None:
    context = service.context(proxy)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


async def test_plain_http_on_the_tls_port_disturbs_no_other_connection(
    service: Service, proxy: trustme.LeafCert
) -> None:
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
        writer.write(REQUEST)
        assert b"200" not in await reader.read()
        writer.close()
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200


async def test_files_given_are_served_and_reloaded(
    cluster: Cluster,
    session: Session,
    options: ServerOptions,
    front_proxy: trustme.CA,
    proxy: trustme.LeafCert,
    tmp_path: Path,
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write() -> bytes:
        leaf = trustme.CA().issue_cert("effective-load.adapter.svc")
        key.write_bytes(leaf.private_key_pem.bytes())
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())

    first = write()
    cluster.trust(pem(front_proxy))
    tls = dataclasses.replace(options.tls, certificate=certificate, key=key)
    service = Service(cluster, session, dataclasses.replace(options, tls=tls))
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        assert await shown(service, proxy) == first
        second = write()
        async with asyncio.timeout(30):
            while await shown(service, proxy) != second:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await service.ask(METRIC, leaf=proxy, headers=as_user())).status == 200
    assert SECRET not in cluster.objects


async def shown(service: Service, leaf: trustme.LeafCert) -> bytes:
    _, writer = await opened(service, leaf)
    writer.close()
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(der, bytes)
    return der


# --- the listening socket


@pytest.fixture
async def protocols() -> AsyncIterator[PeerConnections]:
    async def hello(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="hello")

    connections = PeerConnections(hello, lambda _: "")
    yield connections
    await connections.finish(1)


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    return server_context(certificates.create_bundle(["localhost"], 1_700_000_000.0).serving, "")


@pytest.mark.parametrize(("address", "reached"), [("127.0.0.1", "127.0.0.1"), ("", "127.0.0.1"), ("", "::1")])
async def test_an_address_is_listened_on_and_no_address_means_all(
    protocols: PeerConnections, context: ssl.SSLContext, address: str, reached: str
) -> None:
    if reached == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    listener = Listener(address, 0)
    assert listener.port == 0
    await listener.serve(protocols, context, "")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(reached, listener.port, ssl=client)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"hello")
    writer.close()
    listener.close()


async def test_the_port_stays_through_changes_and_is_free_at_the_end(
    protocols: PeerConnections, context: ssl.SSLContext
) -> None:
    listener = Listener("127.0.0.1", 0)
    await listener.serve(protocols, context, "a")
    port = listener.port
    await listener.serve(protocols, context, "b")
    assert listener.port == port
    assert listener.authority_of(context) == "b"
    listener.close()
    with pytest.raises(OSError, match=r"."):
        await asyncio.open_connection("127.0.0.1", port)


async def test_whenever_a_change_is_cancelled_no_socket_stays_open(
    protocols: PeerConnections, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []
    dup = socket.socket.dup

    def seen(one: socket.socket) -> socket.socket:
        opened.append(dup(one))
        return opened[-1]

    monkeypatch.setattr(socket.socket, "dup", seen)
    for turns in range(12):
        listener = Listener("127.0.0.1", 0)
        await listener.serve(protocols, context, "a")
        change = asyncio.create_task(listener.serve(protocols, context, "b"))
        for _ in range(turns):
            await asyncio.sleep(0)
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)
        listener.close()
        await asyncio.sleep(0)
        assert [one.fileno() for one in opened] == [-1] * len(opened), f"cancelled after {turns} turns"


async def test_a_port_that_is_taken_is_an_error_at_once(protocols: PeerConnections, context: ssl.SSLContext) -> None:
    first, second = Listener("127.0.0.1", 0), Listener("127.0.0.1", 0)
    await first.serve(protocols, context, "")
    second._address = ("127.0.0.1", first.port)
    with pytest.raises(OSError, match=r"(?i)in use"):
        await second.serve(protocols, context, "")
    first.close()


# --- who a peer is


def trust_in(*authorities: trustme.CA) -> AuthenticationConfig:
    return parse_config_map({"requestheader-client-ca-file": "".join(map(pem, authorities))})


def peer_with(leaf: trustme.LeafCert) -> Peer:
    return Peer(tuple(certificates.load_certificates(leaf.cert_chain_pems[0].bytes().decode())))


def end_of(peer: Peer) -> float:
    return peer.chain[0].not_valid_after_utc.timestamp()


def test_a_peer_is_verified_anew_under_another_bundle(front_proxy: trustme.CA, proxy: trustme.LeafCert) -> None:
    old, both, other = trust_in(front_proxy), trust_in(front_proxy, trustme.CA()), trust_in(trustme.CA())
    peer = peer_with(proxy)
    now = end_of(peer) - 1
    assert peer.is_front_proxy(old, now)
    assert peer.is_front_proxy(both, now)
    assert not peer.is_front_proxy(other, now)
    assert peer.is_front_proxy(both, now)
    assert not peer.is_front_proxy(AuthenticationConfig(), now)
    assert not peer.is_front_proxy(old, now + 1)


def test_an_imposter_of_the_same_name_is_not_verified(front_proxy: trustme.CA) -> None:
    imposter = trustme.CA().issue_cert("x.test", common_name="front-proxy-client")
    peer = peer_with(imposter)
    assert not peer.is_front_proxy(trust_in(front_proxy), end_of(peer) - 1)


def test_an_expired_ca_verifies_no_peer() -> None:
    authority = trustme.CA()
    trust = trust_in(authority)
    end = trust.requestheader_certificates[0].not_valid_after_utc
    late = authority.issue_cert("late.test", common_name="front-proxy-client", not_after=end + dt.timedelta(days=1))
    assert peer_with(late).is_front_proxy(trust, end.timestamp() - 1)
    assert not peer_with(late).is_front_proxy(trust, end.timestamp())


def test_a_peer_without_a_certificate_is_not_the_front_proxy(front_proxy: trustme.CA) -> None:
    assert not NO_CERTIFICATE.is_front_proxy(trust_in(front_proxy), 0)
    assert not NO_CERTIFICATE.is_front_proxy(AuthenticationConfig(), 0)
