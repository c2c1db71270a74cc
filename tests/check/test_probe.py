"""One look at each server of a registry, with sources that do as they are told."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from adapter.load.roster import Instance
from adapter.registries import probe
from adapter.registries.source import ServiceKey
from adapter.registries.cache import RosterCache
from adapter.runtime.source_errors import NotAllowed, SourceUnreachable
from adapter.settings.registries import ConsulRegistry, HttpRegistry, Registry, ZooKeeperRegistry

WEB, CART = ServiceKey("main", "web"), ServiceKey("main", "cart")
LISTED = [Instance(ip="10.0.0.1", port=8080)]

Play = Callable[[RosterCache, str], Awaitable[None]]
Found = Callable[..., Awaitable[list[probe.ProbeResult]]]


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
def probed(monkeypatch: pytest.MonkeyPatch) -> Found:
    """Looks for services at servers that do as a function says."""
    monkeypatch.setattr(probe, "SECOND_CHANCE_SECONDS", 0.05)
    monkeypatch.setattr(probe, "MARGIN_SECONDS", 0.05)

    async def look(
        play: Play, *keys: ServiceKey, servers: tuple[str, ...] = ("http://a",), seconds: float = 5
    ) -> list[probe.ProbeResult]:
        monkeypatch.setattr(probe, "source", lambda settings, book: Played(settings, book, play))
        settings = ConsulRegistry(name="main", type="Consul", servers=servers, timeout_seconds=seconds)
        return list(await probe.probe(settings, set(keys) or {WEB}, time.time))

    return look


async def test_every_server_and_every_service_stands_for_itself(probed: Found) -> None:
    async def play(book: RosterCache, server: str) -> None:
        if server == "http://b":
            book.failed(SourceUnreachable("http://b: refused"))
        else:
            book.update(WEB, LISTED)
            book.failed(NotAllowed("cart is not yours"), [CART])

    up, down = await probed(play, WEB, CART, servers=("http://a", "http://b"))
    assert (up.server, list(up.rosters), list(up.troubles)) == ("http://a", [WEB], [CART])
    assert up.troubles[CART][:2] == ("forbidden", "cart is not yours (settings: `tokenFile`)")
    assert (down.server, down.rosters) == ("http://b", {})
    sentence = "http://b: refused (settings: `servers`, `timeoutSeconds`, `tls`)"
    assert down.troubles[WEB][:2] == ("unreachable", sentence)


async def test_an_error_that_does_not_last_is_no_trouble(probed: Found) -> None:
    async def play(book: RosterCache, _server: str) -> None:
        book.failed(SourceUnreachable("no push"))
        await asyncio.sleep(0)
        book.update(WEB, LISTED)

    [found] = await probed(play)
    assert found.rosters[WEB].instances == tuple(LISTED)


async def partly(book: RosterCache, _server: str) -> None:
    book.update(WEB, [], partial=True)


async def silently(_book: RosterCache, _server: str) -> None:
    await asyncio.Event().wait()


async def wrongly(_book: RosterCache, _server: str) -> None:
    raise LookupError("oops")


@pytest.mark.parametrize(
    ("play", "reason", "sentence"),
    [
        (partly, "partial", ""),
        (silently, "unreachable", "http://a: no answer within 0.05 s (settings: "),
        (wrongly, "error", "the adapter's own fault: LookupError('oops')"),
    ],
)
async def test_without_a_valid_answer_the_reason_is_told(probed: Found, play: Play, reason: str, sentence: str) -> None:
    [found] = await probed(play, seconds=0.05)
    assert found.troubles[WEB].reason == reason
    assert found.troubles[WEB].sentence.startswith(sentence)


async def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapter.registries.zookeeper.source", None)
    zookeeper = ZooKeeperRegistry(name="main", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    [found] = await probe.probe(zookeeper, {WEB}, time.time)
    assert "install effective-load[zookeeper]" in found.troubles[WEB].sentence
