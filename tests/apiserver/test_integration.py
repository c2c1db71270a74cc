"""Behind the real aggregator: its proxy, its ConfigMap, our Secret and caBundle. Its wire is in tests/e2e."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from lab.harness import objects
from lab.harness.client import Client, Response
from lab.harness.control_plane import ControlPlane
from tests.apiserver import snapshots
from tests.apiserver.conftest import TIMING, Service, running

pytestmark = pytest.mark.integration

GROUP = "custom.metrics.k8s.io"
NAMES = tuple(f"{version}.{GROUP}" for version in ("v1beta1", "v1beta2"))
METRIC = f"/apis/{GROUP}/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/checkout/effective_cpu"
SERVICE = "effective-load"


@pytest.fixture
def registered(api_server: ControlPlane, api_namespace: str) -> Iterator[str]:
    """APIServices that point at our Service, without a CA bundle yet, and our Secret; returns the namespace."""
    metadata = {"name": "effective-load-tls", "namespace": api_namespace}
    api_server.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    yield api_namespace
    for name in NAMES:
        api_server.client.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")


@pytest.fixture
async def session(api_server: ControlPlane) -> AsyncIterator[Session]:
    async with await Session.open(str(api_server.kubeconfig_for("adapter", "system:masters"))) as session:
        yield session


@pytest.fixture
async def service(
    api_server: ControlPlane, session: Session, options: ServerSettings, registered: str
) -> AsyncIterator[Service]:
    options = options.model_copy(update={"tls": Tls(namespace=registered)})
    service = Service(None, session, options, timing=TIMING | {"certificate_seconds": 0.2})  # type: ignore[arg-type]  # the real one
    pods = [snapshots.assessed("p1")]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now(), pods=pods)))
    async with running(service):
        await service.ready()
        await asyncio.to_thread(register, api_server.client, registered, service.server.door.port)
        yield service


def register(client: Client, namespace: str, port: int) -> None:
    client.create(objects.external_service(SERVICE, namespace, port))
    for name, priority in zip(NAMES, (100, 200), strict=True):
        version, _, group = name.partition(".")
        where = (namespace, SERVICE, port)
        client.create(objects.api_service(group, version, where, priority=priority, skip=False))


async def get(client: Client, path: str, **headers: str) -> Response:
    return await asyncio.to_thread(client.raw, path, headers)


async def authorities(client: Client, namespace: str) -> set[str]:
    """The CA of the Secret, and those of the APIServices, in base64."""
    secret = client.get(f"/api/v1/namespaces/{namespace}/secrets/effective-load-tls")
    paths = [f"/apis/apiregistration.k8s.io/v1/apiservices/{name}" for name in NAMES]
    return {secret.get("data", {}).get("ca.crt"), *(client.get(path)["spec"].get("caBundle") for path in paths)}


async def test_the_aggregator_trusts_the_ca_that_it_was_given_and_follows_one_of_an_emptied_secret(
    api_server: ControlPlane, service: Service, registered: str
) -> None:
    client = api_server.client
    for name in NAMES:
        await asyncio.to_thread(api_server.wait_api_service, name)
    answer = await get(client, METRIC)
    assert (answer.status, answer.json()["items"][0]["value"]) == (200, "1500m")
    service.sentence = "the watch of pods has been silent for 95 s"
    answer = await get(client, METRIC)
    assert (answer.status, answer.json()["message"]) == (503, service.sentence)
    service.sentence = None

    [before] = await authorities(client, registered)
    secret = f"/api/v1/namespaces/{registered}/secrets/effective-load-tls"
    await asyncio.to_thread(client.patch, secret, {"data": None})
    async with asyncio.timeout(60):
        while len(found := await authorities(client, registered)) > 1 or before in found:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        while (await get(client, METRIC)).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
