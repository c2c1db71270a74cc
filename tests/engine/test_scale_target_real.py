"""References to scale targets on the real API server: admission, requests, and kinds defined later."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from adapter.engine import Engine
from adapter.kube.session import Session
from adapter.runtime.http import Reply
from adapter.settings import Settings
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane
from tests.engine.kit import until
from tests.engine.test_scale_target import ADMITTED

pytestmark = [pytest.mark.integration, pytest.mark.builds("etcd", "kube-apiserver")]

"""What no HPA in Kubernetes 1.36 can carry."""
METRIC = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "x"},
        "metric": {"name": "desired_replicas"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}


class Recording(Session):
    """A session that records the paths of its requests."""

    asked: list[str]

    async def request(self, method: str, path: str, **more: Any) -> Reply:
        self.asked.append(path)
        return await super().request(method, path, **more)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, idle: float = 75.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append(path)
        async with super().stream(path, params, idle=idle) as lines:
            yield lines


class Engines:
    """An engine on the real API server."""

    def __init__(self, engine: Engine, session: Recording) -> None:
        self.engine = engine
        self.asked = session.asked

    async def until(self, namespace: str, name: str, says: str) -> None:
        """Wait until a policy's problem contains this text."""

        async def problem() -> str:
            view = self.engine.snapshots.current.policies.get(Key(namespace, name))
            return view.problem.message if view is not None and view.problem is not None else ""

        async def said() -> bool:
            return says in await problem()

        await until(said, 90, problem)


@pytest.fixture
async def engines(api_server: ControlPlane) -> AsyncIterator[Engines]:
    await asyncio.to_thread(install_crds, api_server)
    session = await Recording.open(str(api_server.kubeconfig))
    session.asked = []
    async with session:
        engine = Engine(Settings(), session, Metrics())
        task = asyncio.create_task(engine.run())
        yield Engines(engine, session)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def hpa(namespace: str, name: str, reference: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": [METRIC]},
    }


def policy(namespace: str, name: str) -> dict[str, Any]:
    metric = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "100m", "lowWatermark": "50m"}
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metrics": [metric]},
    }


def create(cluster: ControlPlane, namespace: str, name: str, api_version: str, kind: str, target: str = "web") -> None:
    reference = {"apiVersion": api_version, "kind": kind, "name": target}
    cluster.client.create(hpa(namespace, name, reference))
    cluster.client.create(policy(namespace, name))


async def test_invalid_references_that_it_admits_cause_no_request_and_each_policy_says_why(
    api_server: ControlPlane, api_namespace: str, engines: Engines
) -> None:
    space = api_namespace
    for number, (api_version, kind, name, _) in enumerate(ADMITTED):
        await asyncio.to_thread(create, api_server, space, f"odd{number}", api_version, kind, name)
    await asyncio.to_thread(create, api_server, space, "plain", "apps/v1", "Deployment")
    for number, (*_, says) in enumerate(ADMITTED):
        await engines.until(space, f"odd{number}", says)
    await engines.until(space, "plain", "Deployment web, that the HPA scales, does not exist")
    paths = {path for path in engines.asked if "deployments" in path.lower() or "%" in path or "?" in path}
    assert paths == {"/apis/apps/v1/deployments"}
