"""The registries of the settings: who is connected to when, and what policies may name."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from adapter.load.roster import Instance
from adapter.registries import manager
from adapter.registries.cache import RosterCache
from adapter.registries.follow import RegistryManager
from adapter.registries.source import RosterSource, ServiceKey
from adapter.runtime.fairness import Claim
from adapter.settings.registries import AllowedServices, ConsulRegistry, Registry, ZooKeeperRegistry
from adapter.telemetry.metrics import Metrics
from tests.registries.kit import Changes

WEB, API = ServiceKey("one", "web"), ServiceKey("two", "api")
ONE = ConsulRegistry(name="one", type="Consul", servers=("http://one:8500",))
REAL_SOURCE = manager.source
TWO = ConsulRegistry(name="two", type="Consul", servers=("http://two:8500",))


def claim(key: ServiceKey) -> Claim[ServiceKey]:
    """A policy of namespace `shop` names it."""
    return Claim("shop", (key.service,), key)


class FakeSource:
    """A source that lists one instance of every service once it runs, and remembers what was asked of it."""

    def __init__(self, settings: Registry, book: RosterCache) -> None:
        self.settings, self.book = settings, book
        self.running, self.ended = asyncio.Event(), asyncio.Event()
        self.breaks = False

    def refresh(self) -> None: ...

    async def run(self) -> None:
        for key in self.book.keys:
            self.book.update(key, [Instance(ip="10.0.0.1")])
        self.running.set()
        if self.breaks:
            raise RuntimeError("a fault of the adapter's own")
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


class Stand:
    """A hub whose sources are fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[FakeSource] = []
        self.breaks = False
        self.changes = Changes()
        self.now = 1000.0
        self.hub = RegistryManager((ONE, TWO), self.changes, lambda: self.now, Metrics())
        monkeypatch.setattr(manager, "source", self._make)

    def _make(self, settings: Registry, book: RosterCache) -> RosterSource:
        made = FakeSource(settings, book)
        made.breaks = self.breaks
        self.made.append(made)
        return made

    @asynccontextmanager
    async def running(self, *keys: ServiceKey) -> AsyncIterator[RegistryManager]:
        task = asyncio.create_task(self.hub.run())
        self.hub.watch(map(claim, keys))
        for key in keys:
            await self.changes.until(lambda key=key: self.hub.roster(key) is not None)  # type: ignore[misc]  # a default
        yield self.hub
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def test_a_registry_has_one_connection_as_long_as_policies_name_services_of_it(stand: Stand) -> None:
    async with stand.running(WEB):
        other = ServiceKey("one", "other")
        stand.hub.watch(map(claim, [WEB, other]))
        assert [source.settings.name for source in stand.made] == ["one"]
        assert stand.made[0].book.keys == {WEB, other}
        assert stand.hub.roster(API) is None
        stand.hub.watch([])
        await stand.made[0].ended.wait()
        assert stand.hub.roster(WEB) is None


async def test_new_settings_of_one_registry_leave_the_others_alone(stand: Stand) -> None:
    async with stand.running(WEB, API):
        one, two = stand.made
        stand.changes.received.clear()
        stand.hub.reload((ONE.model_copy(update={"token_file": "/etc/token"}), TWO))
        await one.ended.wait()
        await stand.changes.until(lambda: len(stand.made) == 3 and stand.made[2].running.is_set())
        assert not two.ended.is_set()
        assert stand.made[2].settings.token_file == "/etc/token"  # type: ignore[union-attr]


async def test_a_registry_taken_out_of_the_settings_is_left(stand: Stand) -> None:
    async with stand.running(WEB):
        stand.hub.reload((TWO,))
        await stand.made[0].ended.wait()
        assert "is not in the adapter's settings (two)" in stand.hub.refusal(WEB, "shop")


async def test_the_same_settings_again_change_nothing(stand: Stand) -> None:
    async with stand.running(WEB):
        stand.hub.reload((ONE.model_copy(), TWO))
        stand.hub.watch(map(claim, [WEB, API]))
        await stand.changes.until(lambda: stand.hub.roster(API) is not None)
        assert len(stand.made) == 2
        assert not stand.made[0].ended.is_set()


async def test_a_source_that_breaks_is_made_to_run_again_and_stops_nobody(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "RESTART_SECONDS", 0)
    stand.breaks = True
    with capture_logs() as logs:
        async with stand.running(WEB):
            source = stand.made[0]
            source.running.clear()
            await source.running.wait()
            roster = stand.hub.roster(WEB)
            assert roster is not None
            assert roster.instances
    assert {log["event"] for log in logs} >= {"registry source failed"}


async def test_a_missing_extra_is_said_and_stops_nobody(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(settings: Registry, book: RosterCache) -> RosterSource:
        if settings.type == "ZooKeeper":
            return REAL_SOURCE(settings, book)
        return stand._make(settings, book)

    monkeypatch.setattr(manager, "source", missing)
    monkeypatch.setitem(sys.modules, "adapter.registries.zookeeper.source", None)
    zookeeper = ZooKeeperRegistry(name="one", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    stand.hub.reload((zookeeper, TWO))
    with capture_logs():
        async with stand.running(WEB, API):
            roster = stand.hub.roster(WEB)
            assert roster is not None
            assert not roster.valid
            assert "install effective-load[zookeeper]" in (roster.error or "")
            assert stand.hub.roster(API) is not None


@pytest.mark.parametrize(
    ("namespace", "service", "allowed"),
    [
        ("shop", "com.shop.web", True),
        ("shop-eu", "com.shop.web", True),
        ("shop", "com.pay.web", False),
        ("pay", "com.shop.web", False),
        ("pay", "com.pay.web", True),
        ("pay", "com.pay2.web", False),
    ],
)
async def test_policies_may_name_only_what_the_settings_allow_their_namespace(
    namespace: str, service: str, allowed: bool
) -> None:
    rules = (
        AllowedServices(namespaces=("shop*",), services=("com.shop.*",)),
        AllowedServices(namespaces=("pay",), services=("com.pay.*", "billing")),
    )
    guarded = RegistryManager((ONE.model_copy(update={"allow": rules}),), Changes(), lambda: 0.0, Metrics())
    refusal = guarded.refusal(ServiceKey("one", service), namespace)
    assert bool(refusal) is not allowed
    if refusal:
        assert f"namespace {namespace} may not name service {service!r}" in refusal


async def test_without_rules_every_service_may_be_named() -> None:
    open_to_all = RegistryManager((ONE,), Changes(), lambda: 0.0, Metrics())
    assert open_to_all.refusal(ServiceKey("one", "anything"), "anywhere") == ""
    assert "(one)" in open_to_all.refusal(ServiceKey("nacos", "web"), "shop")
