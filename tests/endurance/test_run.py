"""A run records what it does, and fails where part of it ended too soon."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.endurance import run
from lab.endurance.run import CYCLE, LongRun
from lab.harness.client import ApiError, Response


class StubScene:
    """What a run asks of a scene, without servers."""

    def __init__(self) -> None:
        self.services = {"web": "load"}
        self.processes = {"adapter": (SimpleNamespace(running=True), Path())}
        self.churn_error: Exception | None = None
        self.log = 0

    def replace_pod(self) -> str:
        if self.churn_error:
            raise self.churn_error
        return "web-1"

    def answered(self, _service: str) -> bool:
        return True

    def figures(self) -> dict[str, dict[str, float]]:
        self.log += 100
        return {"adapter": {"memory": 80.0, "log": self.log}}

    def kinds_of_tasks(self) -> dict[str, dict[str, int]]:
        return {"adapter": {"Worker.run": 1}}

    def until_right(self, seconds: float) -> None:
        """All is right."""


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("CHURN_SECONDS", "ASK_SECONDS", "DISTURB_SECONDS"):
        monkeypatch.setattr(run, name, 0.01)
    monkeypatch.setattr(run, "SAMPLE_SECONDS", 0.04)
    monkeypatch.setattr(run, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(run, "disturb", lambda _scene, one: "too late" if one is CYCLE[1] else "")
    return StubScene()


def test_a_run_records_figures_disturbances_and_what_went_on_beside(scene: Any) -> None:
    lines: list[str] = []
    recorded = LongRun(scene, 0.3 / 60, lines.append).run()
    assert recorded.faults == []
    assert recorded.pods_replaced > 0
    assert recorded.numbers > 0
    assert [one["name"] for one in recorded.disturbances[:2]] == [CYCLE[0].name, CYCLE[1].name]
    assert recorded.disturbances[1]["fault"] == "too late"
    assert all(row["log"] > 0 for row in recorded.series["adapter"])
    assert recorded.tasks[0]["adapter"] == {"Worker.run": 1}
    assert any("too late" in line for line in lines)


def test_a_run_whose_churn_or_adapter_ended_has_failed(scene: Any) -> None:
    scene.churn_error = ApiError(Response(403, {}, b"{}"), "DELETE /pods/web-1")
    scene.processes["adapter"][0].running = False
    churn, adapter = LongRun(scene, 0.2 / 60, lambda _: None).run().faults
    assert churn.startswith("churn ended: ApiError: DELETE /pods/web-1")
    assert adapter == "adapter ended"
