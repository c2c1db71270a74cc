"""Every scenario of `python -m lab.faults`, on one scene; and that broken invariants are seen."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.faults.run import play
from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.faults.scene import Scene

pytestmark = [pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(240)]
BUSY = 3
"""So many times as long a recovery and an answer may take beside five other workers; `python -m lab.faults` holds the
times themselves.
"""


@pytest.fixture(scope="module")
def fault_scene(exhaustive: bool) -> Iterator[Scene]:
    scene = Scene()
    if not exhaustive:
        scene.command = ("-m", "lab.faults.shim", "--short")
    with scene:
        scene.watch.latest_answer *= BUSY
        yield scene


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_nothing_shrinks_and_answers_come_in_time_throughout_a_fault(fault_scene: Scene, scenario: Scenario) -> None:
    if not may_run(scenario):
        pytest.skip("it mounts a file system, which needs root")
    outcome = play(fault_scene, replace(scenario, recovery=BUSY * scenario.recovery))
    print(outcome.line())
    assert not outcome.faults
