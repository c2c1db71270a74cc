"""`effective-load check` as a person runs it, against a real Consul and a real Polaris."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.telemetry import logs
from lab.harness.processes import free_ports
from lab.harness.registries.consul import Consul
from lab.harness.registries.polaris import Polaris

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul")]


class Check:
    """Runs the command with settings that name these registries, where there is no cluster."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._settings, self._capsys = folder / "settings.yaml", capsys
        self.status = -1

    def __call__(self, registries: list[dict[str, Any]], *arguments: str) -> str:
        """What it prints; `status` is then its exit status."""
        self._settings.write_text(yaml.safe_dump({"registries": registries}))
        self.status = cli.main(["check", "--settings", str(self._settings), *arguments])
        out, err = self._capsys.readouterr()
        return out + err


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # the test run keeps its own
    return Check(tmp_path, capsys)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Consul]:
    """A Consul that denies by default, with a service of two instances, one of them in maintenance."""
    with Consul(deny=True) as server:
        server.register("web", "web-1", "10.0.0.1")
        server.register("web", "web-2", "10.0.0.2")
        server.maintenance("web-2", on=True)
        server.wait_listed("web", 2)
        yield server


@pytest.fixture
def token(guarded: Consul, tmp_path: Path) -> str:
    """A file with a token that may read everything."""
    file = tmp_path / "token"
    file.write_text(guarded.root)
    return str(file)


def entry(consul: Consul, **more: object) -> dict[str, Any]:
    return {"name": "main", "type": "Consul", "servers": [consul.url], "timeoutSeconds": 3, **more}


def test_a_dead_server_and_a_wrong_token_are_told_from_each_other(
    check: Check, guarded: Consul, token: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    dead, wrong = f"http://127.0.0.1:{port}", tmp_path / "wrong"
    wrong.write_text("11111111-2222-3333-4444-555555555555")
    found = check([entry(guarded, tokenFile=token, servers=[guarded.url, dead])], "-v")
    assert f"error    {dead} cannot be reached" in found
    assert "lets the adapter read" in found
    assert check.status == cli.FAILED
    found = check([entry(guarded, tokenFile=str(wrong))], "-v")
    assert "does not authenticate" in found
    assert f"error    {guarded.url} does not" in found
    assert check.status == cli.FAILED


def test_without_a_cluster_registries_are_checked_and_policies_cannot_be(
    check: Check, guarded: Consul, token: str
) -> None:
    found = check([entry(guarded, tokenFile=token)], "--verbose")
    assert "lets the adapter read" in found
    assert "warning  no cluster answers" in found
    assert "effective-load-check" not in found
    assert check.status == cli.OK
    for registries, *arguments in (([entry(guarded, tokenFile=token)], "--policy", "shop/web"), ([],)):
        assert "error    no cluster answers" in check(registries, *arguments)
        assert check.status == cli.FAILED


NOWHERE = {"name": "main", "type": "Consul", "servers": ["http://127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("registries", "arguments", "sentence"),
    [
        ([NOWHERE], ["--policy", "shop"], "write NAMESPACE/NAME"),
        ([NOWHERE], ["--policy", "../../x"], "--policy '../../x': write NAMESPACE/NAME"),
        ([{"name": "main", "type": "Consul"}], [], "registries[0].servers: is missing"),
    ],
)
def test_faulty_options_and_settings_are_refused(
    check: Check, registries: list[dict[str, Any]], arguments: list[str], sentence: str
) -> None:
    assert sentence in check(registries, *arguments)
    assert check.status == cli.INVALID


@pytest.mark.parametrize("kind", ["Nacos", "Eureka"])
def test_polaris_is_checked_by_the_protocols_that_it_speaks(check: Check, polaris: Polaris, kind: str) -> None:
    shop = {"service": "shop", "namespace": "default", "host": "10.0.0.1", "port": 8080}
    polaris.call("POST", "/naming/v1/instances", [shop])
    polaris.restart()  # its caches are filled before it answers
    server = polaris.nacos if kind == "Nacos" else polaris.eureka
    registry = {"name": "main", "type": kind, "servers": [server], "timeoutSeconds": 5}
    assert f"{server}" in check([registry], "-v")
    assert check.status == cli.OK
