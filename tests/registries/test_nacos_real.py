"""Against a real server that speaks Nacos (Polaris: the HTTP API of Nacos 1 and the gRPC of Nacos 2).

Whatever is done, is done by Nacos' own API; isolation and wiping are the server's. Its clients' views are all there is:
a disabled or isolated instance is absent from them.
"""

import asyncio
import json
import random
import signal
import statistics
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from adapter.load.pods import PodState
from adapter.settings.registries import NacosRegistry, RegistryTls
from lab.harness.registries.polaris import Polaris
from tests.registries.kit import Pods
from tests.registries.nacos_kit import SHOP, Followed, eventually, following

pytestmark = [pytest.mark.integration, pytest.mark.builds("polaris")]

PODS = 3
ALL = tuple(f"web-{number}" for number in range(PODS))
_BEAT_SECONDS = 2.0
_CHANGES = 20


class Shop:
    """The pods of the service `shop`, which register and send beats as a client of Nacos does."""

    def __init__(self, polaris: Polaris) -> None:
        self.polaris = polaris
        self.beating: set[int] = set()

    async def put(self, number: int, method: str = "PUT", **fields: Any) -> None:
        """Say what this pod's registration is; fields that are not given have their defaults."""
        if method != "DELETE":
            self.beating.add(number)
        fields = {"metadata": json.dumps({"pod": f"web-{number}"}), **fields}
        await self._ask(method, "/v1/ns/instance", number, fields)

    async def register(self) -> None:
        for number in range(PODS):
            await self.put(number, "POST")

    async def deregister(self, number: int) -> None:
        self.beating.discard(number)
        await self.put(number, "DELETE")

    async def isolate(self, number: int, isolated: bool) -> None:
        """By Polaris' own API."""
        where = {"service": "shop", "namespace": "default", "host": f"10.0.0.{10 + number}", "isolate": isolated}
        await asyncio.to_thread(self.polaris.call, "PUT", "/naming/v1/instances/isolate/host", [where])

    async def shown(self, number: int, weight: float) -> float:
        """When the server itself begins to show this weight."""
        url = f"{self.polaris.nacos}/v1/ns/instance/list?serviceName=DEFAULT_GROUP%40%40shop"
        while True:
            hosts = json.loads(await asyncio.to_thread(_send, urllib.request.Request(url)))["hosts"]
            if {host["ip"]: host["weight"] for host in hosts}[f"10.0.0.{10 + number}"] == weight:
                return time.monotonic()
            await asyncio.sleep(0.02)

    async def keep_beating(self) -> None:
        while True:
            for number in sorted(self.beating):
                try:
                    await self._ask("PUT", "/v1/ns/instance/beat", number, {})
                except OSError:
                    continue  # the server is away
            await asyncio.sleep(_BEAT_SECONDS)

    async def _ask(self, method: str, path: str, number: int, fields: dict[str, Any]) -> None:
        place = {"serviceName": "DEFAULT_GROUP@@shop", "ip": f"10.0.0.{10 + number}", "port": 8080}
        url = f"{self.polaris.nacos}{path}?{urllib.parse.urlencode({**place, **fields})}"
        request = urllib.request.Request(url, method=method, headers={"Content-Type": "application/json"})
        await asyncio.to_thread(_send, request)


