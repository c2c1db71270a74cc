"""Operation: changed settings, invalid settings, and an orderly shutdown."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab.harness.adapter import ROOT, AdapterProcess
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings

RELOADS = "effective_load_settings_reloads_total"
ACCEPTED = "effective_load_settings_last_reload_successful"


def test_settings_are_reloaded_or_refused_and_sigterm_ends_in_order(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, shared_prometheus: Prometheus
) -> None:
    adapter: AdapterProcess = make_adapter({})
    load.serve(5, queue=800)
    workloads.wait_condition("web", "ScalingActive", status="False", contains="queue")
    settings = prometheus_settings(shared_prometheus)
    adapter.configure(settings)
    workloads.wait_replicas("web", 8)
    assert (adapter.metric(f'{RELOADS}{{result="taken"}}'), adapter.metric(ACCEPTED)) == (1, 1)
    adapter.configure(settings | {"kubernetes": {"hpaTolerance": 0.2}})
    waits = "[!]settings: settings wait for a restart: kubernetes; kubectl rollout restart"
    until(lambda: waits in adapter.get("/readyz?verbose").text, 30, adapter.logs)
    assert adapter.get("/readyz?verbose").status == 200
    adapter.write_settings("prometheus: {servers: 3}\nservre: {}\n")
    until(lambda: adapter.metric(f'{RELOADS}{{result="refused"}}') == 1, 60, adapter.logs)
    assert adapter.metric(ACCEPTED) == 0
    adapter.configure(settings | {"kubernetes": {"hpaTolerance": 0.2}})  # as before
    until(lambda: adapter.metric(ACCEPTED) == 1, 30, adapter.logs)
    load.queue("web", 1000)
    workloads.wait_replicas("web", 10)
    adapter.stop()
    assert adapter.component.process is not None
    assert adapter.component.process.returncode == 0
    assert "Traceback" not in adapter.logs(500)


@pytest.mark.parametrize(
    ("option", "status", "names"),
    [("--settings", 2, ("server.port", "resourceMetrics.intervalSeconds", "servre")), ("--kubeconfig", 1, ("broken",))],
)
def test_process_that_cannot_start_says_why_without_a_traceback(
    tmp_path: Path, option: str, status: int, names: tuple[str, ...]
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("server: {port: 70000}\nresourceMetrics: {intervalSeconds: -1}\nservre: {}\n")
    command = [sys.executable, "-m", "adapter.cli", "serve", option, str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == status
    assert [name for name in names if name not in done.stderr] == []
    assert "Traceback" not in done.stderr
