"""The port of the metrics API is for the front proxy alone: a stranger reaches neither HTTP nor much of the loop."""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import trustme
from aiohttp import web

from adapter.apiserver import door
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from tests.apiserver import snapshots
from tests.apiserver.certs import CLIENT, SERVER, Holder, root
from tests.apiserver.cluster import CONFIG_MAP, SECRET, Cluster
from tests.apiserver.conftest import Service, as_user, pem, running
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


async def test_another_name_of_the_authority_is_cut_off_at_once_and_logged(
    service: Service, front_proxy: trustme.CA, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the requestheader CA issues other clients' certificates too, each of them can finish a handshake."""
    wire = await opened(service, front_proxy.issue_cert("other.test", common_name="somebody-else"))
    assert await is_ended(wire)
    assert "somebody-else" in capsys.readouterr().out
    assert await answered(service, front_proxy.issue_cert("other.test", common_name="somebody-else")) in {b"", b"401"}
    assert service.cluster.reviews() == 0
    drop(wire)


@pytest.mark.parametrize("label", ["CERTIFICATE", "X509 CERTIFICATE"])
async def test_a_connection_of_a_removed_authority_is_a_401_at_its_next_request_and_ends(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster, front_proxy: trustme.CA, tmp_path: Path, label: str
) -> None:
    other = root(tmp_path).pem  # of a rotation: it stays
    await following(service, cluster, f"{other}{pem(front_proxy)}".replace("CERTIFICATE", label))
    wire = await opened(service, proxy)
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    await following(service, cluster, other.replace("CERTIFICATE", label))
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
    assert await answered(service, leaf(authority.issue(*names))) in ({b"200"} if counts else {b"", b"401"})


@pytest.mark.parametrize(
    ("uses", "is_taken"), [((CLIENT,), True), ((CLIENT, SERVER), True), ((), True), ((SERVER,), False)]
)
async def test_only_a_certificate_for_clients_counts(
    service: Service, authority: Holder, uses: tuple[Any, ...], is_taken: bool
) -> None:
    """A server certificate of the same CA is easier to steal; one without extended key usage has all usages."""
    assert await answered(service, leaf(authority.issue("proxy", uses=uses))) == (b"200" if is_taken else b"")


async def test_a_clients_certificate_cannot_issue_others_and_an_intermediate_of_the_ca_can(
    service: Service, authority: Holder
) -> None:
    assert await answered(service, leaf(authority.issue("between", authority=True).issue("proxy"))) == b"200"
    honest = authority.issue("proxy")
    forged = honest.issue("forged")
    forged.above = (honest.certificate,)
    assert await answered(service, leaf(forged)) == b""


async def test_a_resumed_session_does_not_outlive_its_authority(
    service: Service, authority: Holder, cluster: Cluster, tmp_path: Path
) -> None:
    """TLS 1.2 resumes sessions within one context, without verifying a chain again."""
    context = service.context(leaf(authority.issue("proxy")))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    port = service.server.door.port
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

OTHER = "127.0.0.2"
BEGUN = b"\x16\x03\x01\x02\x00\x01\x00"
"""The beginning of a hello of 512 bytes."""


@pytest.mark.parametrize(("group", "is_agreed"), [("prime256v1", True), ("secp521r1", False)])
async def test_no_client_can_choose_an_expensive_key_exchange(
    service: Service, proxy: trustme.LeafCert, group: str, is_agreed: bool
) -> None:
    """One handshake with ffdhe8192 takes 120 ms of the event loop, at no cost for the client."""
    context = service.context(proxy)
    context.set_ecdh_curve(group)
    with contextlib.nullcontext() if is_agreed else pytest.raises((ssl.SSLError, ConnectionResetError)):
        drop(await connected(service.server.door.port, context))


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


async def test_a_handshake_that_does_not_begin_or_does_not_end_is_given_up(service: Service) -> None:
    service.server.door.handshake_seconds = 0.2
    silent, begun = await connected(service.server.door.port), await connected(service.server.door.port)
    begun[1].write(BEGUN)
    for wire in (silent, begun):
        assert await is_ended(wire)
    drop(silent, begun)


async def test_failed_handshakes_leave_no_handler_to_a_garbage_collection(service: Service) -> None:
    """A collection of all objects, which takes 0.4 s in a large cluster, is rare."""

    def handlers() -> int:
        return sum(type(one) is web.RequestHandler and one.transport is None for one in gc.get_objects())

    service.server.door.handshake_seconds = 60.0
    gc.collect()
    gc.disable()
    try:
        wires = [await connected(service.server.door.port) for _ in range(10)]
        await eventually(lambda: handlers() == len(wires))
        drop(*wires)
        await eventually(lambda: not handlers())
    finally:
        gc.enable()


@pytest.fixture
async def crowd(service: Service) -> AsyncIterator[list[Streams]]:
    """As many silent connections as another address may have."""
    wires = [await connected(service.server.door.port, source=OTHER) for _ in range(door.HANDSHAKES_PER_ADDRESS)]
    yield wires
    drop(*wires)


async def test_an_address_has_64_pending_handshakes_and_the_next_are_closed_at_once(
    service: Service, proxy: trustme.LeafCert, crowd: list[Streams]
) -> None:
    refused = [await connected(service.server.door.port, source=OTHER) for _ in range(10)]
    for wire in refused:
        assert await is_ended(wire)
    assert await is_open(crowd[0])
    assert await answered(service, proxy) == b"200", "another address waits for none of them"
    drop(*refused, *crowd)
    await eventually(lambda: not service.server.door.pending)
    wire = await connected(service.server.door.port, service.context(proxy), source=OTHER)
    assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    drop(wire)


async def test_all_addresses_together_have_512_pending_handshakes(service: Service) -> None:
    service.server.door.handshake_seconds = 60.0
    most = 512
    wires = [await connected(service.server.door.port, source=f"127.0.1.{n // 50}") for n in range(most + 2)]
    await eventually(lambda: service.server.door.pending == most)
    for wire in wires[most:]:
        assert await is_ended(wire)
    assert [await is_open(wire) for wire in (wires[0], wires[most - 1])] == [True, True]
    drop(*wires)
    await eventually(lambda: not service.server.door.pending)


# --- HTTP


class Exhausted(socket.socket):
    """A listener of a process that has no file left, as long as `is_full`."""

    is_full, tries = True, 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_while_no_file_is_left_the_loop_rests_between_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Exhausted()
    listener.setblocking(False)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    monkeypatch.setattr(door, "listening", lambda *_: listener)
    entrance = door.Door("127.0.0.1", 0, lambda _: True)
    running = asyncio.create_task(entrance.run(asyncio.Protocol))
    with socket.create_connection(listener.getsockname()) as client:
        await eventually(lambda: listener.tries > 0)
        await asyncio.sleep(0.2)
        assert listener.tries < 5
        listener.is_full = False
        await asyncio.to_thread(client.recv, 1)  # nobody is served yet, so it is accepted and closed
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


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


# --- a certificate that changes


def shown(wire: Streams) -> bytes:
    """The server's certificate on this connection."""
    found = wire[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


async def test_no_connection_is_lost_while_certificates_change(service: Service, proxy: trustme.LeafCert) -> None:
    lost: list[str] = []

    async def keep_asking(stop: asyncio.Event) -> int:
        count = 0
        while not stop.is_set():
            connector = aiohttp.TCPConnector(ssl=service.context(proxy), force_close=True)
            async with aiohttp.ClientSession(connector=connector) as client:
                try:
                    async with client.get(service.url + METRIC, headers=as_user()) as response:
                        assert response.status == 200
                except aiohttp.ClientError as error:
                    lost.append(repr(error))
            count += 1
        return count

    standing = await opened(service, proxy)
    stop = asyncio.Event()
    asking = [asyncio.create_task(keep_asking(stop)) for _ in range(4)]
    for _ in range(10):
        served = service.server.door.in_use
        service.cluster.put(SECRET, {})
        await eventually(lambda served=served: service.server.door.in_use != served)  # type: ignore[misc]
    stop.set()
    assert sum(await asyncio.gather(*asking)) > 10
    assert lost == []
    assert (await asked(standing, head(METRIC, *as_proxy())))[9:12] == b"200"
    new = await opened(service, proxy)
    assert shown(new) != shown(standing)
    drop(new, standing)
