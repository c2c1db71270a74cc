"""The scenarios as tests see them: each is played once in a process."""

import functools
from collections.abc import Mapping

from tests.replay.scenarios.catalog import SCENARIOS
from tests.replay.scenarios.table import ScenarioResult, play


@functools.cache
def results(name: str) -> Mapping[str, ScenarioResult]:
    """The results of a scenario by autoscaler."""
    return {one.name: one for one in play(SCENARIOS[name])}


def counts(result: ScenarioResult) -> list[int]:
    """The counts in order."""
    return [count for _, count in result.counts]


def between(result: ScenarioResult, begin: float, end: float) -> list[int]:
    """The counts that were there at any time in [begin, end), in order."""
    before = [count for at, count in result.counts if at <= begin]
    return [before[-1], *(count for at, count in result.counts if begin < at < end)]
