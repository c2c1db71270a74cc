"""What `effective-load migrate` makes of the four examples scales on the real control plane."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.cli import OK, main
from adapter.migrate.command import SETTINGS_FILE
from harness.prometheus import Exporter, Prometheus
from harness.workloads import Workloads
from tests.e2e.conftest import FAST, MakeAdapter

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "migrate"
ORIGINALS = sorted(one for one in EXAMPLES.glob("*.yaml") if ".migrated" not in one.name)
COUNTS = {"orders": 4, "mailer": 8, "storefront": 2, "thumbnails": 4}
GAUGES = {
    "orders_in_flight": 200,  # 50 a pod, above 40: ⌈200 / 40⌉ = 5, and a multiple of 2
    'mails_queued{service="mailer"}': 950,  # ⌈950 / 100⌉
    'thumbnails_waiting{service="thumbnails"}': 130,  # ⌈130 / 20⌉
}
WANTED = {"orders": 6, "mailer": 10, "thumbnails": 7, "storefront": 4}  # 90 a pod of two is ⌈180 / 50⌉


def settings_of(folder: Path, prometheus: Prometheus) -> Mapping[str, Any]:
    """The settings that the migration asks for, with the real server and the query that somebody has to write."""
    part = yaml.safe_load((folder / SETTINGS_FILE).read_text())["prometheus"]
    assert [server["name"] for server in part["servers"]] == ["prometheus"]
    part["servers"][0]["url"] = prometheus.url
    [query] = part["queries"]
    part["queries"] = [query | {"query": "sum(orders_in_flight)", "intervalSeconds": 1}]
    return {**FAST, "prometheus": part}


def test_four_migrated_examples_scale(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus, tmp_path: Path
) -> None:
    assert main(["migrate", *map(str, ORIGINALS), "--out", str(tmp_path)]) == OK
    for name, count in COUNTS.items():
        workloads.deployment(name, count, wait=False)
    for name, count in COUNTS.items():
        workloads.wait_ready(name, count)
    loads = {
        f'http_requests_in_flight{{namespace="{workloads.namespace}",pod="{pod}"}}': 90
        for pod in workloads.pod_names("storefront")
    }
    exporter.set(GAUGES | loads)
    make_adapter(settings_of(tmp_path, prometheus))
    for name in COUNTS:
        for item in yaml.safe_load_all((tmp_path / f"{name}.yaml").read_text()):
            item["metadata"]["namespace"] = workloads.namespace
            workloads.client.create(item)
    for name, count in WANTED.items():
        workloads.wait_replicas(name, count)
    for name in COUNTS:
        workloads.wait_condition(name, "ScalingActive", contains="desired_replicas")
