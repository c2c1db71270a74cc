"""What is rendered is accepted by the real API server, and `check --manifests` has no finding about it."""

from pathlib import Path

import pytest
import yaml

from adapter.commands.check.report import Level
from adapter.commands.check.run import check_files
from adapter.commands.render.command import as_yaml
from lab.harness.adapter import install_crds
from lab.harness.client import Client
from lab.harness.control_plane import ControlPlane
from tests.manifests.rendering import MANIFESTS
from tests.render.kit import Object, average, hpa_of, pair, policy, stock, utilization

pytestmark = [pytest.mark.integration, pytest.mark.versions]

WORKLOAD = (MANIFESTS / "examples" / "checkout.yaml").read_text().partition("---")[0].replace("checkout", "web")
CONTAINER: Object = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "app",
        "target": {"type": "Utilization", "averageUtilization": 60},
    },
}
IN_DEFAULT = {"name": "web", "namespace": "default"}


@pytest.fixture(scope="module")
def client(api_server: ControlPlane) -> Client:
    install_crds(api_server)
    return api_server.client


def findings(folder: Path, *documents: str) -> list[str]:
    """What `check --manifests` says about these documents and the workload."""
    (folder / "all.yaml").write_text("---\n".join([*documents, WORKLOAD]))
    found = check_files(str(folder), None)
    return [one.text for section in found for one in section.findings if one.level is not Level.OK]


@pytest.mark.parametrize("metrics", [[utilization(50)], [average("300Mi"), utilization(70)], [CONTAINER]])
def test_what_takes_the_place_of_an_hpa_is_accepted_and_has_no_fault(
    client: Client, tmp_path: Path, metrics: list[Object]
) -> None:
    hpa = stock(*metrics, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
    rendered = pair(client.apply({**hpa, "metadata": IN_DEFAULT}, dry_run=True))  # as kubectl would print it
    for item in rendered.objects:
        client.apply(item, dry_run=True)
    assert findings(tmp_path, as_yaml([rendered])) == []


@pytest.mark.parametrize("strategy", ["Watermark", "Ratio", "Step"])
def test_the_hpa_of_a_policy_is_accepted_and_has_no_fault(client: Client, tmp_path: Path, strategy: str) -> None:
    target = [{"name": "cpu", "resource": {"name": "cpu", "relativeTo": "Limit"}, "target": "60%"}]
    written = policy(strategy=strategy, **({} if strategy == "Watermark" else {"metrics": target}))
    rendered = hpa_of(written)
    for item in (written, *rendered.objects):
        client.apply({**item, "metadata": IN_DEFAULT}, dry_run=True)
    assert findings(tmp_path, yaml.safe_dump(written), as_yaml([rendered])) == []
