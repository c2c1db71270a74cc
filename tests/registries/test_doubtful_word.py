"""A registration that says out, and whose word does not suffice for now."""

import time

import pytest

from adapter.load.pods import PodState
from adapter.load.roster import Instance
from adapter.registries.source import ServiceKey
from tests.registries.kit import Clock, Pods, book

KEY = ServiceKey("consul", "web")


def pods(clock: Clock, *of_the_first: Instance, any_out: bool) -> Pods:
    """Four pods; these are the registrations of `web-0`."""
    cache = book("consul", clock)
    cache.follow({KEY: ""})
    cache.update(KEY, [*of_the_first, *(Instance(ip=f"10.0.0.{10 + n}", port=8080) for n in range(1, 4))])
    return Pods(cache, KEY, clock, any_out=any_out)


def critical(port: int) -> Instance:
    return Instance(ip="10.0.0.10", port=port, status="CRITICAL", healthy=False, doubtful_until=time.time() + 60)


@pytest.mark.parametrize("any_out", [False, True])
def test_it_is_doubt_until_then_and_evidence_afterwards(any_out: bool) -> None:
    clock = Clock()
    service = pods(clock, critical(8080), any_out=any_out)
    assert service.states()["web-0"] is PodState.DOUBTFUL
    clock.jump(61)
    assert service.states()["web-0"] is PodState.PULLED_OUT


@pytest.mark.parametrize(("any_out", "expected"), [(False, PodState.DOUBTFUL), (True, PodState.PULLED_OUT)])
def test_another_registration_that_suffices_counts_where_any_is_enough(any_out: bool, expected: PodState) -> None:
    sure = Instance(ip="10.0.0.10", port=8080, status="MAINTENANCE")
    assert pods(Clock(), sure, critical(8081), any_out=any_out).states()["web-0"] is expected
