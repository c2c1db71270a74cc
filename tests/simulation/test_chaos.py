"""Random half hours of failures."""

import random

import pytest

from tests.simulation.registered import HIGH, LONG, MINUTE, Service, constant, counts, needed, settled, turns


def chaos(seed: int) -> Service:
    """Half an hour of pull-outs, lost registrations and samples, unready pods, outages and steps of demand."""
    rng = random.Random(seed)
    service = Service(rng.randint(4, 20), constant(rng.randint(4, 20) * 800))
    lost: set[str] = set()
    service.source.lost = lost.__contains__
    service.run(3 * MINUTE)
    for _ in range(15):
        pod = rng.choice(service.living)
        match rng.randrange(7):
            case 0:
                pod.disabled = True
            case 1:
                pod.deregistered = True
            case 2:
                pod.unready_since = service.now
            case 3:
                service.registry.mode = rng.choice(["ok", "silent", "empty"])
            case 4:
                service.source.frozen = not service.source.frozen
            case 5:
                lost ^= {pod.measured.name}
            case _:
                service.demand = constant(rng.randint(4, 25) * 800)
        service.run(2 * MINUTE)
    service.registry.mode, service.source.frozen = "ok", False
    lost.clear()
    for pod in service.pods:
        if pod.unready_since is not None:
            pod.unready_since, pod.ready_at = None, service.now
    return service


@pytest.mark.parametrize("seed", range(8))
def test_after_any_half_hour_of_failures_the_service_settles_at_its_need(seed: int) -> None:
    service = chaos(seed)
    during = len(service.moments)
    after = service.run(LONG)
    demand = service.demand(0)
    away = sum(pod.disabled or pod.deregistered for pod in service.living)
    assert settled(after)
    assert after[-1].in_traffic * HIGH * 1.01 >= demand
    assert turns(after) <= 1
    peak = needed(20_000) + sum(pod.disabled or pod.deregistered for pod in service.pods) + away
    assert max(counts(service.moments[:during])) <= 20 + peak
