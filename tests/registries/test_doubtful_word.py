"""An instance that is out by a check that has not run yet."""

import time

import pytest

from adapter.load.pods import PodState
from adapter.load.roster import Instance
from adapter.registries.cache import InstanceCache
from adapter.registries.source import Answer, ServiceKey
from adapter.settings.registries import ConsulRegistry
from adapter.telemetry.metrics import Metrics
from tests.registries.kit import Changes, Clock, Pods

KEY = ServiceKey("consul", "web")


def pods(clock: Clock, *of_the_first: Instance, any_instance_out: bool) -> Pods:
    """Four pods; these are the registrations of `web-0`."""
    settings = ConsulRegistry(name="consul", type="Consul", servers=("http://consul:8500",))
    cache = InstanceCache(settings, Changes(), clock, Metrics())
    cache.follow([KEY])
    others = (Instance(ip=f"10.0.0.{10 + n}", port=8080) for n in range(1, 4))
    cache.put(KEY, Answer((*of_the_first, *others)))
    return Pods(cache, KEY, clock, any_instance_out=any_instance_out)


def critical(port: int) -> Instance:
    return Instance(ip="10.0.0.10", port=port, status="CRITICAL", healthy=False, doubtful_until=time.time() + 60)


@pytest.mark.parametrize("any_instance_out", [False, True])
def test_instance_is_doubtful_until_then_and_evidence_after_it(any_instance_out: bool) -> None:
    clock = Clock()
    service = pods(clock, critical(8080), any_instance_out=any_instance_out)
    assert service.states()["web-0"] is PodState.DOUBTFUL
    clock.jump(61)
    assert service.states()["web-0"] is PodState.PULLED_OUT


@pytest.mark.parametrize(("any_instance_out", "expected"), [(False, PodState.DOUBTFUL), (True, PodState.PULLED_OUT)])
def test_another_instance_counts_if_any_is_enough(any_instance_out: bool, expected: PodState) -> None:
    sure = Instance(ip="10.0.0.10", port=8080, status="MAINTENANCE")
    assert pods(Clock(), sure, critical(8081), any_instance_out=any_instance_out).states()["web-0"] is expected
