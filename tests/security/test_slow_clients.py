"""Time limits: no client can hold a connection forever."""

import asyncio
import dataclasses
import socket
import time
from collections.abc import AsyncIterator

import pytest
import trustme
from aiohttp import web

from adapter.apiserver.server import ServerOptions
from adapter.inbound.connections import (
    BODY_SECONDS,
    HANDSHAKE_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    STALL_SECONDS,
    ConnectionLimits,
    InboundConnection,
    InboundConnections,
)
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.server import listen
from harness import snapshots
from tests.apiserver.cluster import Cluster
from tests.apiserver.conftest import HPA, Service, pem, running
from tests.apiserver.metric_requests import POLICY
from tests.security.connections import PATIENCE, asked, connected, drop, is_ended, opened, within

SHORT = 0.3
LONG = 3600.0
PATIENT = ConnectionLimits(
    handshake_seconds=LONG,
    head_seconds=LONG,
    idle_seconds=LONG,
    body_seconds=LONG,
    stall_seconds=LONG,
    sweep_seconds=0.05,
)
METRIC = f"{POLICY}/effective_cpu"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
REQUEST = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode()
BODY = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def limits() -> ConnectionLimits:
    """Long limits; each test shortens one."""
    return PATIENT


@pytest.fixture
async def strict(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA, limits: ConnectionLimits
) -> AsyncIterator[Service]:
    cluster.trust(pem(front_proxy))
    service = Service(cluster, session, dataclasses.replace(options, limits=limits))
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        yield service


def limited(**seconds: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("limits", [dataclasses.replace(PATIENT, **seconds)], ids=[next(iter(seconds))])  # type: ignore[arg-type]


def test_the_limits_are_those_of_go() -> None:
    assert (HEAD_SECONDS, IDLE_SECONDS) == (30, 90)
    assert HANDSHAKE_SECONDS <= 30
    assert max(BODY_SECONDS, STALL_SECONDS) <= 60


@limited(handshake_seconds=SHORT)
async def test_a_handshake_that_does_not_begin_or_does_not_end_is_given_up(strict: Service) -> None:
    silent, begun = await connected(strict.server.port), await connected(strict.server.port)
    begun[1].write(b"\x16\x03\x01\x02\x00\x01")
    assert await is_ended(silent)
    assert await is_ended(begun)
    drop(silent, begun)


@limited(head_seconds=SHORT)
@pytest.mark.parametrize("known", [False, True])
async def test_a_connection_without_a_first_request_is_closed(
    strict: Service, proxy: trustme.LeafCert, known: bool
) -> None:
    wire = await opened(strict, proxy if known else None)
    assert await is_ended(wire)
    drop(wire)


@limited(head_seconds=SHORT)
@pytest.mark.parametrize("known", [False, True])
async def test_a_head_that_comes_byte_by_byte_is_given_up_however_late_in_the_connection(
    strict: Service, proxy: trustme.LeafCert, known: bool
) -> None:
    wire = await opened(strict, proxy if known else None)
    assert (await asked(wire, HEALTH)).split()[1] == b"200"
    began = time.monotonic()
    wire[1].write(HEALTH[:-2])
    ended = asyncio.create_task(is_ended(wire))
    while not ended.done():
        wire[1].write(b"g")
        await asyncio.wait([ended], timeout=0.02)
    assert await ended
    assert SHORT < time.monotonic() - began < 100 * SHORT
    drop(wire)


@limited(head_seconds=SHORT)
async def test_a_connection_in_occasional_use_stays_open(strict: Service, proxy: trustme.LeafCert) -> None:
    wire = await opened(strict, proxy)
    for _ in range(3):
        assert (await asked(wire, REQUEST)).split()[1] == b"200"
        await asyncio.sleep(SHORT)
    assert (await asked(wire, REQUEST)).split()[1] == b"200"
    drop(wire)


@limited(idle_seconds=SHORT)
async def test_an_idle_connection_is_closed(strict: Service, proxy: trustme.LeafCert) -> None:
    for leaf in (None, proxy):
        wire = await opened(strict, leaf)
        assert (await asked(wire, HEALTH)).split()[1] == b"200"
        assert await is_ended(wire)
        drop(wire)


@limited(body_seconds=SHORT)
async def test_a_body_that_does_not_come_is_given_up(limits: ConnectionLimits) -> None:
    async def read(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    connections = InboundConnections(read, limits)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    whole, half = await connected(port), await connected(port)
    assert (await asked(whole, BODY + 100 * b"b")).split()[1] == b"200"
    half[1].write(BODY + 50 * b"b")
    assert await is_ended(half)
    assert (await asked(whole, BODY + 100 * b"b")).split()[1] == b"200"
    drop(whole, half)
    server.close()
    await connections.finish(1)


async def test_the_body_of_an_unauthenticated_request_is_not_read(strict: Service) -> None:
    wire = await opened(strict)
    wire[1].write(b"PUT /registries/platform/order?namespace=prod HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n")
    assert (await within(wire[0].readuntil(b"\r\n\r\n"))).split()[1] == b"401"
    drop(wire)


@limited(stall_seconds=SHORT)
async def test_an_answer_that_the_client_does_not_read_is_abandoned(limits: ConnectionLimits) -> None:
    async def large(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bytes(32 << 20))

    connections = InboundConnections(large, limits)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    reader, writer = await connected(server.sockets[0].getsockname()[1])
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(HEALTH)
    async with asyncio.timeout(30):
        while not connections.connections:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        while connections.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    drop((reader, writer))
    server.close()
    await connections.finish(1)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("half", [False, True])
async def test_a_client_that_disconnects_before_the_answers_is_not_logged(
    service: Service, proxy: trustme.LeafCert, caplog: pytest.LogCaptureFixture, is_known: bool, half: bool
) -> None:
    """Each answer that could not be sent was logged: a hundred lines for one packet."""
    before = set(service.server._connections.connections)
    wire = await opened(service, proxy if is_known else None)
    wire[1].write(100 * b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    await within(wire[0].readexactly(1))
    if half:
        wire[1].transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
    else:
        wire[1].close()
    async with asyncio.timeout(PATIENCE):
        while set(service.server._connections.connections) - before:  # noqa: ASYNC110 - until the last answer is given up
            await asyncio.sleep(0.01)
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    drop(wire)


async def test_a_client_that_disconnects_during_the_close_does_not_keep_the_connection(service: Service) -> None:
    before = set(service.server._connections.connections)
    wire = await opened(service)
    assert await asked(wire, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    (connection,) = set(service.server._connections.connections) - before
    assert isinstance(connection, InboundConnection)
    assert connection.raw_transport is not None
    connection.raw_transport.pause_reading()  # so that the client's agreement does not come
    connection.raw_transport.close()
    connection.eof_received()
    connection.abort()
    assert await is_ended(wire)
    async with asyncio.timeout(PATIENCE):
        while connection in service.server._connections.connections:  # noqa: ASYNC110 - told in a later turn
            await asyncio.sleep(0)
    drop(wire)


async def test_the_telemetry_port_has_the_same_limits() -> None:
    limits = dataclasses.replace(PATIENT, head_seconds=SHORT, idle_seconds=SHORT)
    async with listen(Metrics(), "127.0.0.1", 0, limits) as port:
        silent, used, slow = await connected(port), await connected(port), await connected(port)
        assert (await asked(used, HEALTH)).split()[1] == b"200"
        slow[1].write(HEALTH[:-3])
        for wire in (silent, used, slow):
            assert await is_ended(wire)
        drop(silent, used, slow)
