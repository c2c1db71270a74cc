"""EndpointSlices of a real API server, through the reflector."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.registries.kubernetes import Endpoints, Listing, decode_listing
from adapter.telemetry.metrics import Metrics
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads
from tests.waiting import eventually

pytestmark = pytest.mark.integration

UID = "2f4c1f66-0b0e-4a3e-9a58-2f9a7a3f0001"
GROUP = "/apis/discovery.k8s.io/v1"


@asynccontextmanager
async def watching(cluster: ControlPlane, path: str) -> AsyncIterator[Endpoints]:
    """The endpoints of one path, followed."""
    endpoints = Endpoints()
    async with await Session.open(str(cluster.kubeconfig)) as session:
        reflector: Reflector[Listing] = Reflector(
            session, path, decode_listing, name="endpointslices", on_event=endpoints.change, metrics=Metrics()
        )
        task = asyncio.create_task(reflector.run())
        try:
            await eventually(reflector.synced.is_set)
            yield endpoints
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def a_slice(namespace: str, name: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "namespace": namespace, "name": "web-1", "uid": UID}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": conditions, "targetRef": target}],
        "ports": [],
    }


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_pod_is_followed_through_its_slices(
    api_server: ControlPlane, api_namespace: str, everywhere: bool
) -> None:
    client, own = api_server.client, f"{GROUP}/namespaces/{api_namespace}/endpointslices"
    client.create(a_slice(api_namespace, "one"))  # the API server keeps unset conditions, which mean that it serves
    async with watching(api_server, f"{GROUP}/endpointslices" if everywhere else own) as endpoints:

        async def until(word: bool | None) -> None:
            await eventually(lambda: endpoints.endpoint_serving(api_namespace, "web-1", UID) is word)

        await until(True)
        await asyncio.to_thread(client.apply, a_slice(api_namespace, "one", ready=False, serving=False))
        await until(False)
        await asyncio.to_thread(client.create, a_slice(api_namespace, "two", ready=True))
        await until(True)
        await asyncio.to_thread(client.delete, f"{own}/two")
        await until(False)
        await asyncio.to_thread(client.delete, f"{own}/one")
        await until(None)


async def test_the_endpoint_controller_says_when_a_ready_gate_shuts(
    control_plane: ControlPlane, workloads: Workloads
) -> None:
    """A Service of a Deployment: both pods serve, then one is Ready no more."""
    await asyncio.to_thread(workloads.deployment, "web", 2)
    service = workloads.item("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await asyncio.to_thread(workloads.client.create, service)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in workloads.pods("web")}
    async with watching(control_plane, f"{GROUP}/namespaces/{workloads.namespace}/endpointslices") as endpoints:

        def words() -> list[bool | None]:
            return [endpoints.endpoint_serving(workloads.namespace, name, uid) for name, uid in pods.items()]

        await eventually(lambda: words() == [True, True])
        await asyncio.to_thread(workloads.set_conditions, next(iter(pods)), Ready=False)
        await eventually(lambda: words() == [False, True])
