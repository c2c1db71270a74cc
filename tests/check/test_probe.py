"""One look at each server of a registry, with sources that do as they are told."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from adapter.load.roster import Instance
from adapter.registries import probe
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.source_errors import NotAllowed, SourceUnreachable
from adapter.settings.registries import ConsulRegistry, HttpRegistry, Registry, ZooKeeperRegistry

WEB, CART = ServiceKey("main", "web"), ServiceKey("main", "cart")
LISTED = [Instance(ip="10.0.0.1", port=8080)]

Play = Callable[[RosterCache, str], Awaitable[None]]


class Played:
    """A source whose connection is a function of the test's own."""

    def __init__(self, settings: Registry, book: RosterCache, play: Play) -> None:
        assert not isinstance(settings, HttpRegistry)
        [self._server] = settings.servers
        self._book, self._play = book, play

    def refresh(self) -> None: ...

    async def run(self) -> None:
        await self._play(self._book, self._server)
        await asyncio.Event().wait()


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], None]:
    monkeypatch.setattr(probe, "SECOND_CHANCE_SECONDS", 0.05)
    monkeypatch.setattr(probe, "MARGIN_SECONDS", 0.05)

    def set_up(play: Play) -> None:
        monkeypatch.setattr(probe, "source", lambda settings, book: Played(settings, book, play))

    return set_up


def settings(*servers: str, seconds: float = 5) -> ConsulRegistry:
    return ConsulRegistry(name="main", type="Consul", servers=servers or ("http://a",), timeout_seconds=seconds)


async def test_every_server_is_asked_by_itself(plays: Callable[[Play], None]) -> None:
    async def play(book: RosterCache, server: str) -> None:
        if server == "http://b":
            book.failed(SourceUnreachable("http://b: refused"))
        else:
            book.update(WEB, LISTED)

    plays(play)
    up, down = await probe.probe(settings("http://a", "http://b"), {WEB}, time.time)
    assert (up.server, list(up.rosters), up.troubles) == ("http://a", [WEB], {})
    assert (down.server, down.rosters) == ("http://b", {})
    assert down.troubles[WEB][:2] == (
        "unreachable",
        "http://b: refused (settings: `servers`, `timeoutSeconds`, `tls`)",
    )


async def test_an_error_that_does_not_last_is_no_trouble(plays: Callable[[Play], None]) -> None:
    async def play(book: RosterCache, _server: str) -> None:
        book.failed(SourceUnreachable("no push"))
        await asyncio.sleep(0)
        book.update(WEB, LISTED)

    plays(play)
    [found] = await probe.probe(settings(), {WEB}, time.time)
    assert found.rosters[WEB].instances == tuple(LISTED)


async def test_services_stand_for_themselves(plays: Callable[[Play], None]) -> None:
    async def play(book: RosterCache, _server: str) -> None:
        book.update(WEB, LISTED)
        book.failed(NotAllowed("cart is not yours"), [CART])

    plays(play)
    [found] = await probe.probe(settings(), {WEB, CART}, time.time)
    assert list(found.rosters) == [WEB]
    assert {key: trouble[:2] for key, trouble in found.troubles.items()} == {
        CART: ("forbidden", "cart is not yours (settings: `tokenFile`)")
    }


async def test_an_answer_that_is_not_valid_says_why(plays: Callable[[Play], None]) -> None:
    async def play(book: RosterCache, _server: str) -> None:
        book.update(WEB, [], partial=True)

    plays(play)
    [found] = await probe.probe(settings(), {WEB}, time.time)
    assert found.troubles[WEB].reason == "partial"


async def test_silence_ends_with_the_settings_timeout(plays: Callable[[Play], None]) -> None:
    async def play(_book: RosterCache, _server: str) -> None:
        await asyncio.Event().wait()

    plays(play)
    [found] = await probe.probe(settings(seconds=0.05), {WEB}, time.time)
    assert found.troubles[WEB][:2] == (
        "unreachable",
        "http://a: no answer within 0.05 s (settings: `servers`, `timeoutSeconds`, `tls`)",
    )


async def test_a_source_that_breaks_is_our_fault_and_said_so(plays: Callable[[Play], None]) -> None:
    async def play(_book: RosterCache, _server: str) -> None:
        raise LookupError("oops")

    plays(play)
    [found] = await probe.probe(settings(), {WEB}, time.time)
    assert found.troubles[WEB][:2] == ("error", "the adapter's own fault: LookupError('oops')")


async def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapter.registries.zookeeper.source", None)
    zookeeper = ZooKeeperRegistry(name="main", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    [found] = await probe.probe(zookeeper, {WEB}, time.time)
    assert "install effective-load[zookeeper]" in found.troubles[WEB].sentence
