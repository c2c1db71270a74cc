"""A short soak with a fixed seed, and a defect that it must find."""

from pathlib import Path

import pytest

from lab.soak.defects import DEFECTS
from lab.soak.plan import Invariant, services
from lab.soak.run import Run
from lab.soak.stage import Stage

pytestmark = [pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(240)]
SEED = 11
SECONDS = 15
FAULTS = ["prometheus-zeros", "consul-frozen", "metrics-server-slow"]


def test_a_short_soak_has_no_difference_and_a_planted_one_is_found(tmp_path: Path) -> None:
    with Stage(services(SEED), SEED) as stage:
        result = Run(stage, print, tmp_path).play(SEED, SECONDS, FAULTS)
        assert not result.findings
        assert result.counted.counts["documents"] > 20
        assert result.counted.counts["syncs"] > 20
        assert result.counted.counts["answers"] > 50
        planted = next(one for one in DEFECTS if one.name == "believes-zeros")
        stage.plant(planted.name)
        run = Run(stage, print, tmp_path, keep_going=True)
        run.play_group(planted.group)
        run.observer.close()
        # The model may see what the adapter believes before the controller acts on it.
        found = {one.invariant for one in run.observer.findings}
        assert found & {planted.invariant, Invariant.ANSWER}
