"""The registry layer of `check` against a real Consul and a real Polaris."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from adapter.commands.check.report import Level, lines
from adapter.commands.check.sources import check_registries
from adapter.settings import parse_settings
from lab.harness.processes import free_ports
from lab.harness.registries.consul import Consul
from lab.harness.registries.polaris import Polaris

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul")]


def check(kind: str, *servers: str, **more: object) -> list[str]:
    """What it reports of a registry with these servers."""
    entry = {"name": "main", "type": kind, "servers": servers, "timeoutSeconds": 5, **more}
    settings = parse_settings(yaml.safe_dump({"registries": [{**entry, "servers": list(servers)}]}))
    found, _ = asyncio.run(check_registries(settings.registries, []))
    return [*lines(found, verbose=True)]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Consul]:
    """A Consul that denies by default."""
    with Consul(deny=True) as server:
        yield server


def test_a_dead_server_a_wrong_token_and_a_good_one_are_told_from_each_other(guarded: Consul, tmp_path: Path) -> None:
    [port] = free_ports(1)
    dead, right, wrong = f"http://127.0.0.1:{port}", tmp_path / "token", tmp_path / "wrong"
    right.write_text(guarded.root)
    wrong.write_text("11111111-2222-3333-4444-555555555555")
    _, *found, _ = check("Consul", guarded.url, dead, tokenFile=str(right))
    assert f"  ok       {guarded.url} accepts the credentials and lets the adapter read" in found
    assert [line for line in found if line.startswith(f"  error    {dead}: connection refused: ")]
    _, found_wrong, _ = check("Consul", guarded.url, tokenFile=str(wrong))
    assert found_wrong.startswith(f"  error    {guarded.url}: HTTP 403: ")


@pytest.mark.parametrize("kind", ["Nacos", "Eureka"])
def test_polaris_is_checked_by_the_protocols_that_it_speaks(polaris: Polaris, kind: str) -> None:
    shop = {"service": "shop", "namespace": "default", "host": "10.0.0.1", "port": 8080}
    polaris.call("POST", "/naming/v1/instances", [shop])
    polaris.restart()  # its caches are filled before it answers
    server = polaris.nacos if kind == "Nacos" else polaris.eureka
    _, line, _ = check(kind, server)
    assert line.startswith(f"  {Level.OK.value}       {server} ")
