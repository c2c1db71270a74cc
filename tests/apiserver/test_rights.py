"""A missing right to create reviews on a real API server: the answer names the right and its binding."""

from collections.abc import Iterator

import pytest

from harness.adapter import AdapterProcess, account_kubeconfig, install_crds, manifests
from harness.control_plane import ControlPlane
from harness.workloads import until

pytestmark = pytest.mark.integration

BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/effective-load-auth-delegator"
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
    bearer = api_server.anonymous(adapter.port, Authorization=f"Bearer {api_server.token('default', 'reader')}")
    refused, unknown = proxy.raw(PATH), bearer.raw(PATH)
    assert (refused.status, unknown.status) == (503, 503)
    # Who shows a token may be anybody: what is missing here is for the log.
    assert unknown.json()["message"] == "the token cannot be verified now; the server's log says why"
    for said, plural in ((refused.json()["message"], "subjectaccessreviews"), (adapter.logs(), "tokenreviews")):
        assert f'cannot create resource "{plural}"' in said.replace('\\"', '"')
        assert "system:serviceaccount:effective-load:effective-load" in said
        assert "ClusterRoleBinding effective-load-auth-delegator" in said
    ready = adapter.get("/readyz")
    assert (ready.status, "[!]authorization: " in ready.text) == (200, True)
    [why] = [line for line in adapter.logs().splitlines() if '"authorization (warning)"' in line]
    assert all(plural in why for plural in ("subjectaccessreviews", "tokenreviews"))
    for item in manifests("ClusterRoleBinding"):
        if item["metadata"]["name"] == "effective-load-auth-delegator":
            api_server.client.apply(item)
    until(lambda: {proxy.raw(PATH).status, bearer.raw(PATH).status} == {403}, 30, adapter.logs)
    assert adapter.get("/readyz").text == "ok"
