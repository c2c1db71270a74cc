"""A registration that says out, and whose word does not suffice for now."""

from dataclasses import replace

import pytest

from adapter.load.pods import PodState
from adapter.load.roster import Instance, Roster
from adapter.registries.roster import ServiceKey
from tests.registries.kit import Clock, Pods

KEY = ServiceKey("consul", "web")


class Told:
    """A cache that knows one roster."""

    def __init__(self) -> None:
        self.instances: tuple[Instance, ...] = ()
        self.at = 0.0

    def roster(self, _key: ServiceKey) -> Roster | None:
        return Roster(at=self.at, instances=self.instances)


@pytest.mark.parametrize("any_out", [False, True])
def test_it_is_doubt_until_then_and_evidence_afterwards(any_out: bool) -> None:
    clock, told = Clock(), Told()
    service = Pods(told, KEY, clock, any_out=any_out)
    told.at = clock()
    told.instances = tuple(Instance(ip=f"10.0.0.{10 + n}", port=8080) for n in range(4))
    out = replace(told.instances[0], status="CRITICAL", healthy=False, doubtful_until=clock() + 60)
    told.instances = (out, *told.instances[1:])
    assert service.states()["web-0"] is PodState.DOUBTFUL
    clock.jump(61)
    assert service.states()["web-0"] is PodState.PULLED_OUT


@pytest.mark.parametrize(("any_out", "expected"), [(False, PodState.DOUBTFUL), (True, PodState.PULLED_OUT)])
def test_another_registration_that_suffices_counts_where_any_is_enough(any_out: bool, expected: PodState) -> None:
    clock, told = Clock(), Told()
    service = Pods(told, KEY, clock, any_out=any_out)
    told.at = clock()
    sure = Instance(ip="10.0.0.10", port=8080, status="MAINTENANCE")
    doubtful = replace(sure, port=8081, status="CRITICAL", doubtful_until=clock() + 60)
    told.instances = (sure, doubtful, *(Instance(ip=f"10.0.0.{10 + n}", port=8080) for n in range(1, 4)))
    assert service.states()["web-0"] is expected
