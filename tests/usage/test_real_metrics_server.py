"""Against a real metrics-server, through the aggregator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.kube.session import Session
from adapter.load.quantity import NANO
from adapter.load.samples import ResourceSamples
from adapter.settings import ResourceMetricsSettings as Options
from adapter.telemetry.metrics import Metrics
from adapter.usage.resource_metrics import ResourceMetrics
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads

pytestmark = pytest.mark.integration


class Watched:
    def __init__(self, session: Session, namespace: str) -> None:
        self.namespace = namespace
        self._news = asyncio.Event()
        options = Options(interval_seconds=0.5, timeout_seconds=5)
        self.usage = ResourceMetrics(session, lambda: [namespace], options, lambda _: self._news.set(), Metrics())

    @property
    def samples(self) -> ResourceSamples:
        return self.usage.samples(self.namespace)

    async def until(self, holds: Callable[[ResourceSamples], object]) -> ResourceSamples:
        async with asyncio.timeout(90):
            while not holds(self.samples):
                self._news.clear()
                await self._news.wait()
        return self.samples


@asynccontextmanager
async def polling(cluster: ControlPlane, namespace: str) -> AsyncIterator[Watched]:
    async with await Session.open(str(cluster.kubeconfig)) as session:
        watched = Watched(session, namespace)
        task = asyncio.create_task(watched.usage.run())
        try:
            yield watched
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_pods_and_their_use_arrive_with_their_times(control_plane: ControlPlane, workloads: Workloads) -> None:
    await asyncio.to_thread(workloads.deployment, "web", 2, usage_cpu="750m", usage_memory="300Mi")
    names = set(workloads.pod_names("web"))
    async with polling(control_plane, workloads.namespace) as watched:
        found = await watched.until(lambda samples: names <= samples.pods.keys())
    assert found.error is None
    assert found.fetched_at is not None
    for name in names:
        usage = found.pods[name]
        assert usage.containers["app"]["memory"] == 300 * (1 << 20) * NANO
        assert usage.containers["app"]["cpu"] == pytest.approx(0.75 * NANO, rel=0.05)
        assert 0 < usage.window < 120
        assert -2 < found.fetched_at - usage.at < 90


async def test_while_it_is_down_the_samples_stay_and_the_error_says_so(
    control_plane: ControlPlane, workloads: Workloads
) -> None:
    await asyncio.to_thread(workloads.deployment, "web", 1, usage_cpu="500m", usage_memory="100Mi")
    async with polling(control_plane, workloads.namespace) as watched:
        before = await watched.until(lambda samples: samples.pods)
        await asyncio.to_thread(control_plane.components["metrics-server"].stop)
        try:
            found = await watched.until(lambda samples: samples.error)
        finally:
            # By the main thread: a process of the harness dies with the thread that started it, and this one is shared.
            control_plane.start_component("metrics-server")
        assert found.pods.keys() == before.pods.keys()
        assert "503" in (found.error or "")
        assert "last answer" in (found.error or "")
        found = await watched.until(lambda samples: samples.error is None)
    assert found.error is None
