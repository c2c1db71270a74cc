"""Every scenario of `python -m lab.faults`, on one scene; and that broken invariants are seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lab.faults.run import play
from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.faults.scene import LOAD, Scene, freeze, thaw
from lab.harness.workloads import until

pytestmark = [pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(240)]
BUSY = 3
"""So many times as long a recovery and an answer may take beside five other workers; `python -m lab.faults` holds the
times themselves.
"""


@pytest.fixture(scope="module")
def fault_scene(exhaustive: bool) -> Iterator[Scene]:
    scene = Scene()
    if not exhaustive:
        scene.command = ("-m", "lab.faults.short_shim")
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


class TestBrokenInvariantsAreSeen:
    def test_a_count_that_falls(self, fault_scene: Scene) -> None:
        @contextmanager
        def scaled_down(scene: Scene) -> Iterator[None]:
            # As an adapter does that believes half of the load.
            before = scene.workloads.replicas(LOAD)
            scene.load[LOAD] = 0.1 * before
            until(lambda: scene.workloads.replicas(LOAD) < before, 60, lambda: "the count stays")
            yield
            scene.calm()

        outcome = play(fault_scene, Scenario("planted", "the load really falls", scaled_down, hold=0))
        assert [one for one in outcome.faults if one.startswith("a count fell: by-load from")]

    def test_an_adapter_that_does_not_answer(self, fault_scene: Scene) -> None:
        @contextmanager
        def frozen(scene: Scene) -> Iterator[None]:
            freeze(scene.adapter.component)
            yield
            thaw(scene.adapter.component)

        hold = fault_scene.watch.latest_answer + 1
        outcome = play(fault_scene, Scenario("planted", "the adapter is stopped", frozen, hold=hold))
        assert [one for one in outcome.faults if "late or missing" in one]

    def test_answers_that_stay_wrong(self, fault_scene: Scene) -> None:
        @contextmanager
        def never_mended(scene: Scene) -> Iterator[None]:
            scene.prometheus.kill()
            yield

        outcome = play(fault_scene, Scenario("planted", "no Prometheus", never_mended, hold=12, recovery=2))
        fault_scene.prometheus.resume()
        assert [one for one in outcome.faults if "the answer is" in one]
