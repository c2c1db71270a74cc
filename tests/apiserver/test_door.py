"""The port of the metrics API is for the front proxy alone: a stranger reaches neither HTTP nor much of the loop."""

import asyncio
import os
import resource
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from adapter.apiserver import door
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from tests.apiserver import snapshots
from tests.apiserver.certs import CLIENT, SERVER, Holder, root
from tests.apiserver.cluster import CONFIG_MAP, Cluster
from tests.apiserver.conftest import Service, as_user, made, pem, running
from tests.apiserver.raw import (
    METRIC,
    PATIENCE,
    Streams,
    as_proxy,
    asked,
    connected,
    drop,
    exchanged,
    head,
    is_ended,
    is_open,
    opened,
)
from tests.waiting import eventually

CLOSE = "Connection: close"


def leaf(holder: Holder) -> trustme.LeafCert:
    """A certificate for the clients of the kit, which only call `configure_cert`."""
    return cast("trustme.LeafCert", holder)


@pytest.fixture
async def authority(service: Service, cluster: Cluster, tmp_path: Path) -> Holder:
    """The front proxy's CA, in use, with any name allowed."""
    found = root(tmp_path)
    await following(service, cluster, found.pem)
    return found


async def following(service: Service, cluster: Cluster, bundle: str) -> None:
    cluster.trust(bundle, allowed=[])
    async with asyncio.timeout(PATIENCE):
        while service.server.door.in_use is None or service.server.door.in_use[1] != bundle.strip():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def answered(service: Service, certificate: trustme.LeafCert | None) -> bytes:
    """The status code of a request with this certificate; empty if the connection ended instead."""
    return (await exchanged(service, certificate, head(METRIC, *as_proxy(CLOSE))))[9:12]


# --- who may connect


async def test_a_client_without_a_certificate_gets_no_http(service: Service) -> None:
    for request in (head(METRIC, *as_proxy(CLOSE)), head("/livez", CLOSE), head(METRIC, "Authorization: Bearer t")):
        assert await exchanged(service, None, request) == b""
    assert service.cluster.reviews() == 0


async def test_another_name_of_the_authority_is_a_401_and_its_connection_ends(
    service: Service, front_proxy: trustme.CA, capsys: pytest.CaptureFixture[str]
) -> None:
    wire = await opened(service, front_proxy.issue_cert("other.test", common_name="somebody-else"))
    assert (await asked(wire, head(METRIC, *as_proxy("X-Remote-Group: system:masters"))))[9:12] == b"401"
    assert await is_ended(wire)
    assert "somebody-else" in capsys.readouterr().out
    assert service.cluster.reviews() == 0
    drop(wire)


@pytest.mark.parametrize("label", ["CERTIFICATE", "X509 CERTIFICATE"])
async def test_a_connection_of_a_removed_authority_is_a_401_at_its_next_request_and_ends(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA, tmp_path: Path, label: str
) -> None:
    await following(service, cluster, pem(front_proxy).replace("CERTIFICATE", label))
    wire = await opened(service, proxy)
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    await following(service, cluster, root(tmp_path).pem)
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"401"
    assert await is_ended(wire)
    assert await answered(service, proxy) == b""
    drop(wire)


async def test_connection_goes_on_while_another_ca_is_added_to_its_own(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA, tmp_path: Path
) -> None:
    """As in a rotation of the front proxy's CA, whose first step must not be an error to every HPA."""
    wire = await opened(service, proxy)
    await following(service, cluster, f"{root(tmp_path).pem}{pem(front_proxy)}")
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    drop(wire)


