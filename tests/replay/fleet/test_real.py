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
from lab.harness.client import ApiError, Client
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import until
from tests.manifests.rendering import documents
from tests.replay.history.kit import exposition

pytestmark = pytest.mark.integration

NAMESPACE = "replay-all"
NAMES = ("api", "cart", "web")
STEP, COUNT = 15, 120
JOB = documents(MANIFESTS / "examples" / "replay-job.yaml")
NIGHTLY = documents(MANIFESTS / "examples" / "recommendation.yaml")
NOTE = "effective-load.io/recommendation"


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
    rights = (one for one in [*JOB, *NIGHTLY] if one["kind"] not in {"Job", "CronJob"})
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


def job_arguments(index: int, server: Prometheus, began: int, kubeconfig: Path, *, nightly: bool = False) -> list[str]:
    """What the pod of an index runs, with this test's servers, time and number of parts."""
    (job,) = (one for one in (NIGHTLY if nightly else JOB) if one["kind"] in {"Job", "CronJob"})
    spec = job["spec"]["jobTemplate"]["spec"] if nightly else job["spec"]
    given = spec["template"]["spec"]["containers"][0]["args"]
    replaced = {
        "--shard": f"{index}/2",
        "--settings": None,
        "--from": format_time(began),
        "--to": format_time(began + (COUNT - 1) * STEP),
    }
    kept = [one for one in given if one.partition("=")[0] not in replaced]
    changed = [f"{option}={value}" for option, value in replaced.items() if value]
    return [*kept, *changed, f"--prometheus={server.url}", f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}"]


def test_the_parts_of_the_job_merge_into_the_ranked_report(
    server: Prometheus, began: int, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"part-{index}.json" for index in range(2)]
    assert cli.main(job_arguments(0, server, began, kubeconfig)) == cli.OK
    files[0].write_text(capsys.readouterr().out)
    assert cli.main([*job_arguments(1, server, began, kubeconfig), "--part", str(files[1])]) == cli.OK
    assert cli.main(["replay", "--merge", *map(str, files), "-o", "json"]) == cli.OK
    report = json.loads(capsys.readouterr().out)
    assert [one["policy"]["name"] for one in report["services"]] == ["cart", "web"]
    assert [one["policy"] for one in report["failed"]] == [f"{NAMESPACE}/api"]
    assert "has no value of it" in report["failed"][0]["error"]
    assert report["run"]["from"] == format_time(began)
    for one in report["services"]:
        assert 2 < one["podHours"]["policy"] < 20


def test_the_policies_of_a_folder_are_replayed_without_a_cluster(
    server: Prometheus, began: int, tmp_path: Path, capsys
) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": "List", "items": service(name)}))
    span = ["--from", str(began), "--to", str(began + (COUNT - 1) * STEP)]
    assert cli.main(["replay", "--all", "--policies", str(tmp_path), "--prometheus", server.url, *span]) == cli.OK
    text = capsys.readouterr().out
    assert "Replay of 3 services" in text
    assert f"NOT REPLAYED\n{NAMESPACE}/api: cpu: " in text


@pytest.fixture(scope="module")
def nightly(api_server: ControlPlane, kubeconfig: Path) -> Client:
    """The client of the nightly Job, once its admission policy is in force."""
    assert kubeconfig
    client = api_server.client_with_token(api_server.token("effective-load", "effective-load-recommendation"))
    change = {"metadata": {"labels": {"tried": "yes"}}}
    until(
        lambda: "may write the annotation" in refusal(client, change, dry=True),
        60.0,
        lambda: f"the admission policy is not in force: {refusal(client, change, dry=True)!r}",
    )
    return client


def refusal(client: Client, body: dict[str, Any], *, dry: bool = False) -> str:
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{NAMESPACE}/watermarkpolicies/web"
    try:
        client.patch(f"{path}{'?dryRun=All' if dry else ''}", body, "merge")
    except ApiError as error:
        return error.message
    return ""


def test_the_nightly_job_writes_its_recommendation_where_people_look(
    server: Prometheus, began: int, api_server: ControlPlane, nightly: Client
) -> None:
    assert nightly
    token = api_server.token("effective-load", "effective-load-recommendation")
    own = api_server.kubeconfig_with_token(token, "kubeconfig-recommendation")
    before = {one["metadata"]["name"]: one for one in policies(api_server)}
    for index in range(2):
        assert cli.main(job_arguments(index, server, began, own, nightly=True)) == cli.OK
    after = {one["metadata"]["name"]: one for one in policies(api_server)}
    assert {name: one["spec"] for name, one in after.items()} == {name: one["spec"] for name, one in before.items()}
    notes = {name: one["metadata"].get("annotations", {}).get(NOTE, "") for name, one in after.items()}
    assert notes["api"] == ""
    for name in NAMES[1:]:
        assert notes[name].startswith(f"{format_time(began + (COUNT - 1) * STEP)}: ")
        assert "the present policy" in notes[name] or "cpu: highWatermark " in notes[name]


def policies(api_server: ControlPlane) -> list[dict[str, Any]]:
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{NAMESPACE}/watermarkpolicies"
    return list(api_server.client.get(path)["items"])


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1500m"}]}},
        {"metadata": {"annotations": {"example.com/team": "shop"}}},
        {"metadata": {"annotations": {NOTE: "x", "effective-load.io/pause": "true"}}},
        {"metadata": {"labels": {"app": "web"}}},
        {"metadata": {"finalizers": ["example.com/kept"]}},
    ],
)
def test_the_nightly_job_may_write_nothing_else(nightly: Client, change: dict[str, Any]) -> None:
    assert "may write the annotation effective-load.io/recommendation, and nothing else" in refusal(nightly, change)


def test_the_job_that_only_replays_may_not_annotate(api_server: ControlPlane, kubeconfig: Path) -> None:
    assert kubeconfig
    client = api_server.client_with_token(api_server.token("effective-load", "effective-load-replay"))
    assert "cannot patch resource" in refusal(client, {"metadata": {"annotations": {NOTE: "x"}}})
