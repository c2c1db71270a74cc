"""A missing right to create reviews on a real API server: the answer names the right and its binding."""

from collections.abc import Iterator

import pytest

from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds, manifests
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import until

pytestmark = pytest.mark.integration

BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/effective-load-authorization"
PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/watermarkpolicies.effective-load.io/web/effective_pods"


@pytest.fixture
def adapter(api_server: ControlPlane) -> Iterator[AdapterProcess]:
    """A server with the rights of the manifests except those to create reviews."""
    install_crds(api_server)
    kubeconfig = account_kubeconfig(api_server)
    api_server.client.delete(BINDING)
    with AdapterProcess(api_server, kubeconfig=kubeconfig, name="adapter-rights", register=False) as process:
        yield process
    api_server.watched.remove(process.component)


def test_a_missing_right_to_create_reviews_is_reported_with_its_binding(
    api_server: ControlPlane, adapter: AdapterProcess
) -> None:
    proxy = api_server.as_aggregator(adapter.port, "bob", "system:authenticated")
    refused = proxy.raw(PATH)
    assert refused.status == 503
    text = refused.json()["message"]
    assert 'cannot create resource "subjectaccessreviews"' in text
    assert "system:serviceaccount:effective-load:effective-load" in text
    assert "ClusterRoleBinding effective-load-authorization" in text
    ready = adapter.get("/readyz")
    assert (ready.status, "[!]authorization: " in ready.text) == (200, True)
    for item in manifests("ClusterRoleBinding"):
        if item["metadata"]["name"] == "effective-load-authorization":
            api_server.client.apply(item)
    until(lambda: proxy.raw(PATH).status == 403, 30, adapter.logs)
    assert adapter.get("/readyz").text == "ok"
