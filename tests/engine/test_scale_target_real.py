"""References to scale targets on the real API server: admission, requests, and kinds defined later."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from adapter.engine import Engine
from adapter.evaluation import targets
from adapter.kube import rest_mapper
from adapter.kube.session import Session
from adapter.runtime.http import Reply
from adapter.settings import Settings
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics
from lab.harness import short_laws
from lab.harness.adapter import install_crds
from lab.harness.client import ApiError
from lab.harness.control_plane import ControlPlane
from tests.engine.kit import until
from tests.engine.test_scale_target import ADMITTED

pytestmark = [pytest.mark.integration, pytest.mark.builds("etcd", "kube-apiserver")]

REFUSED = [
    ("apps/v1", ".."),
    ("apps/v1", "a/b"),
    ("apps/v1", "%61"),
    ("apps/v1/../v1", "Deployment"),
    ("", "Deployment"),
]
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


@pytest.mark.parametrize(("api_version", "kind"), REFUSED)
def test_some_references_the_api_server_refuses_itself(
    api_server: ControlPlane, api_namespace: str, api_version: str, kind: str
) -> None:
    with pytest.raises(ApiError, match="scaleTargetRef"):
        create(api_server, api_namespace, "odd", api_version, kind)


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


async def test_invented_kinds_cost_next_to_nothing(
    api_server: ControlPlane, api_namespace: str, engines: Engines
) -> None:
    space = api_namespace
    for number in range(40):
        await asyncio.to_thread(create, api_server, space, f"z{number:02}", f"g{number}.example.org/v1", "Thing")
    await engines.until(space, "z00", "the API server serves no g0.example.org/v1")
    for number in range(targets.MAX_KINDS_PER_NAMESPACE, 40):
        await engines.until(space, f"z{number:02}", "name too many kinds")
    assert not [path for path in engines.asked if "example.org" in path]
    engines.asked.clear()
    await asyncio.sleep(5)
    assert len([path for path in engines.asked if path.startswith("/apis") and path.count("/") <= 3]) <= 2


async def test_a_kind_that_is_defined_later_is_watched(
    api_server: ControlPlane,
    api_namespace: str,
    engines: Engines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for law, seconds in short_laws.LAWS["adapter.kube.rest_mapper"].items():
        monkeypatch.setattr(rest_mapper, law, seconds)
    space = api_namespace
    await asyncio.to_thread(create, api_server, space, "fleet", "security.example.com/v1", "Fleet")
    await engines.until(space, "fleet", "the API server serves no security.example.com/v1")
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.security.example.com"},
        "spec": {
            "group": "security.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Fleet", "plural": "fleets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    "subresources": {
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
                    },
                }
            ],
        },
    }
    await asyncio.to_thread(api_server.client.create, definition)
    await engines.until(space, "fleet", "Fleet web, that the HPA scales, does not exist")
