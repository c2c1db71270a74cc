"""Random closed loops with lagging sources: never below the true need, all down to it, hardly ever above it.

`EFFECTIVE_LOAD_LOOPS=3000` runs more of them.
"""

import json
import os

import pytest

from adapter.load.memory import Memory
from adapter.policy import memory_json
from tests.simulation.loops import STRATEGIES, Figures, come_and_go, figures, random_loop, run

LOOPS = int(os.environ.get("EFFECTIVE_LOAD_LOOPS", "300"))


@pytest.fixture(scope="module")
def result() -> Figures:
    return figures(range(LOOPS))


@pytest.mark.timeout(300 + LOOPS)
class TestTruth:
    def test_no_step_of_any_loop_goes_below_the_true_need(self, result: Figures) -> None:
        assert not result.below

    def test_every_loop_comes_down_to_the_true_need(self, result: Figures) -> None:
        assert not result.not_down

    def test_every_loop_comes_up_to_the_true_need(self, result: Figures) -> None:
        assert not result.not_up

    def test_few_loops_go_above_the_true_need_and_mostly_by_one_pod(self, result: Figures) -> None:
        assert len(result.beyond) <= 0.03 * result.loops
        assert sum(1 for by in result.beyond.values() if by > 1) <= 0.01 * result.loops

    def test_the_loops_move(self, result: Figures) -> None:
        assert result.steps >= 3 * result.loops


@pytest.mark.timeout(300 + LOOPS)
@pytest.mark.parametrize("strategy", ["Ratio", "Step"])
def test_the_other_strategies_come_to_rest_never_below_the_true_need_nor_beyond_it(strategy: str) -> None:
    result = figures(range(max(6, LOOPS // 15)), STRATEGIES[strategy])
    assert not result.below
    assert not result.not_down
    assert not result.not_up
    assert not result.restless
    assert len(result.beyond) <= 0.03 * result.loops
    assert result.steps >= 3 * result.loops


@pytest.mark.timeout(300 + LOOPS)
def test_pods_that_turn_unready_or_are_pulled_out_and_return_never_lead_below_the_true_need() -> None:
    result = figures(range(LOOPS), come_and_go)
    assert not result.below
    assert not result.not_down
    assert not result.not_up


def steps(seed: int, **changes: object) -> object:
    loop = random_loop(seed)
    for name, value in changes.items():
        setattr(loop, name, value)
    return run(loop).steps


@pytest.mark.parametrize("seed", range(6))
def test_a_memory_written_and_read_at_each_assessment_changes_no_step(seed: int) -> None:
    def restarted(memory: Memory) -> Memory:
        written = json.loads(json.dumps(memory_json.memory_to_json(memory)))
        return memory_json.MemoryReader().memory(written, ("memory",))

    assert steps(seed, restarts=restarted) == steps(seed)


@pytest.mark.parametrize("seed", range(6))
def test_the_frequency_of_assessments_changes_no_step(seed: int) -> None:
    often = steps(seed, reassess_seconds=0, eager=True)
    assert steps(seed, reassess_seconds=0, restless=True) == often
