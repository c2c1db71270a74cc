"""A process that takes a policy over, from a status that may be some seconds old, asks for no less than the one before.

`EFFECTIVE_LOAD_LOOPS=3000` takes over more often.
"""

import json
import os
import random
from dataclasses import replace

import pytest

from adapter.load.assess import assess
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.policy import status_memory
from tests.load.kit import NOW
from tests.simulation.closed_loop import ClosedLoop
from tests.simulation.loops import MINUTE, come_and_go, random_loop

TAKE_OVERS = int(os.environ.get("EFFECTIVE_LOAD_LOOPS", "100"))
WATCHED = 400
"""Seconds after the take-over: longer than last samples are remembered."""


@pytest.mark.timeout(60 + TAKE_OVERS)
def test_a_process_that_takes_over_asks_for_no_less_than_the_one_before_would() -> None:
    assert {seed: less for seed in range(TAKE_OVERS) if (less := less_after_take_over(seed))} == {}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(287, id="a pod put back by hand while the registry is silent"),
        pytest.param(337, id="the HPA scaled down between the last status and the take-over"),
        pytest.param(414, id="the HPA scaled up between the last status and the take-over"),
    ],
)
def test_take_overs_that_once_asked_for_less(seed: int) -> None:
    assert less_after_take_over(seed) == []


def _loop(seed: int) -> ClosedLoop:
    loop = random_loop(seed)
    if seed % 2:
        come_and_go(loop)
    return loop


def less_after_take_over(seed: int) -> list[tuple[int, int, int]]:
    """When it asks for less than the process before, with both counts."""
    rng, loop = random.Random(seed), _loop(seed)
    # Soon after pods left or came, which the status need not know yet.
    before = _loop(seed)
    before.run(20 * MINUTE)
    steps = [step.at for step in before.steps] or [10 * MINUTE]
    moment = rng.choice(steps) + rng.choice([1, 5, 15, 30, 60])
    loop.run(max(1, moment - rng.choice([0, 1, 5, 10, 30])))
    written = json.dumps(status_memory.to_status(loop.memory))
    loop.run(max(0, moment - loop.now))
    heir = status_memory.from_status(json.loads(written))
    found = []

    def compare(memory: Memory) -> Memory:
        nonlocal heir
        if heir.observing_since is None:  # its first look at the pods
            heir = replace(heir, observing_since=NOW + loop.now)
        running, taken_over = (assess(loop.inputs(loop.source, one)) for one in (memory, heir))
        heir = taken_over.memory
        scale, bounds, now = loop.scale_object(), loop.hpa.bounds, NOW + loop.now
        asked, less = decide(running, scale, bounds, now).desired, decide(taken_over, scale, bounds, now).desired
        if asked is not None and less is not None and less < asked:
            found.append((loop.now, asked, less))
        return memory

    loop.restarts = compare
    loop.run(WATCHED)
    return found
