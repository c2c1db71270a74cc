"""What a person reads of an explained decision: on a terminal, in plain lines, and as JSON."""

import io
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from rich.console import Console

from adapter.commands.decide.decision import decided
from adapter.commands.explain import sentences
from adapter.commands.explain.page import BAND_WIDTH, drawn_band, page
from adapter.commands.explain.reading import Explained, Served
from adapter.commands.explain.sentences import DrawnBand
from tests.explain.kit import document, explained

MILLI = 10**6


def drawn(one: Explained, width: int = 140, **console: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, **console).print(page(one))
    return out.getvalue()


def test_the_page_has_the_count_each_stage_the_pods_left_out_and_the_hpa() -> None:
    text = drawn(explained())
    for shown in (
        "asks for 12, now 10",
        "cpu allows at least 12 (9 serving pods",
        "✗  out-0",
        "metrics.k8s.io",
        "it sets 12 (now 10) at its next sync",
        "ScalingActive True (ValidMetricFound)",
    ):
        assert shown in text


def test_pods_that_are_left_out_come_first_and_a_narrow_terminal_cuts_nothing_off() -> None:
    lines = drawn(explained(), width=60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    signs = [sign for line in lines for sign in "✗✓" if f"{sign}  " in line]
    assert set(signs) == {"✗", "✓"}
    assert signs == sorted(signs, key="✗✓".index)


def band(**changes: Any) -> DrawnBand:
    case = explained().case
    assert case is not None
    (found,) = sentences.bands(case.inputs.policy, *decided(case))
    return replace(found, **{"low": Fraction(400 * MILLI)} | changes)


def test_a_band_is_drawn_to_scale_with_effective_and_raw_usage() -> None:
    _, line, legend, _ = (one.plain for one in drawn_band(band()))
    assert len(line) == BAND_WIDTH
    low, high = line.index("┃"), line.rindex("┃")
    assert low < line.index("○") < high < line.index("●")
    assert high == pytest.approx(3 * low, abs=2)
    assert "effective 1440m" in legend
    assert "1008m" in legend


@pytest.mark.parametrize(
    "changes",
    [
        {"low": None}, {"high": None}, {"usage": None}, {"raw": None}, {"usage": Fraction(0), "raw": Fraction(0)},
        {"target": Fraction(800 * MILLI)}, {"usage": Fraction(10**15)},
    ],
)  # fmt: skip
def test_any_band_can_be_drawn(changes: dict[str, Any]) -> None:
    _, line, _, _ = drawn_band(band(**changes))
    assert len(line.plain) == BAND_WIDTH


def test_json_has_the_whole_decision() -> None:
    data = json.loads(json.dumps(sentences.data(explained())))
    assert data["decision"]["desiredReplicas"] == 12
    assert (data["served"], data["error"], data["trouble"]) == ("12", None, [])
    assert data["hpa"]["willDo"][0].startswith("it sets 12")


def test_a_server_of_another_version_that_decided_otherwise_is_named() -> None:
    other = Served(current=10, desired_replicas=14, served="14", error=None, held_by=None)
    text = drawn(explained(served=other, server_version="9.9.9"))
    assert "the server (version 9.9.9) decided: 14, served as 14" in text


def test_an_error_as_the_decision_is_the_headline() -> None:
    given = document()
    given["usage"] = []
    lines = list(sentences.lines(explained(given)))
    assert lines[0].startswith("WatermarkPolicy shop/web: no decision: metric cpu")
    assert any("it keeps 10: the metric has an error" in line for line in lines)


def test_what_cannot_be_read_is_said_with_what_to_do_and_the_rest_is_shown() -> None:
    troubled = explained(case=None, served=None, document=b"", trouble=("you may not read the decision", "do this"))
    text = drawn(troubled)
    assert "the server's decision is not known" in text
    assert "do this" in text
    assert "current 10, desired 10" in text
    assert sentences.data(troubled)["trouble"] == ["you may not read the decision", "do this"]


def test_what_others_wrote_neither_controls_the_terminal_nor_is_markup() -> None:
    hostile = "\x1b]0;owned\x07[red]web[/red]"
    text = drawn(explained(trouble=(hostile,), name=hostile))
    assert not {"\x1b", "\x07"} & set(text), "without a terminal there are no colours either"
    assert "[red]web[/red]" in text
