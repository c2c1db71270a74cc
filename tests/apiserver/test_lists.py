"""A list of many objects is made and written in slices, and keeps its user's place until it has left."""

import asyncio
import socket

import pytest
import trustme

from adapter.apiserver import handler
from adapter.runtime import inbound
from lab.harness import snapshots
from tests.apiserver.conftest import Service, as_user
from tests.apiserver.metric_requests import CUSTOM, POLICY
from tests.effort import steps
from tests.security.connections import PATIENCE
from tests.security.raw_requests import as_proxy, head

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"


@pytest.fixture
def many(service: Service) -> int:
    """The number of pods of the policy."""
    pods = [snapshots.reading(f"p{number}", cpu=100 + number) for number in range(10_000)]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=service.session.now(), pods=pods)))
    return len(pods)


async def test_a_list_has_every_pod_once(service: Service, proxy: trustme.LeafCert, many: int) -> None:
    answer = await service.ask(PODS, leaf=proxy, headers=as_user())
    names = [item["describedObject"]["name"] for item in answer.json()["items"]]
    assert (answer.status, len(names), len(set(names))) == (200, many, many)
    assert int(answer.headers["Content-Length"]) == len(answer.body)


async def test_a_user_has_two_lists_at_a_time_and_others_do_not_wait(
    service: Service, proxy: trustme.LeafCert, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "_QUEUE_SECONDS", 0.2)
    wires = [await asyncio.to_thread(unread, service, proxy) for _ in range(2)]
    await asyncio.sleep(0.5)
    refused = await service.ask(PODS, leaf=proxy, headers=as_user("bob"))
    assert (refused.status, refused.message) == (503, "other lists took all of 0.2 s")
    assert (await service.ask(PODS, leaf=proxy, headers=as_user("ann"))).status == 200
    assert (await service.ask(f"{POLICY}/effective_cpu", leaf=proxy, headers=as_user("bob"))).status == 200
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("paces", [False, True], ids=["does not read", "reads a kilobyte at a time"])
async def test_a_client_that_takes_less_than_a_step_in_its_time_is_dropped(
    service: Service, proxy: trustme.LeafCert, many: int, monkeypatch: pytest.MonkeyPatch, paces: bool
) -> None:
    monkeypatch.setattr(inbound, "STEP_SECONDS", 0.3)
    wire = await asyncio.to_thread(unread, service, proxy)
    async with asyncio.timeout(PATIENCE):
        while not service.server._connections.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while service.server._connections.connections:
            await asyncio.to_thread(wire.recv, 1024) if paces else None
            await asyncio.sleep(0.01)
    wire.close()


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large answer has room."""
    monkeypatch.setattr(handler, "_HELD_BYTES", 1 << 20)


async def test_answers_that_are_not_read_take_a_bounded_number_of_bytes_and_small_ones_go_on(
    scarce: None, service: Service, proxy: trustme.LeafCert, many: int
) -> None:
    wire = await asyncio.to_thread(unread, service, proxy)
    await asyncio.to_thread(wire.recv, 1)
    refused = await service.ask(PODS, leaf=proxy, headers=as_user("ann"))
    assert (refused.status, refused.message) == (503, "requests and answers in progress take 1 MiB; ask again later")
    for path in (f"{POLICY}/effective_cpu", f"{PODS}?labelSelector=a%3Db", "/apis/custom.metrics.k8s.io/v1beta2"):
        assert (await service.ask(path, leaf=proxy, headers=as_user("ann"))).status in {200, 404}
    wire.close()
    async with asyncio.timeout(PATIENCE):
        while (await service.ask(PODS, leaf=proxy, headers=as_user("ann"))).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def unread(service: Service, proxy: trustme.LeafCert) -> socket.socket:
    """A connection with a small buffer that asks bob's list and does not read it."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", service.server.port))
    wire = service.context(proxy).wrap_socket(plain)
    wire.sendall(head(PODS, *as_proxy()))
    return wire


async def test_the_loop_goes_on_while_a_list_of_ten_thousand_pods_is_made(
    service: Service, proxy: trustme.LeafCert, many: int
) -> None:
    wire = await asyncio.to_thread(unread, service, proxy)
    with steps() as longest:
        assert (await asyncio.to_thread(wire.recv, 100)).startswith(b"HTTP/1.1 200")
    assert longest.calls < 4 * many, "a step makes a part of the list"
    wire.close()
