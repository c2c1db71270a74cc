"""The table, the JSON data and the command."""

import json

import pytest

from adapter.cli import main
from tests.replay.scenarios.recorded import PAGE, page


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.replay.scenarios --write renews it"


def test_json_has_the_figures_and_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "behavior", "-o", "json"]) == 0
    (scenario,) = json.loads(capsys.readouterr().out)["scenarios"]
    run = scenario["runs"][0]
    assert run["counts"][:2] == [{"at": 0, "replicas": 1}, {"at": 60, "replicas": 10}]
    assert run["replicas"] == {"least": 1, "most": 13, "final": 1}
    assert run["load"]["asked"] == pytest.approx(800 * 0.6 + 12_500 * 0.6, rel=0.01)


def test_an_unknown_scenario_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "spike", "spyke"]) == 2
    printed = capsys.readouterr().err
    assert "'spyke': is no scenario; the scenarios are spike, ramp, sawtooth" in printed
