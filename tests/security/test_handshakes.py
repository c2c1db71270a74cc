"""The cost of a TLS handshake, the most expensive request of an unauthenticated client."""

import asyncio
import datetime as dt
import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec

from adapter.apiserver.serving.handshakes import TlsConnection
from adapter.inbound.connections import InboundConnection
from tests.apiserver.conftest import Service
from tests.security.certs import Holder, root
from tests.security.connections import PATIENCE, asked, drop, opened

P256 = 0x0017
DEARER = {
    "X448": 0x001E,
    "P-521": 0x0019,
    "P-384": 0x0018,
    "ffdhe2048": 0x0100,
    "ffdhe3072": 0x0101,
    "ffdhe4096": 0x0102,
    "ffdhe6144": 0x0103,
    "ffdhe8192": 0x0104,
}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
HANDSHAKE = b"\x16"
"""The type of a TLS record."""


def _extension(number: int, content: bytes) -> bytes:
    return struct.pack("!HH", number, len(content)) + content


def hello(group: int) -> bytes:
    """A ClientHello of TLS 1.3 with this group only and no key share; a server that supports the group requests one."""
    extensions = b"".join(
        (
            _extension(43, b"\x02\x03\x04"),  # supported_versions
            _extension(10, struct.pack("!HH", 2, group)),  # supported_groups
            _extension(13, struct.pack("!HHHH", 6, 0x0403, 0x0804, 0x0401)),  # signature_algorithms
            _extension(51, b"\x00\x00"),  # key_share
        )
    )
    body = b"\x03\x03" + os.urandom(32) + b"\x00" + b"\x00\x02\x13\x02" + b"\x01\x00"
    body += struct.pack("!H", len(extensions)) + extensions
    return b"\x16\x03\x01" + struct.pack("!HB", len(body) + 4, 1) + len(body).to_bytes(3, "big") + body


async def is_agreed_to(service: Service, group: int) -> bool:
    """Whether the server continues a handshake with this group."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
    writer.write(hello(group))
    async with asyncio.timeout(PATIENCE):
        first = await reader.read(1)
    writer.transport.abort()
    return first == HANDSHAKE


async def test_every_client_agrees_on_the_one_key_exchange_group(service: Service) -> None:
    assert await is_agreed_to(service, P256)


@pytest.mark.parametrize("group", DEARER.values(), ids=DEARER)
async def test_no_client_can_choose_a_more_expensive_key_exchange(service: Service, group: int) -> None:
    """One handshake with ffdhe8192 took 120 ms of the event loop, at no cost for the client."""
    assert not await is_agreed_to(service, group)


def chain_of(folder: Path, number: int) -> Holder:
    """A certificate below this many untrusted ones."""
    holder = root(folder, key=ec.generate_private_key(ec.SECP256R1()))
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    for index in range(number - 1):
        holder = holder.issue(f"intermediate {index}", authority=True, until=until)
    return holder.issue("user", until=until)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TlsConnection, int]]:
    """The bytes of each read, with their connection."""
    found: list[tuple[TlsConnection, int]] = []
    updated = TlsConnection.buffer_updated

    def seen(connection: TlsConnection, nbytes: int) -> None:
        found.append((connection, nbytes))
        updated(connection, nbytes)

    monkeypatch.setattr(TlsConnection, "buffer_updated", seen)
    return found


async def test_hundreds_of_certificates_are_not_read(
    service: Service, tmp_path: Path, read: list[tuple[TlsConnection, int]]
) -> None:
    """280 of them took 39 ms of the event loop in one step before they were rejected."""
    context = service.context(chain_of(tmp_path, 280))  # type: ignore[arg-type]
    with suppress(OSError):
        reader, _ = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=context)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
    assert 1024 < sum(size for _, size in read) < 16 * 1024


LONG = b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + 60_000 * b"a" + b"\r\n\r\n"


async def test_unknown_clients_are_read_in_small_pieces_and_the_front_proxy_is_not(
    service: Service, proxy: trustme.LeafCert, read: list[tuple[TlsConnection, int]]
) -> None:
    """600 key-update records fit in 16 KiB; they took 11 ms of the event loop in one step."""
    for leaf, most in ((None, 2 * 1024), (proxy, 16 * 1024)):
        read.clear()
        wire = await opened(service, leaf)
        assert b" 200 " in await asked(wire, LONG)
        assert max(size for _, size in read) == most
        drop(wire)


async def test_nothing_is_read_from_an_unknown_client_that_does_not_read(
    service: Service, read: list[tuple[TlsConnection, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key update is answered by a record, and these were buffered without a limit."""
    taken: list[int] = []
    received = InboundConnection.data_received

    def seen(one: InboundConnection, data: bytes) -> None:
        taken.append(len(data))
        received(one, data)

    monkeypatch.setattr(InboundConnection, "data_received", seen)
    wire = await opened(service)
    assert b" 200 " in await asked(wire, HEALTH)
    taken.clear()
    connection = read[-1][0]
    connection.pause_writing()
    before = len(read)
    wire[1].write(HEALTH)
    async with asyncio.timeout(PATIENCE):
        while len(read) == before:  # noqa: ASYNC110 - until it has come through the kernel
            await asyncio.sleep(0.01)
    for _ in range(3):  # a step may be due later than the next turn
        await connection._queue.wait(connection.address)
    assert taken == []
    connection.resume_writing()
    assert b" 200 " in await asked(wire, b"")
    assert taken == [len(HEALTH)]
    drop(wire)
