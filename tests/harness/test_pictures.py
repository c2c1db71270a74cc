"""The pictures of the documentation are there, and diagrams say what is true."""

import pytest
import yaml

from lab.harness.pictures import terminal
from lab.harness.pictures.__main__ import NAMES, OUT


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
