"""`replay --all` on a real API server and a real Prometheus, with the rights and the arguments of the example's Job."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter import cli
from adapter.policy.behavior import count_metric
from adapter.runtime.times import format_time
from lab.harness.adapter import MANIFESTS, install_crds
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from tests.manifests.rendering import documents
from tests.replay.history.kit import exposition

pytestmark = pytest.mark.integration

NAMESPACE = "replay-all"
NAMES = ("api", "cart", "web")
STEP, COUNT = 15, 120
JOB = documents(MANIFESTS / "examples" / "replay-job.yaml")


@pytest.fixture(scope="module")
def began() -> int:
    return (int(time.time()) - 2 * COUNT * STEP) // STEP * STEP


@pytest.fixture(scope="module")
def server(began: int) -> Iterator[Prometheus]:
    """Half an hour of CPU of two services: waves of 2 to 8 cores. The third has no data."""
    used, lines = 0.0, []
    for number in range(COUNT):
        at = began + number * STEP
        for name in NAMES[1:]:
            labels = f'namespace="{NAMESPACE}",pod="{name}-5d4f8c7b9d-x7xk2",container="app"'
            lines.append(exposition(f"container_cpu_usage_seconds_total{{{labels}}}", [(at, used)]))
        used += STEP * (5 + 3 * math.sin(number / 10))
    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        exporter.set_text("".join(lines))
        prometheus.wait_value(f"count(container_cpu_usage_seconds_total @ {began + (COUNT - 1) * STEP})", 2)
        yield prometheus


@pytest.fixture(scope="module")
def kubeconfig(api_server: ControlPlane) -> Path:
    """The cluster with three services, as the example's service account reads it."""
    client = api_server.client
    install_crds(api_server)
    for name in ("effective-load", NAMESPACE):
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    rights = (one for one in JOB if one["kind"] != "Job")
    for item in [*rights, *(one for name in NAMES for one in service(name))]:
        client.apply(item)
    token = api_server.token("effective-load", "effective-load-replay")
    return api_server.kubeconfig_with_token(token, "kubeconfig-replay")


def service(name: str) -> list[dict[str, Any]]:
    metadata = {"name": name, "namespace": NAMESPACE}
    labels = {"app": name}
    cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1", "lowWatermark": "500m"}
    pod = {"containers": [{"name": "app", "image": "example.invalid/app:1"}]}
    deployment = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    hpa = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "maxReplicas": 20,
        "metrics": [count_metric(name)],
    }
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "metadata": metadata}
        | {"spec": {"metrics": [cpu]}},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": hpa},
    ]


def job_arguments(index: int, server: Prometheus, began: int, kubeconfig: Path) -> list[str]:
    """What the pod of an index runs, with this test's server and time."""
    (job,) = (one for one in JOB if one["kind"] == "Job")
    given = [
        one.replace("$(JOB_COMPLETION_INDEX)", str(index))
        for one in job["spec"]["template"]["spec"]["containers"][0]["args"]
    ]
    replaced = {"--from": format_time(began), "--to": format_time(began + (COUNT - 1) * STEP)}
    kept = [one for one in given if one.partition("=")[0] not in {"--settings", *replaced}]
    changed = [f"{option}={value}" for option, value in replaced.items()]
    return [*kept, *changed, f"--prometheus={server.url}", f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}"]


def test_the_pods_of_the_job_print_a_line_for_each_service(
    server: Prometheus, began: int, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (count,) = (one["spec"]["completions"] for one in JOB if one["kind"] == "Job")
    for index in range(count):
        cli.main(job_arguments(index, server, began, kubeconfig))
    rows = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda row: row["policy"]["name"])
    assert [row["policy"] for row in rows] == [{"namespace": NAMESPACE, "name": name} for name in NAMES]
    assert "has no value of it" in rows[0]["error"]
    for row in rows[1:]:
        assert 2 < row["podHours"]["policy"] < 20


def test_without_a_shard_the_services_are_ranked(
    server: Prometheus, began: int, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [one for one in job_arguments(0, server, began, kubeconfig) if not one.startswith("--shard")]
    assert cli.main([*arguments, "-o", "json"]) == cli.OK
    report = json.loads(capsys.readouterr().out)
    assert [one["policy"]["name"] for one in report["services"]] == ["cart", "web"]
    assert [one["policy"] for one in report["failed"]] == [f"{NAMESPACE}/api"]
    assert "has no value of it" in report["failed"][0]["error"]
    assert report["run"]["from"] == format_time(began)
    for one in report["services"]:
        assert 2 < one["podHours"]["policy"] < 20
