"""What requests find before the first evaluation of a policy, and before the first result of a query."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.runtime.work_queue import WorkQueue
from adapter.settings import NamedQuery, PrometheusServer, PrometheusSettings, Settings
from adapter.snapshot import Key
from tests.engine.kit import Service, running, standing
from tests.waiting import eventually

WEB = Service("shop", "web", "deployments", "cpu")


async def test_named_query_is_published_before_its_first_result_and_removed_with_its_settings() -> None:
    async with standing() as stand, running(stand):
        server = PrometheusServer(name="gone", url="http://127.0.0.1:1")
        query = NamedQuery(name="depth", server="gone", query="sum(depth)", scope="Service")
        stand.engine.apply_settings(Settings(prometheus=PrometheusSettings(servers=(server,), queries=(query,))))
        assert stand.engine.snapshots.current.queries["depth"].fetched_at is None
        stand.engine.apply_settings(Settings())
        assert not stand.engine.snapshots.current.queries


def hold(monkeypatch: pytest.MonkeyPatch, queue: WorkQueue[Key]) -> Callable[[], None]:
    """Keep policies from being evaluated; the result lets them."""
    get, let = queue.get, asyncio.Event()

    async def held() -> Key:
        await let.wait()
        return await get()

    monkeypatch.setattr(queue, "get", held)
    return let.set


async def test_policy_that_is_created_later_is_published_before_its_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing() as stand:
        hold(monkeypatch, stand.engine.queue)
        async with running(stand):
            snapshots, path = stand.engine.snapshots, "GET /apis/effective-load.io/v1alpha1/watermarkpolicies"
            await eventually(lambda: snapshots.current.synced and stand.cluster.asked.count(path) > 1)  # list and watch
            stand.add(WEB)
            await eventually(lambda: snapshots.current.policies)
            assert snapshots.current.policies[Key("shop", "web")].pending


async def test_snapshot_is_not_synced_before_every_policy_was_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing(WEB) as stand:
        engine = stand.engine
        let = hold(monkeypatch, engine.queue)
        assert "the Kubernetes caches are still being filled: watermarkpolicies, " in engine.filling()
        async with running(stand):
            await eventually(lambda: "WatermarkPolicies have not been assessed yet" in engine.filling())
            assert not engine.snapshots.current.synced
            let()
            await eventually(lambda: engine.snapshots.current.synced)
    assert not any(view.pending for view in engine.snapshots.current.policies.values())
