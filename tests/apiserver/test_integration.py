"""Behind the real aggregator: its proxy, its ConfigMap, our Secret and caBundle. Its wire is in tests/e2e."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator

import pytest

from adapter.apiserver import certificates
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
    pods = [snapshots.reading("p1", cpu=100)]
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


async def available(api_server: ControlPlane) -> None:
    for name in NAMES:
        await asyncio.to_thread(api_server.wait_api_service, name)


async def get(client: Client, path: str, **headers: str) -> Response:
    return await asyncio.to_thread(client.raw, path, headers)


async def test_the_aggregator_trusts_the_authority_it_was_given_and_proxies_to_us(
    api_server: ControlPlane, service: Service, registered: str
) -> None:
    await available(api_server)
    answer = await get(api_server.client, METRIC)
    assert answer.status == 200
    assert answer.json()["items"][0]["value"] == "1500m"

    secret = api_server.client.get(f"/api/v1/namespaces/{registered}/secrets/effective-load-tls")
    for name in NAMES:
        spec = api_server.client.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")["spec"]
        assert spec["caBundle"] == secret["data"]["ca.crt"]
    pair = base64.b64decode(secret["data"]["tls.crt"])
    assert (
        certificates.KeyPair(pair, b"").leaf.subject.rfc4514_string().removeprefix("CN=")
        == f"{SERVICE}.{registered}.svc"
    )


async def test_the_error_message_reaches_the_caller(api_server: ControlPlane, service: Service) -> None:
    await available(api_server)
    service.sentence = "the watch of pods has been silent for 95 s"
    answer = await get(api_server.client, METRIC)
    assert (answer.status, answer.json()["message"]) == (503, service.sentence)


async def test_secret_emptied_by_hand_is_filled_and_the_aggregator_follows(
    api_server: ControlPlane, service: Service, registered: str
) -> None:
    await available(api_server)
    path = f"/api/v1/namespaces/{registered}/secrets/effective-load-tls"
    before = api_server.client.get(path)["data"]["ca.crt"]
    await asyncio.to_thread(api_server.client.patch, path, {"data": None})
    async with asyncio.timeout(60):
        while api_server.client.get(path).get("data", {}).get("ca.crt") in {None, before}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    registration = f"/apis/apiregistration.k8s.io/v1/apiservices/{NAMES[0]}"
    async with asyncio.timeout(60):
        while api_server.client.get(registration)["spec"]["caBundle"] == before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        while (await get(api_server.client, METRIC)).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
