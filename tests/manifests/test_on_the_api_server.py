"""The manifests on the real API server: it accepts them, and they grant exactly the rights that the server needs."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.apiserver.certificates import CertificateManager
from adapter.apiserver.status import CertificateError
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from adapter.telemetry.metrics import Metrics
from lab.harness.client import ApiError, Client
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import until
from tests.apiserver.certs import root
from tests.manifests.rendering import MANIFESTS, documents, render

pytestmark = pytest.mark.integration

EXTERNAL = MANIFESTS / "overlays" / "external-metrics"
FIRST = {"CustomResourceDefinition": 0, "Namespace": 1}
# APIServices would make this shared API server call a server that does not run.
NOT_KEPT = {"APIService", "Deployment"}
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "11111111-1111-1111-1111-111111111111"}


@pytest.fixture(scope="module")
def applied(api_server: ControlPlane) -> Iterator[ControlPlane]:
    """The rendered manifests, applied for the body and then deleted."""
    objects = sorted(render(EXTERNAL), key=lambda item: FIRST.get(item["kind"], 2))
    kept = [item for item in objects if item["kind"] not in NOT_KEPT]
    for item in kept:
        api_server.client.apply(item)
    yield api_server
    for item in kept:
        if item["kind"] not in FIRST:
            api_server.client.delete(item)


@pytest.fixture(scope="module")
def server(applied: ControlPlane) -> Iterator[Client]:
    """A client with the rights of the server's ServiceAccount."""
    client = applied.client_with_token(applied.token("effective-load", "effective-load"))
    yield client
    client.close()


@pytest.mark.parametrize("file", sorted((MANIFESTS / "examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_accepted(applied: ControlPlane, file: object) -> None:
    for item in documents(file):  # type: ignore[arg-type]
        applied.client.apply(item | {"metadata": {"namespace": "default", **item["metadata"]}}, dry_run=True)


def test_the_server_fills_its_secret_and_one_that_was_deleted_comes_back_with_the_manifests(
    applied: ControlPlane,
) -> None:
    kubeconfig = applied.kubeconfig_with_token(applied.token("effective-load", "effective-load"), "kubeconfig-secret")
    settings = ServerSettings(tls=Tls(namespace="effective-load"))
    path, files = "/api/v1/namespaces/effective-load/secrets/effective-load-tls", MANIFESTS / "base" / "secret.yaml"

    async def keep() -> None:
        async with await Session.open(str(kubeconfig)) as session:
            await CertificateManager(session, settings, Metrics(), lambda: None).sync_secret()

    applied.client.delete(path)
    with pytest.raises(CertificateError) as missing:
        asyncio.run(keep())
    assert str(missing.value) == (
        "Secret effective-load-tls of namespace effective-load, which keeps the serving certificate, does not exist, "
        "and the server may not create it: apply the manifests again"
    )
    applied.client.apply(*documents(files))
    asyncio.run(keep())
    filled = applied.client.get(path)["data"]
    assert filled.keys() == {"tls.crt", "tls.key", "ca.crt", "ca.key"}
    applied.client.apply(*documents(files))
    assert applied.client.get(path)["data"] == filled


# --- the right to patch APIServices ---


@pytest.fixture
def api_service(applied: ControlPlane, server: Client) -> Iterator[str]:
    """The path of an APIService of the server, without a Service behind it, once the admission policy is in force."""
    (item,) = documents(MANIFESTS / "components" / "external-metrics" / "apiservice.yaml")
    item["spec"]["service"]["name"] = "absent"
    item["spec"]["insecureSkipTLSVerify"] = True
    applied.client.apply(item)
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{item['metadata']['name']}"
    try:
        until(lambda: refused(server, f"{path}?dryRun=All", {"metadata": {"labels": {"a": "b"}}}), 30, lambda: "open")
        yield path
    finally:
        applied.client.delete(path)


def refused(client: Client, path: str, body: object) -> str:
    """The message with which the API server refuses a patch as forbidden; empty if it takes it."""
    try:
        client.patch(path, body)
    except ApiError as error:
        return error.message if error.status == 403 else ""
    return ""


def test_the_server_writes_ca_bundle_of_its_apiservices_and_takes_the_other_way_to_trust_away(
    applied: ControlPlane, server: Client, api_service: str, tmp_path: Path
) -> None:
    before = applied.client.get(api_service)["spec"]
    bundle = base64.b64encode(root(tmp_path).pem.encode()).decode()
    server.patch(api_service, {"spec": {"caBundle": bundle, "insecureSkipTLSVerify": None}})
    assert applied.client.get(api_service)["spec"] == {
        **{key: value for key, value in before.items() if key != "insecureSkipTLSVerify"},
        "caBundle": bundle,
    }
    assert refused(server, api_service, {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}})


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("spec.service", {"spec": {"service": {"name": "mine", "namespace": "default"}}}),
        ("spec.service", {"spec": {"service": {"port": 8443}}}),
        ("spec.groupPriorityMinimum", {"spec": {"groupPriorityMinimum": 20000}}),
        ("spec.versionPriority", {"spec": {"versionPriority": 1}}),
        ("metadata.labels", {"metadata": {"labels": {"a": "b"}}}),
        ("metadata.annotations", {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}}),
        ("metadata.finalizers", {"metadata": {"finalizers": ["example.com/stay"]}}),
        ("metadata.ownerReferences", {"metadata": {"ownerReferences": [OWNER]}}),
    ],
)
def test_any_other_patch_of_an_apiservice_is_refused_to_the_server_with_the_field(
    applied: ControlPlane, server: Client, api_service: str, what: str, change: object
) -> None:
    before = applied.client.get(api_service)["spec"]
    message = refused(server, api_service, change)
    expected = f"may change spec.caBundle of APIServices, and nothing else of them; this changes {what}"
    assert message.endswith(expected)
    assert applied.client.get(api_service)["spec"] == before
    assert not refused(applied.client, f"{api_service}?dryRun=All", {"metadata": {"labels": {"a": "b"}}}), "only it"
