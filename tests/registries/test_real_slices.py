"""EndpointSlices of a real API server, through the reflector."""

import asyncio

import pytest

from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.registries.kubernetes import Endpoints, Listing, decode_listing
from adapter.telemetry.metrics import Metrics
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads
from tests.waiting import eventually

pytestmark = pytest.mark.integration


async def test_the_endpoint_controller_says_when_a_ready_gate_shuts(
    control_plane: ControlPlane, workloads: Workloads
) -> None:
    """A Service of a Deployment: both pods serve, then one is Ready no more."""
    await asyncio.to_thread(workloads.deployment, "web", 2)
    service = workloads.item("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await asyncio.to_thread(workloads.client.create, service)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in workloads.pods("web")}
    endpoints, path = Endpoints(), f"/apis/discovery.k8s.io/v1/namespaces/{workloads.namespace}/endpointslices"

    def words() -> list[bool | None]:
        return [endpoints.endpoint_serving(workloads.namespace, name, uid) for name, uid in pods.items()]

    async with await Session.open(str(control_plane.kubeconfig)) as session:
        reflector: Reflector[Listing] = Reflector(
            session, path, decode_listing, name="endpointslices", on_event=endpoints.change, metrics=Metrics()
        )
        task = asyncio.create_task(reflector.run())
        try:
            await eventually(lambda: words() == [True, True])
            await asyncio.to_thread(workloads.set_conditions, next(iter(pods)), Ready=False)
            await eventually(lambda: words() == [False, True])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
