"""The smaller parts of the harness: Prometheus and its exporters, the Go client, recipes, the HPA's log."""

import dataclasses
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from lab.harness import binaries
from lab.harness.adapter import merged
from lab.harness.hpa_log import HpaLog
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.quantities import number
from lab.harness.wire import Wire


@pytest.mark.integration
def test_prometheus_returns_an_exporters_series(exporter: Exporter, prometheus: Prometheus) -> None:
    exporter.pods("rps", "shop", {"a": 120, "b": 80})
    prometheus.wait_value('rps{pod="a"}', 120)
    prometheus.wait_value("sum(rps)", 200)
    prometheus.kill()
    exporter.pods("rps", "shop", {"a": 10})
    with pytest.raises(ConnectionRefusedError):
        prometheus.query("rps")
    prometheus.resume()
    prometheus.wait_value('rps{pod="a"}', 10)
    # b ended while Prometheus was down: without a staleness marker it stays for the lookback delta.
    assert [one["value"][1] for one in prometheus.query('rps{pod="b"}')] == ["80"]
    exporter.failing = True
    prometheus.wait_value("up", 0)


@pytest.mark.e2e
def test_go_client_reports_errors(wire: Wire) -> None:
    answer = dataclasses.replace(wire, version="v1beta2").pods("default", "app=web", "nothing")
    assert (answer.items, answer.code, answer.reason) == ([], 404, "NotFound")


def test_a_recipes_key_depends_on_all_its_inputs(tmp_path: Path) -> None:
    recipe = binaries.RECIPES["etcd"]
    assert recipe.key.startswith("etcd-3.6.16-")
    assert binaries.Recipe("a", "1", tags="x").key != binaries.Recipe("a", "1").key
    assert binaries.Recipe("a", "1", folder="x").key != binaries.Recipe("a", "1").key
    (tmp_path / "main.go").write_text("package main")
    before = binaries.Recipe("a", "1", source=tmp_path).key
    (tmp_path / "main.go").write_text("package main // changed")
    assert binaries.Recipe("a", "1", source=tmp_path).key != before
    (tmp_path / "main_test.go").write_text("package main")
    assert binaries.Recipe("a", "1", source=tmp_path).key != before


def test_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTIVE_LOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "go_binary", lambda: "go")
    (tmp_path / "module").mkdir()
    broken = binaries.Recipe("broken", "1", source=tmp_path / "module")
    monkeypatch.setitem(binaries.RECIPES, "broken", broken)
    failed = OSError if not shutil.which("go") else binaries.BuildError
    with pytest.raises(failed):
        binaries.ensure("broken", announce=lambda line: None)
    assert list((tmp_path / "cache" / "bin").iterdir()) == []


def test_a_program_that_cannot_be_built_is_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EFFECTIVE_LOAD_CACHE", str(tmp_path / "cache"))

    def fail(*_: object) -> Path:
        raise binaries.BuildError("the linker was killed")

    monkeypatch.setattr(binaries, "_build", fail)
    said: list[str] = []
    assert binaries.ensure_possible("keda-adapter", announce=said.append) == {}
    assert said[-1] == "keda-adapter cannot be built here, its tests are skipped: the linker was killed"


LOG = """
I1 horizontal.go:907] "Proposing desired replicas" desiredReplicas=7 metric="m" scaleTarget="Deployment/shop/web"
I1 horizontal.go:981] "Successfully rescaled" HPA="shop/web" currentReplicas=5 desiredReplicas=7 reason="m above target"
I1 horizontal.go:1008] "Decided not to scale" scaleTarget="Deployment/shop/web" desiredReplicas=7
I1 horizontal.go:1008] "Decided not to scale" scaleTarget="Deployment/shop/web-2" desiredReplicas=3
E1 horizontal.go:289] "Unhandled Error" err="failed to compute desired number of replicas based on listed metrics for \
Deployment/shop/web: invalid metrics"
"""


def test_hpa_log_returns_the_syncs_of_one_hpa(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    log = HpaLog(tmp_path / "log")
    syncs = log.syncs("shop", "web")
    assert [(sync.outcome, sync.desired) for sync in syncs] == [("rescaled", 7), ("kept", 7), ("failed", None)]
    assert log.proposals("shop", "Deployment/web") == [7]
    assert log.syncs("shop", "web", since=log.mark()) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("1500m", Fraction(3, 2)), ("2", 2), ("64Mi", 64 * 2**20), ("12345678n", Fraction(12345678, 10**9))],
)
def test_quantities(text: str, value: Fraction) -> None:
    assert number(text) == value


def test_settings_are_merged_over_the_defaults() -> None:
    base = {"server": {"port": 1, "tls": {"mode": "SelfSigned"}}, "list": [1]}
    assert merged(base, {"server": {"tls": {"mode": "Files"}}, "list": [2]}) == {
        "server": {"port": 1, "tls": {"mode": "Files"}},
        "list": [2],
    }
    assert base["list"] == [1]
