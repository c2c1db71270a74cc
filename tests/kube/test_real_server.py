"""Against a real kube-apiserver and etcd: what the fakes take for granted."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.companion.writer import TEST_FAILED
from adapter.kube import credentials
from adapter.kube.api import JSON_PATCH
from adapter.kube.errors import ApiStatusError, UnknownKind
from adapter.kube.objects import ObjectMeta
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.scale import ScaleReader, TargetObject, target_decoder
from adapter.kube.session import Session
from adapter.load.spec import Scale
from adapter.telemetry.metrics import Metrics
from lab.harness import objects
from lab.harness.adapter import established
from lab.harness.control_plane import ControlPlane
from tests.kinds import scalable

pytestmark = [pytest.mark.integration, pytest.mark.builds("etcd", "kube-apiserver")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """An API server of this module's own: it is killed here, and reads pages from etcd, which forgets when told to.

    By default a 1.36 server keeps snapshots that outlive a compaction; older ones have none.
    """
    with ControlPlane.api_server_only(apiserver_flags={"feature-gates": "ListFromCacheSnapshot=false"}) as cluster:
        yield cluster


@pytest.fixture
def space(cluster: ControlPlane, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**8}"
    cluster.client.apply(objects.namespace(name))
    return name


@pytest.fixture
async def admin(cluster: ControlPlane, metrics: Metrics) -> AsyncIterator[Session]:
    async with await Session.open(str(cluster.kubeconfig), metrics=metrics) as session:
        yield session


def config_map(space: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": space}, "data": data}


def maps(space: str) -> str:
    return f"/api/v1/namespaces/{space}/configmaps"


async def test_a_json_patch_of_which_a_test_fails_is_refused_in_its_own_words(admin: Session, space: str) -> None:
    await admin.request("POST", maps(space), body=msgspec.json.encode(config_map(space, "one", a="1")))
    said = {}
    for path, value in (("/data/a", "2"), ("/data/b", "1"), ("/metadata/name", "one")):
        patch = [{"op": "test", "path": path, "value": value}, {"op": "add", "path": "/data/-_-!", "value": "1"}]
        body = msgspec.json.encode(patch)
        with pytest.raises(ApiStatusError) as refused:
            await admin.request("PATCH", f"{maps(space)}/one", body=body, content_type=JSON_PATCH)
        said[path] = (refused.value.code, refused.value.message == TEST_FAILED)
    assert said == {"/data/a": (422, True), "/data/b": (422, True), "/metadata/name": (422, False)}


class ConfigMap(msgspec.Struct, frozen=True):
    """What these tests watch: it changes in one field, and nothing acts on it."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


_DECODER = msgspec.json.Decoder(ConfigMap)


class Watched:
    """A reflector of a namespace's ConfigMaps, and what it told."""

    def __init__(self, session: Session, space: str, metrics: Metrics, **more: Any) -> None:
        self.told: asyncio.Queue[tuple[str | None, str | None]] = asyncio.Queue()
        more.setdefault("decode", _DECODER.decode)
        self.reflector: Reflector[ConfigMap] = Reflector(
            session, maps(space), name="configmaps", on_event=self._event, metrics=metrics, sleep=_short, **more
        )

    def _event(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self.told.put_nowait((_shown(old), _shown(new)))

    async def next(self) -> tuple[str | None, str | None]:
        return await asyncio.wait_for(self.told.get(), 60)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reflector.run())
        try:
            synced = asyncio.create_task(self.reflector.synced.wait())
            await asyncio.wait({task, synced}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            assert synced.done()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _shown(one: ConfigMap | None) -> str | None:
    return one and f"{one.metadata.name} {(one.data or {}).get('v', '')}"


async def _short(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.2))


def restarts(metrics: Metrics, reason: str) -> float:
    labels = {"resource": "configmaps", "reason": reason}
    return metrics.registry.get_sample_value("effective_load_watch_restarts_total", labels) or 0.0


class TestReflector:
    async def test_finds_by_a_fresh_list_what_happened_beyond_the_server_s_memory(
        self, cluster: ControlPlane, admin: Session, space: str, metrics: Metrics
    ) -> None:
        """A restarted API server knows no events before its start: from an older version it answers 410."""
        for name in ("same", "changed", "gone"):
            cluster.client.create(config_map(space, name, v="1"))
        watched = Watched(admin, space, metrics)
        async with watched.running():
            for _ in range(3):
                await watched.next()
        cluster.client.patch(f"{maps(space)}/changed", {"data": {"v": "2"}})
        cluster.client.delete(f"{maps(space)}/gone")
        cluster.client.create(config_map(space, "new", v="1"))
        cluster.kill("kube-apiserver")
        cluster.restore()
        async with watched.running():
            told = [await watched.next() for _ in range(3)]
        assert sorted(told, key=str) == [("changed 1", "changed 2"), ("gone 1", None), (None, "new 1")]
        assert restarts(metrics, "expired") == 1


