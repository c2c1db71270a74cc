"""EndpointSlices of a real API server, through the reflector."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.registries.kubernetes import Endpoints, Listing, decode_listing
from adapter.telemetry.metrics import Metrics
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads

pytestmark = pytest.mark.integration

UID = "2f4c1f66-0b0e-4a3e-9a58-2f9a7a3f0001"

EVERYWHERE = "/apis/discovery.k8s.io/v1/endpointslices"


def slices_of(namespace: str) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


class Watched:
    """The endpoints of one path, followed."""

    def __init__(self, session: Session, path: str) -> None:
        self._news = asyncio.Event()
        self.endpoints = Endpoints(lambda _namespace, _name: self._news.set())
        self.reflector: Reflector[Listing] = Reflector(
            session, path, decode_listing, name="endpointslices", on_event=self.endpoints.change, metrics=Metrics()
        )

    async def until(self, holds: Callable[[Endpoints], bool]) -> None:
        async with asyncio.timeout(40):
            while not holds(self.endpoints):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(cluster: ControlPlane, path: str) -> AsyncIterator[Watched]:
    async with await Session.open(str(cluster.kubeconfig)) as session:
        watched = Watched(session, path)
        task = asyncio.create_task(watched.reflector.run())
        try:
            await asyncio.wait_for(watched.reflector.synced.wait(), 40)
            yield watched
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


def slices(namespace: str, name: str) -> str:
    return f"{slices_of(namespace)}/{name}"


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_pod_is_followed_through_its_slices(
    api_server: ControlPlane, api_namespace: str, everywhere: bool
) -> None:
    client = api_server.client
    client.create(a_slice(api_namespace, "one", ready=True))
    path = EVERYWHERE if everywhere else slices_of(api_namespace)

    async with watching(api_server, path) as watched:

        def word(endpoints: Endpoints) -> bool | None:
            return endpoints.endpoint_serving(api_namespace, "web-1", UID)

        assert word(watched.endpoints) is True
        await asyncio.to_thread(client.apply, a_slice(api_namespace, "one", ready=False, serving=False))
        await watched.until(lambda endpoints: word(endpoints) is False)
        await asyncio.to_thread(client.create, a_slice(api_namespace, "two", ready=True))
        await watched.until(lambda endpoints: word(endpoints) is True)
        await asyncio.to_thread(client.delete, slices(api_namespace, "two"))
        await watched.until(lambda endpoints: word(endpoints) is False)
        await asyncio.to_thread(client.delete, slices(api_namespace, "one"))
        await watched.until(lambda endpoints: word(endpoints) is None)


async def test_conditions_that_nobody_told_are_read_as_serving(api_server: ControlPlane, api_namespace: str) -> None:
    """The API server keeps them as they are: unset."""
    api_server.client.create(a_slice(api_namespace, "bare"))
    async with watching(api_server, slices_of(api_namespace)) as watched:
        assert watched.endpoints.endpoint_serving(api_namespace, "web-1", UID) is True


async def test_the_endpoint_controller_says_when_a_ready_gate_shuts(
    control_plane: ControlPlane, workloads: Workloads
) -> None:
    """A Service of a Deployment: both pods serve, then one is Ready no more."""
    await asyncio.to_thread(workloads.deployment, "web", 2)
    service = workloads.item("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await asyncio.to_thread(workloads.client.create, service)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in workloads.pods("web")}
    first, second = pods

    async with watching(control_plane, slices_of(workloads.namespace)) as watched:

        def word(name: str) -> bool | None:
            return watched.endpoints.endpoint_serving(workloads.namespace, name, pods[name])

        await watched.until(lambda _: word(first) is True and word(second) is True)
        await asyncio.to_thread(workloads.set_conditions, first, Ready=False)
        await watched.until(lambda _: word(first) is False)
        assert word(second) is True
