"""The port of the metrics API is for the front proxy alone: a stranger reaches neither HTTP nor much of the loop."""

import asyncio
import gc
import itertools
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding

from adapter.apiserver import certificates, tls
from adapter.apiserver.authentication import Peer, RequestheaderConfig, parse_config_map, peer_of
from adapter.kube.session import Session
from adapter.runtime.fairness import EvictingPool, FairQueue
from adapter.runtime.inbound import SocketTransport
from adapter.settings.server import ServerSettings
from tests.apiserver import snapshots
from tests.apiserver.cluster import CONFIG_MAP, REVIEWS, Cluster
from tests.apiserver.conftest import Service, as_user, pem, running
from tests.security.certs import CLIENT, SERVER, Holder, root
from tests.security.connections import PATIENCE, Streams, asked, connected, drop, is_ended, is_open, opened, within
from tests.security.raw_requests import METRIC, as_proxy, exchanged, head

CLOSE = "Connection: close"
OTHER = "127.0.0.2"


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
        while service.server.in_use is None or service.server.in_use[1] != bundle.strip():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def answered(service: Service, certificate: trustme.LeafCert | None) -> bytes:
    """The status code of a request with this certificate; empty if the connection ended instead."""
    return (await exchanged(service, certificate, head(METRIC, *as_proxy(CLOSE))))[9:12]


# --- who may connect


async def test_a_client_without_a_certificate_gets_no_http(service: Service) -> None:
    for request in (head(METRIC, *as_proxy(CLOSE)), head("/livez", CLOSE), head(METRIC, "Authorization: Bearer t")):
        assert await exchanged(service, None, request) == b""
    assert service.cluster.reviews() == 0


async def test_another_name_of_the_authority_is_refused_after_the_handshake(
    service: Service, front_proxy: trustme.CA, capsys: pytest.CaptureFixture[str]
) -> None:
    other = front_proxy.issue_cert("other.test", common_name="somebody-else")
    assert await answered(service, other) == b""
    assert "somebody-else" in capsys.readouterr().out


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
        assert (await service.ask("/version", leaf=proxy, headers=as_user())).status == 200


async def test_a_cluster_without_a_front_proxy_is_not_ready_and_says_why(
    cluster: Cluster, session: Session, options: ServerSettings
) -> None:
    cluster.put(CONFIG_MAP, {"kind": "ConfigMap", "data": {"client-ca-file": "x"}})
    service = Service(cluster, session, options)
    async with running(service), asyncio.timeout(PATIENCE):
        while "names no requestheader-client-ca-file" not in str(service.server.ready["authentication"]()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("names", "name", "counts"),
    [
        (None, "anybody", True),
        ("", "anybody", True),
        ("[]", "", True),
        ('[""]', "", True),
        ('[""]', "anybody", False),
        ('["", "front-proxy-client"]', "anybody", False),
        ('["", "front-proxy-client"]', "front-proxy-client", True),
        ('["front-proxy-client"]', "", False),
        ('["front-proxy-client"]', "Front-Proxy-Client", False),
    ],
)
def test_allowed_names_match_as_in_go(tmp_path: Path, names: str | None, name: str, counts: bool) -> None:
    """An empty list allows any name, an empty name in it only the empty one."""
    more = {} if names is None else {"requestheader-allowed-names": names}
    config = parse_config_map({"requestheader-client-ca-file": root(tmp_path).pem, **more})
    assert Peer(name, valid_until=2.0).is_front_proxy(config, now=1.0) is counts


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ((), ""),
        (("front-proxy-client", "somebody-else"), "somebody-else"),
        (("a", "front-proxy-client"), "front-proxy-client"),
    ],
)
def test_of_several_common_names_the_last_counts_as_in_go(tmp_path: Path, names: tuple[str, ...], counts: str) -> None:
    shown = root(tmp_path).issue(*names).certificate.public_bytes(Encoding.DER)
    peer = peer_of(Mock(ssl.SSLObject, getpeercert=lambda binary_form: shown))
    assert peer is not None
    assert peer.common_name == counts


def test_an_expired_certificate_is_not_the_front_proxys() -> None:
    assert not Peer("x", valid_until=2.0).is_front_proxy(RequestheaderConfig(), now=2.0)


def test_a_bundle_with_text_between_its_certificates_is_read(tmp_path: Path) -> None:
    bundle = f"# ours\n{root(tmp_path).pem}\n\nand another\n{root(tmp_path, 'other').pem}"
    found = parse_config_map({"requestheader-client-ca-file": bundle})
    assert len(found.certificates) == 2
    tls.server_context(certificates.create_bundle(["localhost"], 1_700_000_000.0).serving, found.authority)


