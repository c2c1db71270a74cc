"""A fault of each kind, on one scene; `make chaos` plays all of them at random."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.chaos.run import play
from lab.chaos.scenarios import SCENARIOS, Scenario
from lab.chaos.scene import Scene

pytestmark = [pytest.mark.long, pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(240)]
BUSY = 3
"""So many times as long a recovery and an answer may take beside five other workers; `make chaos` holds the times."""
QUICK = (
    "adapter-killed",
    "api-server-restarted",
    "connections-cut",
    "prometheus-gone",
    "prometheus-frozen",
    "prometheus-emptied",
    "prometheus-zeros",
    "consul-frozen",
    "consul-emptied",
    "all-pulled-out",
    "certificate-rotated",
    "front-proxy-rotated",
)
"""Those that last some seconds; the others of `lab.chaos.scenarios` take longer, are alike, or have a test of their
own: a lost leader, broken settings.
"""
ROWS = [scenario for scenario in SCENARIOS if scenario.name in QUICK]


@pytest.fixture(scope="module")
def fault_scene() -> Iterator[Scene]:
    scene = Scene()
    scene.command = ("-m", "lab.chaos.shim", "--short")
    with scene:
        scene.watch.latest_answer *= BUSY
        yield scene


@pytest.mark.parametrize("scenario", ROWS, ids=[scenario.name for scenario in ROWS])
def test_nothing_shrinks_and_answers_come_in_time_throughout_a_fault(fault_scene: Scene, scenario: Scenario) -> None:
    outcome = play(fault_scene, replace(scenario, recovery=BUSY * scenario.recovery))
    print(outcome.line())
    assert not outcome.faults
