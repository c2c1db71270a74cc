"""A closed connection leaves nothing in memory: full garbage collections are rare."""

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adapter.apiserver.serving.handshakes import TlsConnection
from adapter.inbound.connections import InboundConnection
from tests.apiserver.conftest import Service

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
KEPT = (InboundConnection, TlsConnection, asyncio.Transport)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(None, id="an unfinished handshake"),
        pytest.param(b"", id="no request"),
        pytest.param(HEALTH, id="a request"),
        pytest.param(b"GET /apis HTTP/1.1\r\nHost: x\r\n\r\n", id="a request without credentials"),
        pytest.param(b"GET\r\n\r\n", id="no HTTP"),
        pytest.param(HEALTH[:-2], id="half a request"),
    ],
)
async def test_a_closed_connection_leaves_nothing_for_the_garbage_collector(
    service: Service, ended: asyncio.Semaphore, sent: bytes | None
) -> None:
    await service.ready()
    context = service.context(None)
    with without_collections() as garbage:
        await asyncio.to_thread(connect, service.server.port, context, sent)
        async with asyncio.timeout(20):
            await ended.acquire()
        for _ in range(3):  # what asyncio and the server still had planned
            await asyncio.sleep(0)
    assert Counter(type(one).__name__ for one in garbage if isinstance(one, KEPT)) == {}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Acquired once for every connection that the server lost."""
    lost, ends = TlsConnection.connection_lost, asyncio.Semaphore(0)

    def observed(self: TlsConnection, exc: BaseException | None) -> None:
        lost(self, exc)
        ends.release()

    monkeypatch.setattr(TlsConnection, "connection_lost", observed)
    return ends


def connect(port: int, context: ssl.SSLContext, sent: bytes | None) -> None:
    """Blocking, in a thread of its own, so that all transports of the event loop are the server's."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        if sent is None:
            raw.sendall(b"\x16\x03\x01")
            return
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            tls.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                tls.recv(1 << 16)


@contextmanager
def without_collections() -> Iterator[list[object]]:
    """The list holds at the end whatever only the garbage collector could have freed."""
    gc.collect()
    gc.freeze()
    gc.disable()
    garbage: list[object] = []
    try:
        yield garbage
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
