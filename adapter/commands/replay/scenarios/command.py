"""`effective-load scenarios`: plays shipped scenarios."""

import json
from collections.abc import Iterator, Mapping, Sequence

from adapter.commands.replay.scenarios.catalog import SCENARIOS
from adapter.commands.replay.scenarios.play import play
from adapter.commands.replay.scenarios.report import as_data, table
from adapter.commands.replay.scenarios.scenario import ShippedScenario
from adapter.runtime.faults import Fault, FaultyDocument


class UnknownScenarioError(FaultyDocument):
    """A name is that of no scenario."""


def chosen(names: Sequence[str], scenarios: Mapping[str, ShippedScenario] = SCENARIOS) -> list[ShippedScenario]:
    """The scenarios of these names in their own order, all without names. Raises UnknownScenarioError."""
    known = ", ".join(scenarios)
    faults = [Fault("", name, f"is no scenario; the scenarios are {known}") for name in names if name not in scenarios]
    if faults:
        raise UnknownScenarioError(faults, "effective-load scenarios")
    return [one for one in scenarios.values() if not names or one.name in names]


def lines(names: Sequence[str], *, as_json: bool) -> Iterator[str]:
    """Play the scenarios; their table, or one JSON document."""
    played = [(scenario, play(scenario)) for scenario in chosen(names)]
    if as_json:
        yield json.dumps(as_data(played), indent=2)
    else:
        yield from table(played)
