"""The companion: a policy's status, leader election, and memory across restarts."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from lab.harness.adapter import NAMESPACE
from lab.harness.companion import LEASE_PATH, CompanionProcess, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeCompanion
from tests.e2e.kit import CALM, Load, prometheus_settings, query_watermarks

FAILOVER_SECONDS = 15
BUSY = 2
"""So many times as long it may take beside five other workers."""


class Scene:
    """A service `web` between watermarks of 120 and 40, and its policy's status."""

    def __init__(self, workloads: Workloads, exporter: Exporter) -> None:
        self.workloads = workloads
        self.load = Load(exporter, workloads)
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
def scene(workloads: Workloads, exporter: Exporter) -> Scene:
    return Scene(workloads, exporter)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return dict(found)


def test_a_status_shows_the_assessment_and_the_decision_also_in_columns(
    make_companion: MakeCompanion, control_plane: ControlPlane, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    make_companion(prometheus_settings(prometheus))
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


def test_an_invalid_policy_is_reported_in_its_status_and_by_an_event(
    make_companion: MakeCompanion, scene: Scene, prometheus: Prometheus, laws: Laws
) -> None:
    scene.begin()
    make_companion(laws.over(prometheus_settings(prometheus)))
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


def test_a_companion_of_one_namespace_needs_its_rights_there_only(
    make_companion: MakeCompanion, control_plane: ControlPlane, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    namespace = scene.workloads.namespace
    settings = prometheus_settings(prometheus) | {"kubernetes": {"namespaces": [namespace]}}
    companion = make_companion(settings, kubeconfig=rights_within(control_plane, namespace))
    scene.wait_desired(7)
    scene.load.each("web", 100)
    scene.wait_desired(5)
    assert companion.writes("WriteStatus") >= 2
    assert not [line for line in companion.logs(200).splitlines() if "orbidden" in line]


def rights_within(cluster: ControlPlane, namespace: str) -> Path:
    """A kubeconfig with the default rights in one namespace, the Lease aside."""
    companion_kubeconfig(cluster)  # brings the roles
    account = f"companion-of-{namespace}"
    cluster.client.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}}
    )
    for kind, role, where in (
        ("ClusterRole", "effective-load-server", namespace),
        ("ClusterRole", "effective-load-companion-status", namespace),
        ("ClusterRole", "effective-load-companion-events", namespace),
        ("Role", "effective-load-companion-lease", NAMESPACE),
    ):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{account}", "namespace": where},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        }
        cluster.client.apply(binding)
    return cluster.kubeconfig_with_token(cluster.token(NAMESPACE, account), f"kubeconfig-{account}")


def test_a_leader_that_resumes_after_a_freeze_writes_nothing(
    make_companion: MakeCompanion, scene: Scene, prometheus: Prometheus, laws: Laws
) -> None:
    scene.begin()
    companions = [make_companion(laws.over(prometheus_settings(prometheus))) for _ in range(2)]
    scene.wait_desired(7)
    time.sleep(laws.statuses_apart)
    leader = one_that_leads(companions)
    (heir,) = [one for one in companions if one is not leader]
    written = all_writes(leader)
    leader.component.signal(signal.SIGSTOP)
    scene.load.each("web", 200)
    try:
        scene.wait_desired(9, 60)
    finally:
        leader.component.signal(signal.SIGCONT)
    until(lambda: not leader.leads, 10, leader.logs)
    scene.load.each("web", 150)
    scene.wait_desired(7)
    assert all_writes(leader) == written
    assert one_that_leads(companions) is heir


def test_when_the_leader_is_killed_another_one_acts_within_15_s_and_conditions_stay_as_old_as_they_are(
    make_companion: MakeCompanion,
    control_plane: ControlPlane,
    scene: Scene,
    prometheus: Prometheus,
    laws: Laws,
) -> None:
    scene.begin()
    within = BUSY * FAILOVER_SECONDS
    companions = [make_companion(laws.over(prometheus_settings(prometheus))) for _ in range(3)]
    since = condition(scene.wait_desired(7), "InputsFresh")["lastTransitionTime"]
    time.sleep(laws.statuses_apart)
    leader = one_that_leads(companions)
    scene.load.each("web", 200)
    killed = time.monotonic()
    leader.kill()
    others = [one for one in companions if one is not leader]
    until(lambda: scene.status.get("desired") == 9, within, lambda: f"{scene.status}{others[0].logs()}")
    assert time.monotonic() - killed < within
    one_that_leads(others)
    assert condition(scene.status, "InputsFresh")["lastTransitionTime"] == since
    assert control_plane.client.get(LEASE_PATH)["spec"]["leaseTransitions"] == 2


def one_that_leads(companions: list[CompanionProcess]) -> CompanionProcess:
    (leader,) = [one for one in companions if one.leads]
    return leader


def all_writes(companion: CompanionProcess) -> list[str]:
    """The lines of its metrics about writes of any kind and result."""
    return [line for line in companion.metrics().splitlines() if line.startswith("effective_load_companion_writes_")]


def test_a_leader_that_ends_hands_over_at_once_and_no_two_ever_lead(
    make_companion: MakeCompanion, control_plane: ControlPlane, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    first = make_companion(prometheus_settings(prometheus))
    first.wait_leading()
    second = make_companion(prometheus_settings(prometheus))
    time.sleep(8)
    assert not second.leads
    first.stop()
    ended = time.monotonic()
    second.wait_leading(5)
    assert time.monotonic() - ended < 5
    assert first.component.process is not None
    assert first.component.process.returncode == 0
    assert "Traceback" not in first.logs(200) + second.logs(200)


def asked(workloads: Workloads) -> set[int]:
    """The current answer for `desired_replicas`; empty if it is an error."""
    where = f"namespaces/{workloads.namespace}/watermarkpolicies.effective-load.io/web/desired_replicas"
    answer = workloads.client.raw(f"/apis/custom.metrics.k8s.io/v1beta2/{where}")
    return {int(answer.json()["items"][0]["value"])} if answer.status == 200 else set()
