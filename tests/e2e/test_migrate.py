"""What `effective-load migrate` makes of the examples scales on the real control plane."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import OK, main
from lab.harness import binaries
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, resource_metric
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import FAST

pytestmark = pytest.mark.versions

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "migrate"
ORIGINALS = sorted(one for one in EXAMPLES.glob("*.yaml") if ".migrated" not in one.name)
BEHAVIOR = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 30}}
COUNTS = {"orders": 4, "storefront": 2, "thumbnails": 4}
GAUGES = {
    "orders_in_flight": 200,  # 50 a pod, above 40: ⌈200 / 40⌉ = 5, and a multiple of 2
    'thumbnails_waiting{service="thumbnails"}': 130,  # ⌈130 / 20⌉
}
WANTED = {"orders": 6, "thumbnails": 7, "storefront": 4}  # 90 a pod of two is ⌈180 / 50⌉


def settings_of(text: str, prometheus: Prometheus) -> Mapping[str, Any]:
    """The settings that the migration's first comment asks for, with the real server."""
    lines = text.partition("---")[0].splitlines()[1:]
    part = yaml.safe_load("\n".join(line.removeprefix("#") for line in lines))["prometheus"]
    assert [server["name"] for server in part["servers"]] == ["prometheus", "prometheus-2"]
    for server in part["servers"]:
        server["url"] = prometheus.url
    return {**FAST, "prometheus": part}


def objects_of(text: str) -> Iterator[Any]:
    """The objects with the query that somebody has to write; where HPAs have no tolerance, without it."""
    kept = [line for line in text.splitlines() if binaries.HPA_TOLERANCE or line.strip() != "tolerance: '0'"]
    written = "\n".join(kept).replace("write_here_the_promql_of_orders_in_flight", "sum(orders_in_flight)")
    return (one for one in yaml.safe_load_all(written) if one)


def tolerances(item: Mapping[str, Any]) -> list[str | None]:
    """The tolerance of each direction that an HPA's behavior has; of another object none."""
    return [(rules or {}).get("tolerance") for rules in item["spec"].get("behavior", {}).values()]


def test_migrated_examples_scale(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["migrate", *map(str, ORIGINALS)]) == OK
    migrated = capsys.readouterr().out
    for name, count in COUNTS.items():
        workloads.deployment(name, count, wait=False)
    for name, count in COUNTS.items():
        workloads.wait_ready(name, count)
    loads = {
        f'http_requests_in_flight{{namespace="{workloads.namespace}",pod="{pod}"}}': 90
        for pod in workloads.pod_names("storefront")
    }
    exporter.set(GAUGES | loads)
    make_adapter(settings_of(migrated, prometheus))
    for item in objects_of(migrated):
        item["metadata"]["namespace"] = workloads.namespace
        created = workloads.client.create(item)
        assert tolerances(created) == tolerances(item)  # the API server drops a field that it does not have
    for name, count in WANTED.items():
        workloads.wait_replicas(name, count)
    for name in COUNTS:
        workloads.wait_condition(name, "ScalingActive", contains="desired_replicas")


def test_a_stored_hpa_is_replaced_by_one_that_its_cluster_keeps_whole(
    workloads: Workloads, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads.hpa("web", metrics=[resource_metric("cpu", utilization=80)], maximum=20, behavior=BEHAVIOR)
    stored = tmp_path / "stored.yaml"
    stored.write_text(yaml.safe_dump(workloads.client.get(workloads.hpa_path("web"))))
    assert main(["migrate", str(stored)]) == OK
    policy, hpa = objects_of(capsys.readouterr().out)
    workloads.client.apply(policy)
    kept = workloads.client.apply(hpa)
    assert tolerances(kept) == tolerances(hpa) == ["0" if binaries.HPA_TOLERANCE else None] * 2
    assert kept["spec"]["metrics"] == hpa["spec"]["metrics"]
