"""The pictures of the documentation: terminals show what commands print, and diagrams say what is true."""

import re
import xml.etree.ElementTree as ET

import pytest
import yaml

from lab.harness.pictures import terminal
from lab.harness.pictures.__main__ import NAMES, OUT


def test_a_command_believes_that_it_writes_to_a_terminal_and_keeps_its_colours() -> None:
    with terminal.printing(r"test -t 1 && printf '\033[31mred\033[0m %s\n' $(tput cols)", {}) as lines:
        svg = terminal.draw("a.svg", "show it", list(lines))
    assert ">red</text>" in svg
    assert f"{terminal.WIDTH}" in svg
    assert "#f06054" in svg
    assert "$&#160;" in svg


def test_a_picture_of_a_terminal_loads_nothing() -> None:
    svg = terminal.draw("a.svg", "ls", [(0.0, "file")])
    ET.fromstring(svg)
    assert not re.search(r"url\((?!#)|@import|href", svg)


def test_what_differs_in_each_run_is_written_in_one_way() -> None:
    steady = terminal.Steady()
    first = steady.text("web-7f496895c8-7hlk9 web-7f496895c8-7xgz5 at 127.0.0.1:45123")
    assert first == "web-7f496895c8-pod01 web-7f496895c8-pod02 at 127.0.0.1:6443"
    assert steady.text("web-7f496895c8-7xgz5") == "web-7f496895c8-pod02"


def test_every_picture_is_there() -> None:
    assert not [name for name in NAMES if not (OUT / name).is_file()]


@pytest.mark.parametrize(
    ("name", "vector", "says"),
    [
        ("pulled-out", "08-overloaded-and-out", "{} pods."),
        ("doubt", "30-empty-roster", "The larger count wins: {}."),
        ("band", "01-above", "⌈7500 / 1200⌉ = {}"),
        ("band", "02-below", "⌊2100 / 400⌋ = {}"),
    ],
)
def test_a_diagrams_count_is_that_of_the_test_vector(name: str, vector: str, says: str) -> None:
    expected = yaml.safe_load((terminal.ROOT / "tests" / "vectors" / "expected.yaml").read_text(encoding="utf-8"))
    diagram = (OUT / f"concept-{name}.svg").read_text(encoding="utf-8")
    assert says.format(expected[vector]["desiredReplicas"]) in diagram
