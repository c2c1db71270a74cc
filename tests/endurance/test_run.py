"""A run fails where part of it ended too soon."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.endurance import run
from lab.endurance.run import LongRun
from lab.harness.client import ApiError, Response


class StubScene:
    """What a run asks of a scene, without servers."""

    def __init__(self) -> None:
        self.services = {"web": "load"}
        self.processes = {"adapter": (SimpleNamespace(running=False), Path())}

    def replace_pod(self) -> str:
        raise ApiError(Response(403, {}, b"{}"), "DELETE /pods/web-1")

    def answered(self, _service: str) -> bool:
        return True

    def figures(self) -> dict[str, dict[str, float]]:
        return {"adapter": {"memory": 80.0, "log": 100}}

    def kinds_of_tasks(self) -> dict[str, dict[str, int]]:
        return {"adapter": {"Worker.run": 1}}

    def until_right(self, seconds: float) -> None:
        """All is right."""


def test_a_run_whose_churn_or_adapter_ended_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHURN_SECONDS", "ASK_SECONDS", "DISTURB_SECONDS"):
        monkeypatch.setattr(run, name, 0.01)
    monkeypatch.setattr(run, "SAMPLE_SECONDS", 0.04)
    monkeypatch.setattr(run, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(run, "disturb", lambda *_: "")
    scene: Any = StubScene()
    churn, adapter = LongRun(scene, 0.2 / 60, lambda _: None).run().faults
    assert churn.startswith("churn ended: ApiError: DELETE /pods/web-1")
    assert adapter == "adapter ended"