def _send(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


@pytest.fixture(scope="module")
def server() -> Iterator[Polaris]:
    """One for the tests that leave it as they found it."""
    with Polaris() as polaris:
        yield polaris


@pytest.fixture
async def shop(server: Polaris) -> AsyncIterator[Shop]:
    async for found in _shop(server):
        yield found
        for number in range(PODS):
            await found.deregister(number)


@pytest.fixture
async def own_shop(polaris: Polaris) -> AsyncIterator[Shop]:
    """In a server of this test's own."""
    async for found in _shop(polaris):
        yield found


async def _shop(polaris: Polaris) -> AsyncIterator[Shop]:
    shop = Shop(polaris)
    await shop.register()
    beats = asyncio.create_task(shop.keep_beating())
    yield shop
    beats.cancel()
    await asyncio.gather(beats, return_exceptions=True)


def settings(polaris: Polaris, **more: Any) -> NacosRegistry:
    base: dict[str, Any] = {
        "name": "nacos",
        "type": "Nacos",
        "servers": (polaris.nacos,),
        "interval_seconds": 1,
        "timeout_seconds": 5,
    }
    return NacosRegistry(**{**base, **more})


async def all_serving(world: Followed) -> Pods:
    """Return once all pods serve."""
    found = Pods(world.book, SHOP, world.clock, pods=PODS)
    await world.until(lambda: set(found.states().values()) == {PodState.SERVING})
    return found


Means = Callable[[Shop], Awaitable[None]]

MEANS: dict[str, tuple[Means, Means, bool]] = {
    "disabled": (lambda shop: shop.put(0, enabled="false"), lambda shop: shop.put(0, enabled="true"), True),
    "weightless": (lambda shop: shop.put(0, weight=0), lambda shop: shop.put(0, weight=1), False),
    "unhealthy": (lambda shop: shop.put(0, healthy="false"), lambda shop: shop.put(0, healthy="true"), False),
    "deregistered": (lambda shop: shop.deregister(0), lambda shop: shop.put(0, "POST"), True),
    "isolated": (lambda shop: shop.isolate(0, True), lambda shop: shop.isolate(0, False), True),
}
"""How a pod is pulled out and put back, and whether it is then absent."""


@pytest.mark.parametrize("push", [True, False], ids=["push", "poll"])
@pytest.mark.parametrize("means", MEANS)
async def test_a_pod_that_was_pulled_out_is_out_until_it_is_put_back(shop: Shop, means: str, push: bool) -> None:
    pull_out, put_back, absent = MEANS[means]
    async with following(settings(shop.polaris, push=push)) as world:
        service = await all_serving(world)
        await eventually(lambda: bool(world.source.pushed) is push)
        await pull_out(shop)
        if absent:
            await world.until(lambda: sorted(world.pod_names()) == list(ALL[1:]))
            assert service.states()["web-0"] is PodState.DOUBTFUL
        else:
            await world.until(lambda: service.out() == ["web-0"])
        await put_back(shop)
        await all_serving(world)


async def test_missed_beats_make_a_pod_unhealthy(shop: Shop) -> None:
    async with following(settings(shop.polaris)) as world:
        service = await all_serving(world)
        shop.beating.discard(0)
        await world.until(lambda: not all(one.healthy for one in world.roster.instances), 60)
        assert service.out() == ["web-0"]


async def test_a_restart_is_seen_and_pulls_no_pod_out(own_shop: Shop) -> None:
    async with following(settings(own_shop.polaris)) as world:
        service = await all_serving(world)
        await eventually(lambda: bool(world.source.pushed))
        with service.nothing_changes():
            await asyncio.to_thread(own_shop.polaris.restart)
            await eventually(world.doubted)
            await world.until(lambda: not world.error)
        await own_shop.put(0, weight=0)
        await world.until(lambda: service.out() == ["web-0"])


async def test_an_outage_longer_than_stale_changes_no_state(own_shop: Shop) -> None:
    async with following(settings(own_shop.polaris)) as world:
        service = await all_serving(world)
        await eventually(lambda: bool(world.source.pushed))
        await own_shop.put(0, weight=0)
        await world.until(lambda: service.out() == ["web-0"])
        with service.nothing_changes():  # 10 min by its clock: stale after 5
            await asyncio.to_thread(own_shop.polaris.kill)
            await world.until_error("Cannot connect")
        world.clock.jump(-600)
        await asyncio.to_thread(own_shop.polaris.resume)
        await own_shop.put(0, weight=1)
        await world.until(lambda: not world.error and service.out() == [])


async def test_a_frozen_server_is_noticed_and_pulls_no_pod_out(own_shop: Shop) -> None:
    async with following(settings(own_shop.polaris, timeout_seconds=1)) as world:
        service = await all_serving(world)
        await eventually(lambda: bool(world.source.pushed))
        own_shop.polaris.component.signal(signal.SIGSTOP)
        with service.nothing_changes():
            await world.until_error("no answer within 1 s")
        own_shop.polaris.component.signal(signal.SIGCONT)
        await world.until(lambda: not world.error)


async def test_a_server_that_forgot_all_pulls_no_pod_out(own_shop: Shop) -> None:
    async with following(settings(own_shop.polaris)) as world:
        service = await all_serving(world)
        await eventually(lambda: bool(world.source.pushed))
        with service.nothing_changes():
            await asyncio.to_thread(own_shop.polaris.restart, wipe=True)
            await world.until(lambda: world.pod_names() == [] and not world.error)
        await own_shop.register()
        await all_serving(world)


async def test_a_login_that_the_server_does_not_have_is_reported(shop: Shop, tmp_path: Path) -> None:
    """Polaris lets everybody read, and has no login below Nacos' context path."""
    (tmp_path / "password").write_text("wrong")
    access = {"username": "nacos", "password_file": str(tmp_path / "password")}
    async with following(settings(shop.polaris, **access)) as world:
        await world.until_error("or leave `username` empty")
    assert not world.roster.valid


async def test_by_tls_changes_are_pushed_too(tmp_path: Path) -> None:
    authority, files = trustme.CA(), tuple(tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(files[0]))
    certificate.private_key_pem.write_to_path(str(files[1]))
    authority.cert_pem.write_to_path(str(files[2]))
    with Polaris(tls=(files[0], files[1], files[2])) as polaris:
        async with following(settings(polaris, tls=RegistryTls(ca_file=str(files[2])))) as world:
            await eventually(lambda: world.source.pushed == {SHOP})
            native: dict[str, Any] = {"service": "shop", "namespace": "default", "host": "10.0.0.10", "port": 8080}
            native["metadata"] = {"pod": "web-0"}
            await asyncio.to_thread(polaris.call, "POST", "/naming/v1/instances", [native])
            await world.until_pods("web-0")
        async with following(settings(polaris)) as world:
            await world.until_error("certificate verify failed")


@pytest.mark.parametrize("push", [True, False], ids=["push", "poll"])
async def test_the_delay_of_a_change(
    shop: Shop, push: bool, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """From Nacos' own API to `on_change`, and the part of it after the server itself shows the change: before that
    this server's caches take up to 2 s, of which an adapter can spare nobody anything.
    """
    whole, own = [], []
    async with following(settings(shop.polaris, push=push)) as world:
        await all_serving(world)
        await eventually(lambda: bool(world.source.pushed) is push)
        for number in range(_CHANGES):
            await asyncio.sleep(random.random())  # at any phase of the server's second
            began, weight = time.monotonic(), number % 2
            await shop.put(0, weight=weight)
            shown = asyncio.create_task(shop.shown(0, weight))
            await world.until(lambda weight=weight: world.roster.instances[0].weight == weight)  # type: ignore[misc]
            told = world.changes.received[-1][1]
            whole.append(told - began)
            own.append(told - await shown)
    found = {"whole": _spread(whole), "after the server shows it": _spread(own)}
    record_property("delay_seconds", found)
    with capsys.disabled():
        print(f"\nNacos by {'push' if push else 'polls each second'}: {found}")
    assert sorted(own)[-2] <= (1 if push else 2)  # all but one: a busy machine has its moments


def _spread(delays: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(delays), 3), "longest": round(max(delays), 3), "changes": len(delays)}
