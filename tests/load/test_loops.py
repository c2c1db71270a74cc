"""Closed loops: no count is asked for below the truth, and the count comes down to the truth."""

import os
from dataclasses import replace

import pytest

from tests.load.loop import HIGH, LOW, Loop, World

WORLDS = {
    "calm": World(),
    "churn": World(churn=60),
    "rollouts": World(rollout=1200),
    "faults": World(faults=True),
    "faults and a hot pod that dies": World(faults=True, hot=True),
    "long windows": World(faults=True, window=120),
    "windows of two scrapes": World(faults=True, window=60, scrape=30),
    "samples of different times": World(faults=True, skewed=True),
    "pull-outs that go first, by a scraper that follows the registry": World(pulls=240, follows=True, marked=True),
}


@pytest.mark.parametrize("stabilization", [0, 120])
@pytest.mark.parametrize("name", WORLDS)
def test_no_count_below_the_truth_is_asked_for(name: str, stabilization: int) -> None:
    world = WORLDS[name]
    paced = replace(world, stabilization=stabilization, percent=10 if stabilization else 0)
    for seed in range(1 if stabilization else int(os.environ["EFFECTIVE_LOAD_LOOPS"])):
        assert Loop(paced, seed).run().below == [], seed


@pytest.mark.parametrize("name", ["calm", "churn", "rollouts"])
def test_the_count_comes_down_to_what_the_demand_needs(name: str) -> None:
    """In an hour without faults it is at most a quarter above what the low watermark justifies, on average."""
    counts = Loop(WORLDS[name], seed=3).run().counts
    pods, demand = sum(count for count, _ in counts), sum(load for _, load in counts)
    assert demand / HIGH <= pods <= 1.1 * demand / LOW
