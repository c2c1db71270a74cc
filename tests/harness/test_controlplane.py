"""The harness's control plane starts as soon as it is built, and leaves no process and no file."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lab.harness.control_plane import ControlPlane

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
    code, folder = _cluster_in_a_child("os.kill(os.getpid(), signal.SIGKILL)")
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    assert code == -signal.SIGKILL
