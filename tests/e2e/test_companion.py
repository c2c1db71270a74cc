"""The companion: a policy's status, leader election, and memory across restarts."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from lab.harness.adapter import NAMESPACE, AdapterProcess
from lab.harness.companion import LEASE_PATH, CompanionProcess, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.registries.consul import Consul
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeAdapter, MakeCompanion
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

    def wait_desired(self, count: int, seconds: float = 40) -> dict[str, Any]:
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


def test_a_row_shows_whether_the_hpa_gets_an_error_and_its_age(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    control_plane: ControlPlane,
    scene: Scene,
    prometheus: Prometheus,
) -> None:
    def shown() -> tuple[Any, ...]:
        found = line(control_plane, scene)
        return found["Ready"], found["Desired"], found["Assessed"]

    scene.begin()
    adapter = make_adapter(prometheus_settings(prometheus))
    companion = make_companion(prometheus_settings(prometheus))
    until(lambda: shown()[:2] == ("True", 7), 60, lambda: str(shown()))
    assert shown()[2].endswith("s")
    adapter.stop()
    until(lambda: shown()[:2] == ("False", 7), 60, lambda: str(shown()))  # a count is decided, and the HPA has none
    assert condition(scene.status, "Ready")["reason"] == "HPAInactive"
    assert "FailedGetObjectMetric" in condition(scene.status, "Ready")["message"]
    adapter.start()
    until(lambda: shown()[:2] == ("True", 7), 60, lambda: str(shown()))
    scene.load.each("web", 150, but=dict.fromkeys(scene.workloads.pod_names("web")))
    until(lambda: shown()[:2] == ("False", None), 40, lambda: str(shown()))
    companion.stop()
    written = int(shown()[2].removesuffix("s"))
    until(lambda: int(shown()[2].removesuffix("s")) >= written + 5, 20, lambda: str(shown()))


def test_a_share_of_a_limit_is_a_percentage_in_the_row(
    make_companion: MakeCompanion, control_plane: ControlPlane, scene: Scene
) -> None:
    scene.workloads.deployment("web", 2, usage_memory="830Mi", memory_limit="1000Mi")
    memory = {"name": "memory", "resource": {"name": "memory", "relativeTo": "Limit"}}
    scene.workloads.policy("web", [memory | {"highWatermark": "0.9", "lowWatermark": "50%"}])
    scene.workloads.hpa("web", behavior=CALM)
    make_companion()
    scene.wait_desired(2)
    found = line(control_plane, scene)
    assert (found["Effective"], found["High"], found["Low"]) == ("83%", "90%", "50%")
    assert (
        "2 pods use 83% on average, inside the band 50% … 90% (tolerance 1 %: acts under " in scene.status["decision"]
    )


def test_a_status_is_written_when_its_content_changes_and_not_with_every_sample(
    make_companion: MakeCompanion, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin(each=100)
    companion = make_companion(prometheus_settings(prometheus))
    scene.wait_desired(5)
    time.sleep(11)  # the first samples may have come one by one
    before = companion.writes("WriteStatus")
    for value in (101, 99, 100.5, 98, 102):
        scene.load.each("web", value)
        time.sleep(3)
    assert companion.writes("WriteStatus") == before
    scene.load.each("web", 150)
    scene.wait_desired(7)
    assert companion.writes("WriteStatus") > before


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


def test_a_policy_that_names_what_the_settings_lack_is_not_accepted_and_its_other_metrics_decide(
    make_companion: MakeCompanion, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    make_companion(prometheus_settings(prometheus))
    scene.wait_desired(7)
    misspelt = query_watermarks("load2", "120", "40")
    lacks = "query load2: the settings define no such query (they have load, queue)"

    def shows(kind: str, *wanted: str) -> bool:
        found = condition(scene.status, kind)
        return (found["status"], *[found["reason"], found["message"]][: len(wanted) - 1]) == wanted

    def change(**spec: Any) -> None:
        scene.workloads.client.patch(scene.path, {"spec": spec})

    good = query_watermarks("load", "120", "40")
    change(metrics=[misspelt, good])
    until(lambda: shows("Accepted", "False", "Refused", lacks), 8, lambda: str(scene.status))  # at once
    assert scene.status["desired"] == 7
    change(metrics=[misspelt])
    until(lambda: shows("Ready", "False", "Invalid", lacks), 30, lambda: str(scene.status))
    change(metrics=[good], registry={"name": "nowhere", "service": "web"})
    unknown = "WatermarkPolicy web: registry 'nowhere' is not in the adapter's settings (none yet); name one of them"
    until(lambda: shows("Ready", "False", "Invalid", unknown), 30, lambda: str(scene.status))
    assert shows("Accepted", "False", "Refused", unknown)


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
    exhaustive: bool,
) -> None:
    scene.begin()
    within = FAILOVER_SECONDS * (1 if exhaustive else BUSY)
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


def test_with_all_features_off_it_needs_rights_to_read_only(
    make_companion: MakeCompanion, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    off = {"companion": {"features": {"status": False, "events": False}}}
    companion = make_companion({**prometheus_settings(prometheus), **off}, rights=())
    companion.wait_leading()
    time.sleep(12)
    assert scene.status == {}
    assert "companion_writes_total{" not in companion.metrics()
    assert not [line for line in companion.logs(200).splitlines() if "warning" in line or "403 Forbidden" in line]


def test_a_missing_right_is_logged_once_and_retried_with_backoff(
    make_companion: MakeCompanion, workloads: Workloads, scene: Scene, prometheus: Prometheus
) -> None:
    scene.begin()
    companion = make_companion(prometheus_settings(prometheus), rights=("events",))
    companion.wait_leading()
    until(lambda: companion.writes("WriteStatus", "Forbidden") >= 2, 30, companion.logs)
    time.sleep(15)
    assert companion.writes("WriteStatus", "Forbidden") <= 5
    # The deletion of an earlier test's policy may still be in progress.
    lines = companion.component.log.read_text().splitlines()
    assert len([line for line in lines if "write_failed" in line and workloads.namespace in line]) == 1


@pytest.mark.timeout(420)
@pytest.mark.builds("consul")
def test_four_absent_pods_stay_out_over_restarts_of_everything_without_a_change_of_the_answer(
    make_adapter: MakeAdapter, make_companion: MakeCompanion, workloads: Workloads, scene: Scene, prometheus: Prometheus
) -> None:
    with Consul() as consul:
        registry = {"name": "consul", "type": "Consul", "servers": [consul.url]}
        workloads.deployment("web", 14)
        pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in workloads.pods("web")}
        for name, ip in pods.items():
            consul.register("shop.web", name, ip)
        consul.wait_listed("shop.web", len(pods))
        gone = sorted(pods)[:4]
        scene.load.each("web", 130, but=dict.fromkeys(gone, 2.0))
        workloads.policy(
            "web",
            [query_watermarks("load", "120", "40")],
            registry={"name": "consul", "service": "shop.web", "absenceConfirmationSeconds": 5},
            pulledOut={"replaceAfterSeconds": 0},
        )
        workloads.hpa("web", behavior=CALM)
        settings = {**prometheus_settings(prometheus), "registries": [registry]}
        servers = [make_adapter(settings), make_adapter(settings)]
        companion = make_companion(settings)
        scene.wait_desired(14)
        for name in gone:
            consul.deregister(name)
        # The ten serving pods need eleven, and four replace the absent ones.
        status = scene.wait_desired(15, 120)
        assert status["pods"]["pulledOut"] == 4
        until(lambda: len(scene.status["memory"]["pods"]) == 4, 30, lambda: str(scene.status))
        out = {uid: pod["outSince"] for uid, pod in scene.status["memory"]["pods"].items()}

        def answers_after(restart: list[AdapterProcess], seconds: float = 8) -> set[int]:
            for server in restart:
                server.kill()
            for server in restart:
                server.component.start()
            found = set()
            for server in restart:
                server.component.wait_ready(30)
                server.register()
                server.wait_available()
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    found |= asked(workloads)
                    time.sleep(0.1)
            return found

        assert answers_after(servers) == {15}
        companion.kill()
        companion.start()
        companion.wait_leading(40)
        assert answers_after(servers) == {15}
        status = scene.status
        assert (status["desired"], status["pods"]["pulledOut"]) == (15, 4)
        assert {uid: pod["outSince"] for uid, pod in status["memory"]["pods"].items()} == out


def asked(workloads: Workloads) -> set[int]:
    """The current answer for `desired_replicas`; empty if it is an error."""
    where = f"namespaces/{workloads.namespace}/watermarkpolicies.effective-load.io/web/desired_replicas"
    answer = workloads.client.raw(f"/apis/custom.metrics.k8s.io/v1beta2/{where}")
    return {int(answer.json()["items"][0]["value"])} if answer.status == 200 else set()