async def test_silent_connection_of_another_name_is_ended_and_holds_a_place(
    service: Service, front_proxy: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the requestheader CA issues other clients' certificates too, each of them can finish a handshake."""
    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.3)
    wire = await opened(service, front_proxy.issue_cert("other.test", common_name="somebody-else"))
    wire[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert service.server.door.pending == 1
    assert await is_ended(wire)
    await eventually(lambda: not service.server.door.pending)
    drop(wire)


async def test_until_the_front_proxy_is_known_no_handshake_succeeds(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    service = Service(cluster, session, options)
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        assert await answered(service, proxy) == b""
        assert "has not been read yet" in str(service.server.ready["authentication"]())
        cluster.trust(pem(front_proxy))
        await service.ready()
        assert (await service.ask("/apis", leaf=proxy, headers=as_user())).status == 200


async def test_requests_from_the_first_moment_of_a_start_get_an_error_or_an_answer(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    cluster.trust(pem(front_proxy))
    found = b""
    async with running(made(cluster, session, options)) as service:
        while found != b"200":
            async with asyncio.timeout(4):  # less than `exchanged` waits for an answer that does not come
                found = await answered(service, proxy)
            assert found in {b"", b"200"}


@pytest.mark.parametrize(
    ("allowed", "names", "counts"),
    [
        ([], ("anybody",), True),
        ([], (), True),
        ([""], (), True),
        ([""], ("anybody",), False),
        (["", "front-proxy-client"], ("anybody",), False),
        (["", "front-proxy-client"], ("front-proxy-client",), True),
        (["front-proxy-client"], (), False),
        (["front-proxy-client"], ("Front-Proxy-Client",), False),
        (["front-proxy-client"], ("front-proxy-client", "somebody-else"), False),
        (["front-proxy-client"], ("somebody-else", "front-proxy-client"), True),
    ],
)
async def test_allowed_names_match_as_in_go(
    service: Service, authority: Holder, cluster: Cluster, allowed: list[str], names: tuple[str, ...], counts: bool
) -> None:
    """An empty list allows any name, an empty name only the empty one. Of several common names the last counts."""
    cluster.trust(authority.pem, allowed=allowed)
    seen = cluster.asked[f"GET {CONFIG_MAP}"]
    await cluster.until(lambda: cluster.asked[f"GET {CONFIG_MAP}"] >= seen + 2)
    assert await answered(service, leaf(authority.issue(*names))) == (b"200" if counts else b"401")


@pytest.mark.parametrize(
    ("uses", "is_taken"), [((CLIENT,), True), ((CLIENT, SERVER), True), ((), True), ((SERVER,), False)]
)
async def test_only_a_certificate_for_clients_counts(
    service: Service, authority: Holder, uses: tuple[Any, ...], is_taken: bool
) -> None:
    """A server certificate of the same CA is easier to steal; one without extended key usage has all usages."""
    assert await answered(service, leaf(authority.issue("proxy", uses=uses))) == (b"200" if is_taken else b"")


async def test_a_clients_certificate_cannot_issue_others(service: Service, authority: Holder) -> None:
    honest = authority.issue("proxy")
    forged = honest.issue("forged")
    forged.above = (honest.certificate,)
    assert await answered(service, leaf(forged)) == b""


async def test_intermediates_of_the_front_proxys_certificate_lead_to_its_ca(
    service: Service, authority: Holder
) -> None:
    assert await answered(service, leaf(authority.issue("between", authority=True).issue("proxy"))) == b"200"


async def test_a_resumed_session_does_not_outlive_its_authority(
    service: Service, authority: Holder, cluster: Cluster, tmp_path: Path
) -> None:
    """TLS 1.2 resumes sessions within one context, without verifying a chain again."""
    context = service.context(leaf(authority.issue("proxy")))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    port = service.server.port
    session = await asyncio.to_thread(session_of, port, context, None)
    assert session is not None
    assert not session.has_ticket
    await following(service, cluster, root(tmp_path, "another").pem)
    with pytest.raises(OSError, match=r"."):
        await asyncio.to_thread(session_of, port, context, session)


def session_of(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain, session=session) as wire,
    ):
        wire.sendall(head("/apis", *as_proxy()))
        if not wire.recv(100).startswith(b"HTTP/1.1 200"):
            raise ConnectionResetError("closed")
        return wire.session


# --- what a stranger costs

P256, FFDHE8192 = 0x0017, 0x0104
OTHER = "127.0.0.2"
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


@pytest.mark.parametrize(("group", "is_agreed"), [(P256, True), (FFDHE8192, False)], ids=["P-256", "ffdhe8192"])
async def test_no_client_can_choose_an_expensive_key_exchange(service: Service, group: int, is_agreed: bool) -> None:
    """One handshake with ffdhe8192 takes 120 ms of the event loop, at no cost for the client."""
    reader, writer = wire = await connected(service.server.port)
    writer.write(hello(group))
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read(1) == HANDSHAKE) is is_agreed
    drop(wire)


async def test_what_a_stranger_sends_after_its_own_end_of_the_handshake_is_never_read(service: Service) -> None:
    """In TLS 1.3 a client may send at once: the server has not accepted it yet."""
    wire = await opened(service)
    assert wire[1].get_extra_info("ssl_object").version() == "TLSv1.3"
    for _ in range(100):
        wire[1].write(head("/apis", *as_proxy()))
    with pytest.raises((ssl.SSLError, AssertionError)):
        assert not await is_ended(wire)
    assert service.cluster.reviews() == 0
    drop(wire)


async def test_a_handshake_that_does_not_begin_or_does_not_end_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.2)
    silent, begun = await connected(service.server.port), await connected(service.server.port)
    begun[1].write(hello(P256)[:-1])
    for wire in (silent, begun):
        assert await is_ended(wire)
    drop(silent, begun)


