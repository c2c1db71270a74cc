"""The companion: a policy's status, leader election, and memory across restarts."""

import time
from typing import Any

import pytest

from lab.harness.companion import LEASE_PATH, CompanionProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeCompanion
from tests.e2e.kit import CALM, Load, prometheus_settings, query_watermarks

FAILOVER_SECONDS = 15
BUSY = 2
"""So many times as long it may take beside five other workers."""


class Scene:
    """A service `web` between watermarks of 120 and 40, and its policy's status."""

    def __init__(self, workloads: Workloads, load: Load) -> None:
        self.workloads, self.load = workloads, load
        base = f"/apis/effective-load.io/v1alpha1/namespaces/{workloads.namespace}/watermarkpolicies"
        self.path = f"{base}/web"

    def begin(self, pods: int = 5, each: float = 150, **policy: Any) -> None:
        self.workloads.deployment("web", pods)
        self.load.each("web", each)
        self.workloads.policy("web", [query_watermarks("load", "120", "40")], **policy)
        self.workloads.hpa("web", behavior=CALM)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.workloads.client.get(self.path).get("status") or {})

    def wait_desired(self, count: int, seconds: float = 90) -> dict[str, Any]:
        until(lambda: self.status.get("desired") == count, seconds, lambda: f"the status says {self.status}")
        return self.status


@pytest.fixture
def scene(workloads: Workloads, load: Load) -> Scene:
    return Scene(workloads, load)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return dict(found)


def test_a_status_shows_the_assessment_and_the_decision_also_in_columns(
    companion: CompanionProcess, control_plane: ControlPlane, scene: Scene
) -> None:
    scene.begin()
    status = scene.wait_desired(7)
    assert (status["verdict"], status["metric"], status["current"]) == ("Above", "load", 5)
    assert (status["effective"], status["raw"], status["high"], status["low"]) == ("150", "150", "120", "40")
    assert status["pods"]["serving"] == 5
    assert status["metrics"][0]["proposal"] == 7
    assert status["observedGeneration"] == 1
    assert condition(status, "InputsFresh")["reason"] == "SamplesFresh"
    shown = line(control_plane, scene)
    columns = ("Verdict", "Effective", "High", "Low", "Serving", "Out", "Desired", "Current")
    assert [shown[name] for name in columns] == [
        "Above", "150", "120", "40", 5, 0, 7, 5,
    ]  # fmt: skip


def line(control_plane: ControlPlane, scene: Scene) -> dict[str, Any]:
    """The row of `kubectl get wmp`, by column."""
    table = control_plane.client.raw(scene.path, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
    return dict(zip((c["name"] for c in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))


def test_an_invalid_policy_is_reported_in_its_status_and_by_an_event(companion: CompanionProcess, scene: Scene) -> None:
    scene.begin()
    scene.wait_desired(7)
    held = {"metadata": {"annotations": {"effective-load.io/hold-until": "tomorrow"}}}
    scene.workloads.client.patch(scene.path, held)
    until(lambda: condition(scene.status, "Ready")["reason"] == "Invalid", 30, lambda: str(scene.status))
    status = scene.status
    for kind in ("Ready", "Accepted"):
        assert (condition(status, kind)["status"], "hold-until" in condition(status, kind)["message"]) == (
            "False",
            True,
        )
    assert (status["verdict"], status.get("desired")) == ("Error", None)
    until(lambda: "Invalid" in events(scene.workloads), 30, lambda: str(events(scene.workloads)))
    scene.workloads.client.patch(scene.path, {"metadata": {"annotations": {"effective-load.io/hold-until": None}}})
    scene.wait_desired(7)
    assert condition(scene.status, "Accepted")["status"] == "True"


def events(workloads: Workloads) -> set[str]:
    """The reasons of the Events in a namespace."""
    found = workloads.client.get(f"/apis/events.k8s.io/v1/namespaces/{workloads.namespace}/events")
    return {event["reason"] for event in found["items"]}


def test_a_killed_leader_is_followed_and_an_ending_one_hands_over(
    make_companion: MakeCompanion, control_plane: ControlPlane, scene: Scene, shared_prometheus: Prometheus, laws: Laws
) -> None:
    """Conditions stay as old as they are."""
    scene.begin()
    settings = laws.over(prometheus_settings(shared_prometheus))
    first = make_companion(settings)
    first.wait_leading()
    second = make_companion(settings)
    since = condition(scene.wait_desired(7), "InputsFresh")["lastTransitionTime"]
    time.sleep(laws.statuses_apart)
    assert not second.leads
    scene.load.each("web", 200)
    first.kill()
    within = BUSY * FAILOVER_SECONDS
    until(lambda: scene.status.get("desired") == 9, within, lambda: f"{scene.status}{second.logs()}")
    assert second.leads
    assert condition(scene.status, "InputsFresh")["lastTransitionTime"] == since
    assert control_plane.client.get(LEASE_PATH)["spec"]["leaseTransitions"] == 2
    first.start()
    time.sleep(2)
    assert not first.leads
    second.stop()
    first.wait_leading(5)
    assert second.component.process is not None
    assert second.component.process.returncode == 0
    assert "Traceback" not in first.logs(200) + second.logs(200)
