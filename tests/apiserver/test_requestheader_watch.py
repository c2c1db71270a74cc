"""Polling the ConfigMap of the front proxy."""

import asyncio

import pytest
import trustme

from adapter.apiserver.authentication import RequestheaderConfig, RequestheaderWatch
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.apiserver.cluster import CONFIG_MAP, Cluster
from tests.apiserver.conftest import pem


class Follower:
    """A watch that records what it applies, and stops after some pauses."""

    def __init__(self, session: Session) -> None:
        self.applied: list[RequestheaderConfig] = []
        self.slept: list[float] = []
        self.enough = 0
        self.done = asyncio.Event()
        self.metrics = Metrics()
        self.watch = RequestheaderWatch(session, self.metrics, self.applied.append, seconds=5, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= self.enough:
            self.done.set()
            await asyncio.Event().wait()

    async def follow(self, pauses: int) -> None:
        self.enough = len(self.slept) + pauses
        self.done.clear()
        task = asyncio.create_task(self.watch.run())
        async with asyncio.timeout(30):
            await self.done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def follower(session: Session) -> Follower:
    return Follower(session)


async def test_a_configuration_is_applied_once(follower: Follower, cluster: Cluster, front_proxy: trustme.CA) -> None:
    cluster.trust(pem(front_proxy))
    assert "has not been read" in (follower.watch.check() or "")
    await follower.follow(3)
    [trust] = follower.applied
    assert (trust.allowed_names, trust.user_headers) == (frozenset({"front-proxy-client"}), ("x-remote-user",))
    assert trust.extra_prefixes == ("x-remote-extra-",)
    assert follower.watch.check() is None
    assert follower.slept == [5, 5, 5]


async def test_every_change_that_matters_is_applied(
    follower: Follower, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    cluster.trust(pem(front_proxy))
    await follower.follow(1)
    cluster.trust(pem(front_proxy), allowed=["other"])
    await follower.follow(1)
    cluster.trust(pem(trustme.CA()), allowed=["other"])
    await follower.follow(1)
    cluster.objects[CONFIG_MAP]["data"]["some-other-file"] = pem(trustme.CA())
    await follower.follow(1)
    assert [sorted(trust.allowed_names) for trust in follower.applied] == [["front-proxy-client"], ["other"], ["other"]]
    assert len({trust.authority for trust in follower.applied}) == 2


async def test_a_failed_read_is_retried_with_backoff(
    follower: Follower, cluster: Cluster, front_proxy: trustme.CA
) -> None:
    cluster.faults[CONFIG_MAP] = 403
    await follower.follow(5)
    assert follower.slept == [1, 2, 4, 5, 5]
    labels = {"reason": "authentication_config"}
    assert follower.metrics.registry.get_sample_value("effective_load_errors_total", labels) == 5
    del cluster.faults[CONFIG_MAP]
    cluster.trust(pem(front_proxy))
    await follower.follow(1)
    assert follower.watch.check() is None


@pytest.mark.parametrize("data", [{}, None, {"client-ca-file": "…"}])
async def test_a_cluster_without_a_front_proxy_is_known_as_such(
    follower: Follower, cluster: Cluster, data: dict[str, str] | None
) -> None:
    cluster.put(CONFIG_MAP, {"data": data})
    await follower.watch.read_once()
    [trust] = follower.applied
    assert trust.authority == ""
    assert "the API server has no front proxy" in (follower.watch.check() or "")