@pytest.mark.parametrize(
    ("uses", "is_taken"), [((CLIENT,), True), ((CLIENT, SERVER), True), ((), True), ((SERVER,), False)]
)
async def test_only_a_certificate_for_clients_counts(
    service: Service, authority: Holder, uses: tuple[Any, ...], is_taken: bool
) -> None:
    """A server certificate of the same CA is easier to steal; one without extended key usage has all usages."""
    assert await answered(service, leaf(authority.issue("proxy", uses=uses))) == (b"200" if is_taken else b"")


async def test_a_certificate_of_an_intermediate_is_valid_if_the_client_sends_the_chain(
    service: Service, authority: Holder
) -> None:
    holder = authority.issue("between", authority=True).issue("proxy")
    assert await answered(service, leaf(holder)) == b"200"
    holder.above = ()
    assert await answered(service, leaf(holder)) == b""


async def test_an_intermediate_in_the_bundle_is_an_anchor_as_in_go(
    service: Service, authority: Holder, cluster: Cluster
) -> None:
    between = authority.issue("between", authority=True)
    await following(service, cluster, between.pem)
    assert await answered(service, leaf(between.issue("proxy"))) == b"200"


async def test_a_clients_certificate_cannot_issue_others(service: Service, authority: Holder) -> None:
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
        wire.sendall(head("/version", *as_proxy()))
        if not wire.recv(100).startswith(b"HTTP/1.1 200"):
            raise ConnectionResetError("closed")
        return wire.session


# --- what a stranger costs

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


async def half_shaken(service: Service) -> Streams:
    """A connection whose hello is answered, and which says no more."""
    wire = await connected(service.server.port)
    wire[1].write(hello(P256))
    assert (await within(wire[0].read(65536))).startswith(HANDSHAKE)
    return wire


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


async def test_a_handshake_longer_than_its_bound_is_ended(service: Service) -> None:
    wire = await connected(service.server.port)
    length = 16_000
    wire[1].write(b"\x16\x03\x01" + struct.pack("!HB", length, 1) + (length - 4).to_bytes(3, "big") + bytes(length))
    assert await is_ended(wire)
    drop(wire)


async def test_what_a_stranger_sends_after_its_own_end_of_the_handshake_is_never_read(service: Service) -> None:
    """In TLS 1.3 a client may send at once, key updates for instance: the server has not accepted it yet."""
    wire = await opened(service)
    assert wire[1].get_extra_info("ssl_object").version() == "TLSv1.3"
    for _ in range(100):
        wire[1].write(head("/version", *as_proxy()))
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
        async with asyncio.timeout(PATIENCE):
            await wire[0].read()
    assert not service.server.connections.connections
    drop(wire)


async def test_a_handshake_that_does_not_begin_or_does_not_end_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.2)
    silent, begun = await connected(service.server.port), await connected(service.server.port)
    begun[1].write(b"\x16\x03\x01")
    for wire in (silent, begun):
        assert await is_ended(wire)
    drop(silent, begun)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of handshakes that have a place."""
    monkeypatch.setattr(tls, "STRANGERS_HANDSHAKES", 8)
    return 8


@pytest.fixture
async def crowded(few: int, service: Service) -> AsyncIterator[Service]:
    """A server with few places for handshakes, which strangers of another address have taken."""
    wires = [await connected(service.server.port, source=OTHER) for _ in range(3 * few)]
    yield service
    drop(*wires)


async def test_stalled_handshakes_keep_neither_a_new_address_nor_a_proven_one_out(
    crowded: Service, proxy: trustme.LeafCert
) -> None:
    for _ in range(3):
        assert await answered(crowded, proxy) == b"200"


async def test_a_proven_address_has_its_places_to_itself(few: int, service: Service, proxy: trustme.LeafCert) -> None:
    assert await answered(service, proxy) == b"200"
    begun = await connected(service.server.port)
    begun[1].write(b"\x16")
    strangers = [await connected(service.server.port, source=f"127.0.1.{number}") for number in range(5 * few)]
    assert await answered(service, proxy) == b"200"
    assert await is_open(begun)
    drop(begun, *strangers)


@pytest.mark.parametrize("said", [b"", hello(P256)[:-1]], ids=["nothing", "half a hello"])
async def test_connections_without_a_whole_hello_take_no_answered_handshakes_place(
    few: int, service: Service, proxy: trustme.LeafCert, said: bytes
) -> None:
    """Of the front proxy's own address, as behind one that translates addresses."""
    assert await answered(service, proxy) == b"200"
    begun = await half_shaken(service)
    assert await answered(service, proxy) == b"200"
    strangers = [await connected(service.server.port) for _ in range(few - 1)]
    for _ in range(4 * few):
        strangers[-1][1].write(said)
        strangers.append(await connected(service.server.port))
    assert await is_open(begun)
    drop(begun, *strangers)


