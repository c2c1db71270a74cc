"""The smaller parts of the harness: recipes, and the log of the HPA."""

from pathlib import Path

import pytest

from lab.harness import binaries
from lab.harness.hpa_log import HpaLog


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
    assert log.syncs("shop", "web", since=log.mark()) == []
