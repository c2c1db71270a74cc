"""Behind the real aggregator: its probes and proxy, its reviews, its ConfigMap, our Secret and caBundle."""

import asyncio
import base64
import contextlib
import dataclasses
import http.client
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from adapter.apiserver import certificates
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from lab.harness import objects
from lab.harness.client import Client, Response, tls_context
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
    service = Service(None, session, options, timing=dataclasses.replace(TIMING, certificate=0.2))  # type: ignore[arg-type]  # the real one
    pods = [snapshots.reading("p1", cpu=100)]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now(), pods=pods)))
    async with running(service):
        await service.ready()
        await asyncio.to_thread(register, api_server.client, registered, service.server.port)
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
    pair = base64.b64decode(secret["data"]["tls.crt"]).decode()
    assert (
        certificates.KeyPair(pair, "").leaf.subject.rfc4514_string().removeprefix("CN=")
        == f"{SERVICE}.{registered}.svc"
    )


async def test_selectors_and_stars_survive_the_real_proxy(api_server: ControlPlane, service: Service) -> None:
    await available(api_server)
    path = f"/apis/{GROUP}/v1beta1/namespaces/shop/pods/*/effective_cpu"
    answer = await get(api_server.client, f"{path}?labelSelector=tier+notin+(a,b),app%3Dweb&metricLabelSelector=policy")
    assert [item["describedObject"]["name"] for item in answer.json()["items"]] == ["p1"]
    answer = await get(api_server.client, f"{path}?labelSelector=app%3Dother")
    assert answer.status == 404


async def test_the_error_message_reaches_the_caller(api_server: ControlPlane, service: Service) -> None:
    await available(api_server)
    service.sentence = "the watch of pods has been silent for 95 s"
    answer = await get(api_server.client, METRIC)
    assert (answer.status, answer.json()["message"]) == (503, service.sentence)


async def test_the_aggregator_discovers_our_metrics(api_server: ControlPlane, service: Service) -> None:
    await available(api_server)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with asyncio.timeout(60):
        while True:
            groups = (await get(api_server.client, "/apis", Accept=accept)).json()["items"]
            versions: list[dict[str, Any]] = next((g["versions"] for g in groups if g["metadata"]["name"] == GROUP), [])
            if [v["version"] for v in versions if v.get("resources")] == ["v1beta2", "v1beta1"]:
                break
            await asyncio.sleep(0.2)
    assert {version["freshness"] for version in versions} == {"Current"}
    parents = {resource["resource"]: resource for resource in versions[0]["resources"]}
    below = {sub["subresource"] for sub in parents["watermarkpolicies.effective-load.io"]["subresources"]}
    assert {"desired_replicas", "effective_pods", "effective_cpu"} <= below


async def test_a_user_needs_the_right_that_the_api_server_knows_of(api_server: ControlPlane, service: Service) -> None:
    """A direct request, without the aggregator's own authorization."""
    aggregator = api_server.as_aggregator(service.server.port, "reader@example.com")
    refused = await get(aggregator, METRIC)
    assert refused.status == 403
    assert refused.json()["message"].startswith(
        'watermarkpolicies.effective-load.io.custom.metrics.k8s.io "checkout" is forbidden: User "reader@example.com" '
        'cannot get resource "watermarkpolicies.effective-load.io/effective_cpu" in API group "custom.metrics.k8s.io" '
        'in the namespace "shop"'
    )
    assert (await get(aggregator, f"/apis/{GROUP}/v1beta2")).status == 200  # system:discovery

    with granted(api_server.client, {"kind": "User", "name": "reader@example.com", "apiGroup": RBAC}):
        service.monotonic.now += 11
        assert (await get(aggregator, METRIC)).status == 200


RBAC = "rbac.authorization.k8s.io"


@contextlib.contextmanager
def granted(client: Client, subject: dict[str, Any]) -> Iterator[None]:
    """A cluster-wide right to read our metrics; RBAC takes a moment to apply it."""
    resource = "watermarkpolicies.effective-load.io/*"
    name = "reads-effective-load"
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {
                "apiGroups": [GROUP],
                "resources": ["watermarkpolicies.effective-load.io/effective_cpu", resource],
                "verbs": ["get"],
            }
        ],
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    client.create(role)
    client.create(binding)
    try:
        wait_allowed(client, subject)
        yield
    finally:
        client.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{name}")
        client.delete(f"/apis/{RBAC}/v1/clusterroles/{name}")


def wait_allowed(client: Client, subject: dict[str, Any]) -> None:
    import time

    user = subject["name"]
    if subject["kind"] == "ServiceAccount":
        user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    attributes = {
        "verb": "get",
        "group": GROUP,
        "resource": "watermarkpolicies.effective-load.io",
        "subresource": "effective_cpu",
        "namespace": "shop",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    deadline = time.monotonic() + 60
    while not client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_identity_is_taken_from_the_front_proxy_alone(api_server: ControlPlane, service: Service) -> None:
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for stranger in (
        api_server.anonymous(service.server.port),
        user(api_server, service, "front-proxy-client"),
    ):
        with pytest.raises((OSError, http.client.HTTPException)):
            await get(stranger, METRIC, **headers)
    other = api_server.as_aggregator(service.server.port, "admin", "system:masters", name="somebody-else")
    assert (await get(other, METRIC)).status == 401
    proxy = api_server.as_aggregator(service.server.port, "admin", "system:masters")
    assert (await get(proxy, METRIC)).status == 200


def user(api_server: ControlPlane, service: Service, name: str, *groups: str) -> Client:
    """A client of ours with a certificate of the cluster's CA."""
    pair = api_server.pki.client(name, *groups)
    return api_server.anonymous(service.server.port, tls_context(None, pair.cert_file, pair.key_file))


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