async def test_silent_connections_of_many_addresses_take_no_answered_handshakes_place(
    few: int, service: Service
) -> None:
    """Of an address that has not proved to be a front proxy yet, each address with one connection."""
    begun = await half_shaken(service)
    strangers = [await connected(service.server.port, source=f"127.0.1.{number}") for number in range(5 * few)]
    assert await is_open(begun)
    drop(begun, *strangers)


@pytest.mark.parametrize(("is_proven", "number"), [(True, 600), (False, 245)], ids=["proven", "new"])
async def test_all_requests_that_an_api_server_forwards_at_once_get_through(
    service: Service, proxy: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch, is_proven: bool, number: int
) -> None:
    """It dials for each; the 65th took the place of one that had not said a word yet, whose request was a 503."""
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 600.0)  # these handshakes are one after the other
    if is_proven:
        assert await answered(service, proxy) == b"200"
    wires = [await connected(service.server.port) for _ in range(number)]
    for wire in wires:
        await wire[1].start_tls(service.context(proxy), server_hostname="localhost")
        assert (await asked(wire, head(METRIC, *as_proxy())))[9:12] == b"200"
    drop(*wires)


def test_a_server_that_starts_with_few_open_files_may_have_a_file_for_each_connection() -> None:
    """Containers start with 1,024: beyond it, nothing is accepted, and no scale can be asked for, for a second each."""
    script = """
import resource
from adapter.runtime.inbound import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "(4096, 4096)\n"


def test_addresses_of_one_ipv6_network_share_their_places() -> None:
    assert tls.group_of("2001:db8:1:2:3:4:5:6") == tls.group_of("2001:db8:1:2::9") != tls.group_of("2001:db8:1:3::9")
    assert tls.group_of("::ffff:10.0.0.1") == tls.group_of("10.0.0.1") == "10.0.0.1"
    assert tls.group_of("10.0.0.2") != tls.group_of("10.0.0.1")
    assert tls.group_of("fe80::1%eth0") == tls.group_of("fe80::2%eth0")


def resident() -> int:
    """This process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def aborted(port: int, number: int, sent: bytes) -> None:
    for _ in range(number):
        with socket.create_connection(("127.0.0.1", port)) as wire:
            wire.sendall(sent)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


ABORTS = int(os.environ.get("ABORTED_CONNECTIONS", "2000"))


@pytest.mark.parametrize("sent", [b"", HANDSHAKE, hello(P256)], ids=["nothing", "a byte", "a hello"])
async def test_connections_that_are_aborted_leave_nothing_in_memory(service: Service, sent: bytes) -> None:
    """Without the garbage collector: a cycle in each took 800 MiB in 75 s. `ABORTED_CONNECTIONS` makes more of them."""
    await asyncio.to_thread(aborted, service.server.port, 500, sent)
    await settled()
    gc.collect()
    gc.disable()
    try:
        before, objects = resident(), len(gc.get_objects())
        await asyncio.to_thread(aborted, service.server.port, ABORTS, sent)
        await settled()
        assert len(gc.get_objects()) - objects < 500
        assert resident() - before < 8 << 20
    finally:
        gc.enable()


