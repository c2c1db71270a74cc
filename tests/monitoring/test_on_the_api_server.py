"""The manifests for the Prometheus operator, on a real API server with the operator's own definitions."""

from collections.abc import Iterator

import pytest

from lab.harness import objects
from lab.harness.client import condition_true
from lab.harness.control_plane import ControlPlane
from lab.harness.definitions import PROMETHEUS_OPERATOR
from tests.manifests.rendering import MANIFESTS, documents

pytestmark = pytest.mark.integration

FILES = [
    MANIFESTS / "components" / "alerts" / "prometheusrule.yaml",
    MANIFESTS / "components" / "monitoring" / "podmonitor.yaml",
]


@pytest.fixture(scope="module")
def operator(api_server: ControlPlane) -> Iterator[ControlPlane]:
    """An API server that knows the operator's kinds."""
    client = api_server.client
    client.apply(objects.namespace("effective-load"))
    definitions = PROMETHEUS_OPERATOR.load()
    for one in definitions:
        client.apply(one)
    for one in definitions:
        client.wait_for(client.path(one), lambda item: condition_true(item, "Established"), 30, "CRD established")
    yield api_server
    for one in definitions:
        client.delete(client.path(one))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_operators_definitions_accept_each_object(operator: ControlPlane, file: object) -> None:
    for item in documents(file):
        assert operator.client.apply(item, dry_run=True)["metadata"]["name"] == "effective-load"
