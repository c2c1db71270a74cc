"""The harness's control plane: its parts work together, and it leaves no process and no file."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lab.harness.client import ApiError
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads

pytestmark = pytest.mark.e2e


def test_each_program_starts_as_soon_as_it_is_built() -> None:
    seen: dict[str, list[str]] = {}

    def built(*names: str) -> None:
        seen[",".join(names)] = [name for name, component in cluster.components.items() if component.running]

    cluster = ControlPlane(nodes=0, metrics_server=False, built=built, prepared=lambda one: built("prepared"))
    with cluster:
        first = ["etcd", "kube-apiserver"]
        assert seen == {
            "etcd,kube-apiserver": [],
            "prepared": first,
            "kube-controller-manager": first,
            "kube-scheduler": [*first, "kube-controller-manager"],
            "kwok": [*first, "kube-controller-manager", "kube-scheduler"],
        }


def test_pods_can_be_late_lingering_and_unready(workloads: Workloads) -> None:
    workloads.deployment("late", 1, ready_after="2s")
    workloads.deployment("web", 2)
    first, second = workloads.pod_names("web")
    workloads.set_conditions(first, Ready=False)
    workloads.linger(second)
    states = {pod["metadata"]["name"]: pod for pod in workloads.pods("web")}
    ready = {entry["type"]: entry["status"] for entry in states[first]["status"]["conditions"]}
    assert ready["Ready"] == "False"
    assert "deletionTimestamp" in states[second]["metadata"]
    workloads.release(second)
    workloads.client.wait_gone(f"{workloads.pods_path}/{second}")


def test_usage_is_set_for_a_container_a_pod_or_a_workload(workloads: Workloads) -> None:
    one = {"name": "app", "image": "example.invalid/app:1"}
    workloads.deployment("web", 2, containers=[one, {**one, "name": "sidecar"}], usage_cpu="200m", usage_memory="64Mi")
    first, second = workloads.pod_names("web")
    workloads.set_usage([first], cpu="300m", container="sidecar")
    workloads.wait_usage("web", memory="128Mi")
    deadline = time.monotonic() + 60
    while abs(workloads.usage("web")[first]["cpu"] - workloads.usage("web")[second]["cpu"]) < 0.09:
        assert time.monotonic() < deadline, workloads.usage("web")
        time.sleep(0.5)
    seen = workloads.usage("web")
    assert float(seen[first]["cpu"]) == pytest.approx(0.5, rel=0.02)
    assert float(seen[second]["cpu"]) == pytest.approx(0.4, rel=0.02)


def test_a_component_can_be_killed_and_started_again(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kill("metrics-server")
    with pytest.raises(ApiError) as refused:
        control_plane.pod_metrics(namespace)
    assert refused.value.status == 503
    control_plane.start_component("metrics-server")
    control_plane.wait_api_service("v1beta1.metrics.k8s.io")
    assert control_plane.pod_metrics(namespace) == []


def test_identities(control_plane: ControlPlane, namespace: str) -> None:
    stranger = control_plane.client_for("stranger", "nobodies")
    with pytest.raises(ApiError, match=r'403 Forbidden.*"stranger"'):
        stranger.list(f"/api/v1/namespaces/{namespace}/pods")
    token = control_plane.token(namespace, "robot")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    seen = control_plane.client_with_token(token).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert seen["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:robot"


def test_objects_are_applied_by_their_kind(api_server: ControlPlane, api_namespace: str) -> None:
    text = f"""
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: one, namespace: {api_namespace}}}
    data: {{a: "1"}}
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {{name: two, namespace: {api_namespace}}}
    rules: []
    """
    api_server.client.apply_yaml(textwrap.dedent(text))
    api_server.client.apply_yaml(textwrap.dedent(text).replace('"1"', '"2"'))
    found = api_server.client.get(f"/api/v1/namespaces/{api_namespace}/configmaps/one")
    assert found["data"] == {"a": "2"}
    with pytest.raises(LookupError, match="serves no Nothing"):
        api_server.client.plural("v1", "Nothing", patience=0)


def _cluster_in_a_child(ending: str) -> tuple[int, Path]:
    """Runs an API server in a child process; returns etcd's process id and the folder after its end."""
    script = f"""
        import os, signal
        from lab.harness.control_plane import ControlPlane
        cluster = ControlPlane.api_server_only()
        cluster.start()
        print(cluster.components["etcd"].pid, cluster.components["kube-apiserver"].pid, cluster.folder, flush=True)
        {ending}
    """
    root = Path(__file__).resolve().parent.parent.parent
    child = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(child, cwd=root, capture_output=True, text=True, timeout=180, check=False)
    etcd, api_server, folder = done.stdout.split()
    _wait_dead(int(etcd))
    _wait_dead(int(api_server))
    return done.returncode, Path(folder)


def _wait_dead(pid: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still exists")


@pytest.mark.usefixtures("api_server")
def test_stop_leaves_nothing() -> None:
    code, folder = _cluster_in_a_child("cluster.stop()")
    assert code == 0
    assert not folder.exists()


@pytest.mark.usefixtures("api_server")
def test_a_killed_test_run_leaves_no_process(request: pytest.FixtureRequest) -> None:
    import shutil

    code, folder = _cluster_in_a_child("os.kill(os.getpid(), signal.SIGKILL)")
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    assert code == -signal.SIGKILL
