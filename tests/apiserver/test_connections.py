"""Sockets, TLS and connections of the metrics API."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from adapter.apiserver.handler import unreadable
from adapter.kube.session import Session
from adapter.runtime.concurrency import turn
from adapter.runtime.inbound import HttpConnections, HttpLimits, SocketTransport
from adapter.settings.server import ServerSettings, Tls
from tests.apiserver import snapshots
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
    [connection] = service.server.connections.connections
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
    plain = connection.transport.get_extra_info("socket")  # type: ignore[union-attr]
    assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()


async def test_a_connection_serves_many_requests_for_many_users(service: Service, proxy: trustme.LeafCert) -> None:
    service.cluster.may = lambda spec: spec["user"] != "eve"
    reader, writer = await opened(service, proxy)
    statuses = []
    for user in ("bob", "eve", "bob", "ann"):
        request = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {user}\r\n\r\n".encode()
        statuses.append((await answered(reader, writer, request)).split()[1])
    assert statuses == [b"200", b"403", b"200", b"200"]
    writer.close()


async def test_pipelined_requests_are_answered_in_order(service: Service, proxy: trustme.LeafCert) -> None:
    reader, writer = await opened(service, proxy)
    writer.write(REQUEST + REQUEST.replace(b"effective_cpu", b"nope") + REQUEST)
    statuses = [(await answered(reader, writer, b"")).split()[1] for _ in range(3)]
    assert statuses == [b"200", b"404", b"200"]
    writer.close()


class Parting(SocketTransport):
    """Takes leave of the client for a while before it ends, as TLS does."""

    def close(self) -> None:
        self.pause_reading()


async def test_a_request_whose_connection_ends_before_its_turn_is_not_handled() -> None:
    handled = []

    async def handle(request: web.BaseRequest) -> web.Response:
        handled.append(request.get_extra_info("peer"))
        return web.Response()

    ours, theirs = socket.socketpair()
    with theirs:
        connections = HttpConnections(handle, HttpLimits(connections=1), unreadable)
        transport = Parting(ours, "10.0.0.1", connections.forget)
        connections.start(transport)
        await turn()
        theirs.sendall(REQUEST)
        transport.readable()
        connections.dismiss()  # as where the front proxy's CA changes
        await turn()
        await connections.finish(1)
    assert handled == []


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
    options: ServerSettings,
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
    tls = Tls(mode="Files", namespace="adapter", cert_file=str(certificate), key_file=str(key))
    service = Service(cluster, session, options.model_copy(update={"tls": tls}))
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