async def who_am_i(session: Session) -> str:
    """The name under which the API server knows us."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    response = await session.request("POST", path, body=json.dumps(review).encode())
    return str(json.loads(response.body)["status"]["userInfo"]["username"])


class TestIdentity:
    async def test_a_pod_s_service_account(
        self, cluster: ControlPlane, space: str, metrics: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = tmp_path / "token"
        token.write_text(cluster.token(space, "pod"))
        monkeypatch.setattr(credentials, "TOKEN_FILE", token)
        monkeypatch.setattr(credentials, "CA_FILE", cluster.pki.cluster.file)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.layout.port("kube-apiserver")))
        async with await Session.open(metrics=metrics) as session:
            assert await who_am_i(session) == f"system:serviceaccount:{space}:pod"


LABELS = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}]}
TEMPLATE = {
    "metadata": {"labels": {"app": "web", "tier": "a"}},
    "spec": {"containers": [{"name": "app", "image": "app"}]},
}


class TestScale:
    @pytest.mark.parametrize(
        ("api_version", "kind", "spec"),
        [
            ("apps/v1", "Deployment", {"replicas": 3, "selector": LABELS, "template": TEMPLATE}),
            ("apps/v1", "ReplicaSet", {"selector": LABELS, "template": TEMPLATE}),
            ("apps/v1", "StatefulSet", {"replicas": 2, "selector": LABELS, "template": TEMPLATE, "serviceName": "x"}),
            ("v1", "ReplicationController", {"replicas": 4, "selector": {"app": "web"}, "template": TEMPLATE}),
        ],
    )
    async def test_the_watched_scale_is_the_live_one(
        self,
        cluster: ControlPlane,
        admin: Session,
        space: str,
        metrics: Metrics,
        api_version: str,
        kind: str,
        spec: dict[str, Any],
    ) -> None:
        meta = {"name": "web", "namespace": space}
        cluster.client.create({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
        watched, live = await self._both(admin, space, api_version, kind, metrics)
        assert watched.scale == live
        assert live.selector in {"app=web,tier in (a,b)", "app=web"}

    async def test_a_custom_resource_with_paths_of_its_own(
        self, cluster: ControlPlane, admin: Session, space: str, metrics: Metrics
    ) -> None:
        with pytest.raises(UnknownKind):
            await RestMapper(admin).scalable("example.com/v1", "Fleet")
        paths = {"spec": ".spec.size.wanted", "status": ".status.size.seen", "selector": ".status.query"}
        established(cluster, scalable("example.com", "Fleet", **paths))
        head = {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "web", "namespace": space}}
        made = cluster.client.create({**head, "spec": {"size": {"wanted": 5}}})
        cluster.client.patch_status(cluster.client.path(made), {"size": {"seen": 4}, "query": "tier in (b,a),app=web"})
        watched, live = await self._both(admin, space, "example.com/v1", "Fleet", metrics)
        assert watched.scale == live == Scale(replicas=5, status_replicas=4, selector="app=web,tier in (a,b)")

    async def _both(
        self, admin: Session, space: str, api_version: str, kind: str, metrics: Metrics
    ) -> tuple[TargetObject, Scale]:
        resource = await RestMapper(admin).scalable(api_version, kind)
        body = await admin.get(resource.path(space, "web"))
        watched = target_decoder(api_version, kind, resource.paths)(body)
        return watched, await ScaleReader(admin, metrics).read(resource.scale_path(space, "web"), None, None)


async def test_a_pod_as_the_real_server_returns_it(cluster: ControlPlane, admin: Session, space: str) -> None:
    resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}}
    notes = {"effective-load.io/pulled-out": "true"}
    meta = {"name": "web-1", "namespace": space, "labels": {"app": "web"}, "annotations": notes}
    spec = {
        "containers": [{"name": "app", "image": "app", "resources": resources}],
        "initContainers": [{"name": "mesh", "image": "mesh", "restartPolicy": "Always"}],
        "readinessGates": [{"conditionType": "example.com/in"}],
    }
    cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    pod = PodDecoder()(await admin.get(f"/api/v1/namespaces/{space}/pods/web-1"))
    assert (pod.namespace, pod.name, pod.labels, pod.phase) == (space, "web-1", {"app": "web"}, "Pending")
    assert abs(pod.created_at - admin.now()) < 30
    assert pod.pulled_out_annotation
    assert pod.gates == {"example.com/in": False}
    assert [(one.name, one.running) for one in pod.containers] == [("app", None), ("mesh", None)]
    assert pod.containers[0].requests == {"cpu": 500_000_000, "memory": (1 << 30) * 10**9}
    assert pod.containers[0].limits == {"cpu": 10**9}
