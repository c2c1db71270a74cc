"""The component for pushed rosters."""

from pathlib import Path

import pytest
import yaml

from tests.manifests.rendering import MANIFESTS, Object, render

COMPONENT = MANIFESTS / "components" / "registry-push"


@pytest.fixture
def rendered(tmp_path: Path) -> dict[tuple[str, str], Object]:
    parts = {"resources": [str(MANIFESTS / "base")], "components": [str(COMPONENT)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return {(one["kind"], one["metadata"]["name"]): one for one in render(tmp_path)}


def test_its_service_names_every_replica_at_the_port_that_the_pods_have(
    rendered: dict[tuple[str, str], Object],
) -> None:
    every, one = rendered["Service", "effective-load-replicas"]["spec"], rendered["Service", "effective-load"]["spec"]
    assert every["clusterIP"] == "None"
    assert every["publishNotReadyAddresses"] is True
    assert every["selector"] == one["selector"]
    [container] = rendered["Deployment", "effective-load"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert every["ports"] == [{"name": "https", "port": ports["https"], "targetPort": "https"}]


def test_its_role_gives_the_right_to_put_below_registries_and_nothing_else(
    rendered: dict[tuple[str, str], Object],
) -> None:
    role = rendered["ClusterRole", "effective-load-registry-push"]
    assert role["rules"] == [{"nonResourceURLs": ["/registries/*"], "verbs": ["put"]}]
    assert "aggregationRule" not in role
