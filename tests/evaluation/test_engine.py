"""The engine over a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.engine import Engine
from adapter.kube.session import Session
from adapter.settings import NamedQuery, PrometheusServer, PrometheusSettings, Settings
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks

pytestmark = pytest.mark.integration


@pytest.fixture
async def unstarted(api_server: ControlPlane) -> AsyncIterator[Engine]:
    install_crds(api_server)
    async with await Session.open(str(api_server.kubeconfig)) as session:
        yield Engine(Settings(), session, Metrics())


@asynccontextmanager
async def started(engine: Engine) -> AsyncIterator[None]:
    running = asyncio.create_task(engine.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def engine(unstarted: Engine) -> AsyncIterator[Engine]:
    async with started(unstarted):
        yield unstarted


async def test_a_named_query_is_published_before_its_first_result_and_removed_with_its_settings(engine: Engine) -> None:
    server = PrometheusServer(name="gone", url="http://127.0.0.1:1")
    query = NamedQuery(name="depth", server="gone", query="sum(depth)", scope="Service")
    engine.apply_settings(Settings(prometheus=PrometheusSettings(servers=(server,), queries=(query,))))
    assert engine.snapshots.current.queries["depth"].fetched_at is None
    engine.apply_settings(Settings())
    assert not engine.snapshots.current.queries


async def until_synced(engine: Engine) -> None:
    async with asyncio.timeout(30):
        while not engine.snapshots.current.synced:  # noqa: ASYNC110  no event to wait for
            await asyncio.sleep(0.01)


async def test_a_policy_that_is_created_later_is_published_before_its_evaluation(
    api_server: ControlPlane, api_namespace: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until_synced(engine)
    monkeypatch.setattr(engine.queue, "_next", lambda: None)  # no policy is evaluated
    made = Workloads(api_server, api_namespace)
    await asyncio.to_thread(made.policy, "web", [cpu_watermarks("1200m", "400m")])
    key = Key(api_namespace, "web")
    async with asyncio.timeout(10):
        while key not in engine.snapshots.current.policies:  # noqa: ASYNC110  no event to wait for
            await asyncio.sleep(0.01)
    assert engine.snapshots.current.policies[key].pending


async def test_the_snapshot_is_not_synced_before_every_policy_was_evaluated(
    api_server: ControlPlane, api_namespace: str, unstarted: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unstarted.queue, "_next", lambda: None)
    await asyncio.to_thread(Workloads(api_server, api_namespace).policy, "web", [cpu_watermarks("1200m", "400m")])
    assert "the Kubernetes caches are still being filled: watermarkpolicies, " in unstarted.filling()
    async with started(unstarted), asyncio.timeout(30):
        while "WatermarkPolicies have not been assessed yet" not in unstarted.filling():  # noqa: ASYNC110  no event
            await asyncio.sleep(0.01)
        assert not unstarted.snapshots.current.synced
        monkeypatch.undo()
        unstarted.queue.resync([])
        await until_synced(unstarted)
    assert not any(view.pending for view in unstarted.snapshots.current.policies.values())
