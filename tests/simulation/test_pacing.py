"""The closed loop with a policy's own pacing, and with adapter restarts."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from adapter.load.spec import Cooldown, Policy, Velocity
from adapter.policy import status_memory
from tests.simulation.closed_loop import Moment
from tests.simulation.registered import MINUTE, POLICY, SYNC, Service, counts, needed, settled, turns

QUIET, BUSY, CALM = 4_000, 23_900, 3_000


def changed(moments: list[Moment]) -> list[tuple[int, int, int]]:
    """Each change of the count: time, old count, new count."""
    return [
        (later.at, before.replicas, later.replicas)
        for before, later in pairwise(moments)
        if before.replicas != later.replicas
    ]


def wave(now: int) -> int:
    """A rise and a fall of demand, long enough for any pace."""
    return QUIET if now < 5 * MINUTE else BUSY if now < 25 * MINUTE else CALM


def started_anew(service: Service) -> None:
    """Restarts the adapter: it reads its memory from the policy's status."""
    service.memory = status_memory.from_status(json.loads(json.dumps(status_memory.to_status(service.memory))))


def run(rule: Policy, *, anew_every: int = 0) -> list[Moment]:
    service = Service(5, wave, rule=rule)
    moments = []
    for _ in range(60):
        moments += service.run(MINUTE)
        if anew_every and service.now % anew_every == 0:
            started_anew(service)
    return moments


@pytest.mark.parametrize(("up", "down"), [(100, 20), (20, 1), (1, 100)])
def test_each_step_is_within_the_velocity_and_the_count_reaches_the_need(up: int, down: int) -> None:
    moments = run(replace(POLICY, velocity=Velocity(up=up, down=down)))
    steps = changed(moments)
    assert all(after - before <= max(1, before * up // 100) for _, before, after in steps)
    assert all(before - after <= max(1, before * down // 100) for _, before, after in steps)
    assert max(counts(moments)) == needed(BUSY)
    assert turns(moments) == 1
    assert settled(moments)


@pytest.mark.parametrize("anew_every", [0, MINUTE, 3 * MINUTE])
def test_each_step_waits_for_the_cooldown_of_its_direction(anew_every: int) -> None:
    rule = replace(POLICY, velocity=Velocity(up=30, down=30), cooldown=Cooldown(up=100, down=200))
    moments = run(rule, anew_every=anew_every)
    steps = changed(moments)
    waits = [(at - before, after > had) for (before, _, _), (at, had, after) in pairwise(steps)]
    assert {up for _, up in waits} == {True, False}
    assert all(waited >= (100 if up else 200) for waited, up in waits)
    assert min(waited for waited, up in waits if up) <= 100 + 2 * SYNC
    assert max(counts(moments)) == needed(BUSY)
    assert settled(moments)
