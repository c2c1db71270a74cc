"""Which services are followed, by which connections, and what one service costs the others."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapter.load.roster import Instance, Roster
from adapter.registries.cache import InstanceCache
from adapter.registries.follow import Follower, RegistryManager, open_source
from adapter.registries.source import Claim, ServiceKey
from adapter.settings.registries import AllowedServices, ConsulRegistry, HttpRegistry, Registry, ZooKeeperRegistry
from adapter.telemetry.metrics import Metrics
from tests.registries.kit import Clock, PlayedSource, served
from tests.waiting import eventually

WEB, CART, API = ServiceKey("one", "web"), ServiceKey("one", "cart"), ServiceKey("two", "api")
ONE = ConsulRegistry(name="one", type="Consul", servers=("http://one:8500",))
TWO = ConsulRegistry(name="two", type="Consul", servers=("http://two:8500",))
LISTED = Roster((Instance(ip="10.0.0.1", port=8080),))


def claims(*keys: ServiceKey, namespace: str = "shop") -> list[Claim]:
    """A policy of this namespace names each of them, the first one is the oldest."""
    return [Claim(namespace, (f"{age:03}",), key) for age, key in enumerate(keys)]


class Stand:
    """A manager of two registries whose sources a test plays."""

    def __init__(self) -> None:
        self.made: list[PlayedSource] = []
        self.changes: list[ServiceKey] = []
        self.manager = RegistryManager((ONE, TWO), self.changes.append, lambda: 1000.0, Metrics(), self._open)

    def _open(self, settings: Registry) -> PlayedSource:
        self.made.append(PlayedSource(settings))
        return self.made[-1]

    @contextlib.asynccontextmanager
    async def running(self, *keys: ServiceKey) -> AsyncIterator["Stand"]:
        """Follow these services meanwhile."""
        self.manager.watch(claims(*keys))
        task = asyncio.create_task(self.manager.run())
        try:
            await self.until_followed(*keys)
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_followed(self, *keys: ServiceKey) -> None:
        await eventually(lambda: {key for source in self.made for key in source.followed} == set(keys))


@pytest.fixture
async def stand() -> Stand:
    return Stand()


class TestConnections:
    async def test_registry_has_one_source_while_policies_name_its_services(self, stand: Stand) -> None:
        async with stand.running(WEB):
            stand.manager.watch(claims(WEB, CART))
            await stand.until_followed(WEB, CART)
            assert [source.settings for source in stand.made] == [ONE]
            assert stand.made[0].asked.count(WEB) == 1
            stand.manager.watch([])
            await stand.made[0].closed.wait()
            assert stand.manager.instances(WEB) is None

    async def test_new_settings_replace_a_connection_and_new_rules_about_policies_keep_it(self, stand: Stand) -> None:
        async with stand.running(WEB, API):
            one, two = sorted(stand.made, key=lambda source: source.settings.name)  # type: ignore[union-attr]
            two.say(API, LISTED)
            await eventually(lambda: stand.manager.instances(API))
            rules = {"allow": (AllowedServices(namespaces=("*",), services=("*",)),), "services_per_namespace": 7}
            stand.manager.reload((ONE.model_copy(update={"token_file": "/etc/token"}), TWO.model_copy(update=rules)))
            await one.closed.wait()
            await stand.until_followed(WEB, API)
            assert stand.made[2].settings.token_file == "/etc/token"  # type: ignore[union-attr]
            assert len(stand.made) == 3
            assert not two.closed.is_set()
            assert stand.manager.instances(API) is not None

    async def test_missing_extra_is_the_error_of_its_services_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "adapter.registries.zookeeper.session", None)
        zookeeper = ZooKeeperRegistry(name="one", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
        manager = RegistryManager((zookeeper,), lambda _: None, lambda: 0.0, Metrics())
        manager.watch(claims(WEB))
        task = asyncio.create_task(manager.run())
        await eventually(lambda: manager.instances(WEB))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(Exception, match=r"install effective-load\[zookeeper\]"):
            await anext(open_source(zookeeper).instances(WEB))


@contextlib.asynccontextmanager
async def followed(source: PlayedSource, *keys: ServiceKey) -> AsyncIterator[InstanceCache]:
    """The cache of services that are followed meanwhile."""
    cache = InstanceCache(ONE, lambda _: None, Clock(), Metrics())
    follower = Follower(source, cache, longest_pause=0.01)
    follower.follow(keys)
    yield cache
    await follower.close()


class TestFailures:
    async def test_fault_of_a_source_is_logged_and_leaves_the_other_services(self) -> None:
        source = PlayedSource()
        source.say(WEB, RuntimeError("a bug"))
        source.say(CART, LISTED)
        with capture_logs() as logs:
            async with followed(source, WEB, CART) as cache:
                await eventually(lambda: cache.troubles.get(WEB) and cache.instances(CART))
                source.say(WEB, LISTED)
                await eventually(lambda: cache.troubles.get(WEB) is None)
        assert "registry_source_failed" in {log["event"] for log in logs}

    async def test_close_ends_every_iterator_before_the_source(self) -> None:
        source = PlayedSource()
        async with followed(source, WEB, CART):
            await eventually(lambda: source.followed == {WEB, CART})
        assert source.followed == set()
        assert source.closed.is_set()


@pytest.mark.long
async def test_services_that_fail_hang_or_are_forbidden_do_not_age_200_others() -> None:
    async def answer(request: web.Request) -> web.Response:
        service = request.query["service"]
        if service == "hanging":
            await asyncio.Event().wait()
        if service in {"failing", "forbidden"}:
            return web.Response(status=500 if service == "failing" else 403)
        return web.json_response({"service": service, "complete": True, "instances": []})

    healthy = [ServiceKey("own", f"web-{number}") for number in range(200)]
    bad = [ServiceKey("own", service) for service in ("failing", "hanging", "forbidden")]
    async with served(answer) as url:
        settings = HttpRegistry(name="own", type="HTTP", url=url, interval_seconds=1, timeout_seconds=5)
        clock = Clock()
        cache = InstanceCache(settings, lambda _: None, clock, Metrics())
        follower = Follower(open_source(settings), cache)
        follower.follow([*healthy, *bad])

        def oldest(keys: Iterable[ServiceKey]) -> float:
            """The largest age of a list."""
            lists = [cache.instances(key) for key in keys]
            return max(clock() - listed.at if listed and listed.valid else 1e9 for listed in lists)

        await eventually(lambda: oldest(healthy) < 5 and all(cache.troubles.get(key) for key in bad))
        ages = []
        for _ in range(50):
            await asyncio.sleep(0.1)
            ages.append(oldest(healthy))
        await follower.close()
    assert max(ages) < 4, "those that waited for a hanging one would be older than its 5 s"
    assert not [key for key in healthy if cache.troubles.get(key)]


async def test_slow_registry_is_polled_less_often_and_does_not_fail() -> None:
    async def slowly(request: web.Request) -> web.Response:
        await asyncio.sleep(0.6)
        return web.json_response({"service": request.query["service"], "complete": True, "instances": []})

    keys = [ServiceKey("own", f"web-{number}") for number in range(160)]  # 32 at a time take 3 s for all of them
    async with served(slowly) as url:
        settings = HttpRegistry(name="own", type="HTTP", url=url, interval_seconds=0.5, timeout_seconds=2)
        cache = InstanceCache(settings, lambda _: None, Clock(), Metrics())
        follower = Follower(open_source(settings), cache)
        follower.follow(keys)
        await eventually(lambda: all(cache.instances(key) for key in keys))
        troubles = [cache.troubles.get(key) for key in keys]
        await follower.close()
    assert not any(troubles)
