"""One question to each server of a registry, with sources that a test plays."""

import sys
import time
from collections.abc import Mapping

import pytest

from adapter.load.roster import Instance
from adapter.registries import probe
from adapter.registries.source import Answer, PartialAnswer, ServiceKey
from adapter.runtime.source_errors import NotAllowed, SourceUnreachable
from adapter.settings.registries import ConsulRegistry, Registry, ZooKeeperRegistry
from tests.registries.kit import PlayedSource

WEB, CART = ServiceKey("main", "web"), ServiceKey("main", "cart")
LISTED = Answer((Instance(ip="10.0.0.1", port=8080),))
Said = Mapping[ServiceKey, Answer | Exception]


async def found(said: Mapping[str, Said], *keys: ServiceKey, seconds: float = 5) -> list[probe.ProbeResult]:
    """What servers, by their addresses, say about services."""
    settings = ConsulRegistry(name="main", type="Consul", servers=tuple(said), timeout_seconds=seconds)

    def opener(own: Registry) -> PlayedSource:
        source = PlayedSource(own)
        for key, each in said[own.addresses[0]].items():
            source.say(key, each)
        return source

    return await probe.probe(settings, set(keys), time.time, opener)


async def test_each_server_and_each_service_has_a_result_of_its_own() -> None:
    refused = SourceUnreachable("http://b: refused")
    said = {"http://a": {WEB: LISTED, CART: NotAllowed("forbidden")}, "http://b": {WEB: refused, CART: refused}}
    up, down = await found(said, WEB, CART)
    assert (up.server, list(up.instances), list(up.troubles)) == ("http://a", [WEB], [CART])
    assert up.instances[WEB].instances == LISTED.instances
    assert up.troubles[CART][:2] == ("forbidden", "forbidden (settings: `tokenFile`)")
    assert (down.server, down.instances) == ("http://b", {})
    sentence = "http://b: refused (settings: `servers`, `timeoutSeconds`, `tls`)"
    assert down.troubles[WEB][:2] == ("unreachable", sentence)


@pytest.mark.parametrize(
    ("said", "reason", "sentence"),
    [
        ({WEB: PartialAnswer("part of it")}, "partial", "part of it"),
        ({}, "unreachable", "http://a: no answer within 0.05 s (settings: "),
        ({WEB: LookupError("oops")}, "error", "the adapter's own fault: LookupError('oops')"),
    ],
)
async def test_reason_is_given_without_a_valid_answer(said: Said, reason: str, sentence: str) -> None:
    [result] = await found({"http://a": said}, WEB, seconds=0.05)
    assert result.troubles[WEB].reason == reason
    assert result.troubles[WEB].sentence.startswith(sentence)


async def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapter.registries.zookeeper.source", None)
    zookeeper = ZooKeeperRegistry(name="main", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    [result] = await probe.probe(zookeeper, {WEB}, time.time)
    assert "install effective-load[zookeeper]" in result.troubles[WEB].sentence
