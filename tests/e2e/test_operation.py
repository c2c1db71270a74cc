"""Operation: changed settings, invalid settings, and an orderly shutdown."""

import subprocess
import sys
from pathlib import Path

from lab.harness.adapter import ROOT, AdapterProcess
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

RELOADS = "effective_load_settings_reloads_total"
ACCEPTED = "effective_load_settings_last_reload_successful"


def test_settings_are_reloaded_or_refused_and_sigterm_ends_in_order(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, shared_prometheus: Prometheus
) -> None:
    load.queue("web", 800)
    adapter: AdapterProcess = make_adapter({})
    workloads.deployment("web", 5)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web")
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
    load.queue("web", 1000)
    workloads.wait_replicas("web", 10)
    adapter.stop()
    assert adapter.component.process is not None
    assert adapter.component.process.returncode == 0
    assert "Traceback" not in adapter.logs(500)


def test_every_fault_of_the_settings_is_named_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "settings.yaml"
    broken.write_text("server: {port: 70000}\nresourceMetrics: {intervalSeconds: -1}\nservre: {}\n")
    command = [sys.executable, "-m", "adapter.cli", "serve", "--settings", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 2
    for path in ("server.port", "resourceMetrics.intervalSeconds", "servre"):
        assert path in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreachable_cluster_is_reported_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adapter.cli", "serve", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 1
    assert "none" in done.stderr
    assert "Traceback" not in done.stderr