async def settled() -> None:
    """Wait until every connection of this test's loop has ended; what another test left is none of its own."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while any(type(each) is SocketTransport and each._loop is loop for each in gc.get_objects()):  # noqa: ASYNC110, SLF001
            await asyncio.sleep(0.01)


async def test_a_connection_that_ended_leaves_nothing_for_the_garbage_collector(
    service: Service, proxy: trustme.LeafCert
) -> None:
    for request in (head(METRIC, *as_proxy(CLOSE)), b"GET\r\n\r\n", head(METRIC)[:-2]):
        gc.collect()
        gc.disable()
        try:
            wire = await opened(service, proxy)
            await asked(wire, request) if request.endswith(b"\r\n\r\n") else wire[1].write(request)
            drop(wire)
            await settled()
        finally:
            gc.enable()


# --- HTTP


async def test_a_request_beyond_its_bound_ends_the_connection(service: Service, proxy: trustme.LeafCert) -> None:
    wire = await opened(service, proxy)
    wire[1].write(head("/version", *as_proxy())[:-2] + 400 * (b"X-Padding: " + b"p" * 1000 + b"\r\n"))
    assert await is_ended(wire)
    drop(wire)


@pytest.mark.parametrize(
    "line",
    [
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000,
        b"GET / HTTP/1.1" + 2100 * b"\r\na: b",
    ],
    ids=["target", "field", "number of fields"],
)
async def test_one_line_too_long_and_too_many_of_them_are_a_431(
    service: Service, proxy: trustme.LeafCert, line: bytes
) -> None:
    wire = await opened(service, proxy)
    assert (await asked(wire, line + b"\r\n\r\n")).split()[1] == b"431"
    drop(wire)


async def test_large_requests_that_wait_take_a_bounded_amount_of_memory(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    """Each takes a megabyte: 190 of them, sent while their reviews took long, took 210 MiB."""
    cluster.faults[REVIEWS] = answering = asyncio.Event()
    large = head(METRIC, *as_proxy(*(f"X-{number}: {'a' * 100}" for number in range(2000))))
    wires = [await opened(service, proxy) for _ in range(40)]
    asking = [asyncio.create_task(asked(wire, large)) for wire in wires]
    for answer in itertools.islice(asyncio.as_completed(asking), 20):
        await answer
    answering.set()
    heads = [await each for each in asking]
    assert heads.count(b"") >= 20, "their connections ended"
    assert {head.split()[1] for head in heads if head} <= {b"200", b"503"}
    for wire in wires:
        assert await is_ended(wire), "an idle connection would keep its last request"
    drop(*wires)


async def test_of_a_body_little_is_kept_until_the_answer(
    service: Service, proxy: trustme.LeafCert, cluster: Cluster
) -> None:
    """Nobody reads it: 190 requests that waited for their reviews, or places, kept 48 MiB."""
    cluster.faults[REVIEWS] = answering = asyncio.Event()
    wire = await opened(service, proxy)
    request = head(METRIC, *as_proxy("Content-Length: 4000000")) + bytes(1 << 20)
    asking = asyncio.create_task(asked(wire, request))
    connections = service.server.connections
    async with asyncio.timeout(PATIENCE):
        await cluster.waiting.wait()
        while any(one.transport and one.transport.is_reading() for one in connections.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    answering.set()
    assert (await asking)[9:12] == b"200"
    drop(wire)


async def test_no_answer_names_a_version_of_its_server(service: Service, proxy: trustme.LeafCert) -> None:
    requests = (b"GET\r\n\r\n", head("/version", *as_proxy(), version="HTTP/1.0"), head("/nowhere", *as_proxy(CLOSE)))
    for request in requests:
        answer = await exchanged(service, proxy, request)
        assert b"Server: effective-load\r\n" in answer
        assert b"aiohttp" not in answer


# --- turns


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_the_queue_rotates_between_addresses() -> None:
    queue, done = FairQueue(clock=lambda: 0.0), list[str]()

    def step(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    for index in range(3):
        queue.put("many", step(f"many {index}"))
    queue.put("one", step("one"))
    await turns(2)
    assert len(done) <= 2
    await turns(10)
    assert done == ["many 0", "one", "many 1", "many 2"]


async def test_a_step_that_raises_does_not_stop_the_queue() -> None:
    """The error is logged; a queue that stopped would keep out every new front proxy until a restart."""
    queue, errors, done = FairQueue(clock=lambda: 0.0), list[object](), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    failure = ValueError("made to fail")

    def fail() -> None:
        raise failure

    queue.put("one", fail)
    queue.put("other", lambda: done.append("other"))
    await turns(10)
    assert (errors, done) == ([failure], ["other"])
    queue.put("one", lambda: done.append("one"))
    await turns(10)
    assert done == ["other", "one"]


async def test_a_full_pool_evicts_the_oldest_of_the_largest_address() -> None:
    crowd: EvictingPool[tuple[str, int]] = EvictingPool(4, lambda member: member[0])
    assert [crowd.add(("a", index)) for index in range(3)] == [None, None, None]
    assert crowd.add(("b", 0)) is None
    assert crowd.add(("b", 1)) == ("a", 0)
    crowd.discard(("a", 0))
    crowd.refresh(("a", 1))
    assert crowd.add(("c", 0), lambda member: member == ("a", 2)) == ("a", 1)
    assert len(crowd) == 5
    assert ("c", 0) in crowd
