"""A short soak with a fixed seed."""

from pathlib import Path

import pytest

from lab.soak.plan import services
from lab.soak.run import Run
from lab.soak.stage import Stage

pytestmark = [pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(240)]
SEED = 11
SECONDS = 15
FAULTS = ["prometheus-zeros", "consul-frozen", "metrics-server-slow"]


def test_a_short_soak_has_no_difference(tmp_path: Path) -> None:
    with Stage(services(SEED), SEED) as stage:
        run = Run(stage, print, tmp_path)
        run.play(SEED, SECONDS, FAULTS)
        assert not run.differences
        assert run.documents > 20