@pytest.fixture
async def crowd(service: Service) -> AsyncIterator[list[Streams]]:
    """As many silent connections as another address may have."""
    wires = [await connected(service.server.port, source=OTHER) for _ in range(door.HANDSHAKES_PER_ADDRESS)]
    yield wires
    drop(*wires)


async def test_an_address_has_64_pending_handshakes_and_the_next_are_closed_at_once(
    service: Service, proxy: trustme.LeafCert, crowd: list[Streams]
) -> None:
    refused = [await connected(service.server.port, source=OTHER) for _ in range(10)]
    for wire in refused:
        assert await is_ended(wire)
    assert await is_open(crowd[0])
    assert await answered(service, proxy) == b"200", "another address waits for none of them"
    drop(*refused, *crowd)
    await eventually(lambda: not service.server.door.pending)
    wire = await connected(service.server.port, service.context(proxy), source=OTHER)
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    drop(wire)


async def test_all_addresses_together_have_a_bounded_number_of_pending_handshakes(
    service: Service, monkeypatch: pytest.MonkeyPatch, crowd: list[Streams]
) -> None:
    await eventually(lambda: service.server.door.pending == len(crowd))
    monkeypatch.setattr(door, "HANDSHAKES", len(crowd) + 2)
    wires = [await connected(service.server.port, source=f"127.0.1.{number}") for number in range(4)]
    assert [await is_open(wire) for wire in wires[:2]] == [True, True]
    for wire in wires[2:]:
        assert await is_ended(wire)
    drop(*wires, *crowd)
    await eventually(lambda: not service.server.door.pending)


async def test_a_process_without_a_free_file_accepts_again_once_it_has_one(
    service: Service, proxy: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_REST_SECONDS", 0.05)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, before[1]))
    try:
        waiting.connect(("127.0.0.1", service.server.port))
        await asyncio.sleep(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        waiting.close()
    assert await answered(service, proxy) == b"200"


# --- HTTP


@pytest.mark.parametrize(
    "line",
    [
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000,
        b"GET / HTTP/1.1" + 2100 * b"\r\na: b",
    ],
    ids=["target", "field", "number of fields"],
)
async def test_one_line_too_long_and_too_many_of_them_are_refused(
    service: Service, proxy: trustme.LeafCert, line: bytes
) -> None:
    wire = await opened(service, proxy)
    assert (await asked(wire, line + b"\r\n\r\n")).split()[1] == b"400"
    assert await is_ended(wire)
    drop(wire)
