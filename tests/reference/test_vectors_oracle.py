"""The reference model over the table of vectors."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.reference.model import decide

VECTORS: list[dict[str, Any]] = yaml.load((Path(__file__).parent / "vectors.yaml").read_text(), yaml.CSafeLoader)[
    "vectors"
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_reference_model_gives_the_specified_count(vector: dict[str, Any]) -> None:
    answer, expected = decide(vector["document"]), vector["expect"]
    if "error" in expected:
        assert answer["error"]
        assert expected["error"] is True or expected["error"] in answer["error"]
    else:
        assert (answer["desiredReplicas"], answer["error"]) == (expected["desiredReplicas"], None)


def test_every_row_has_a_vector_with_a_name_of_its_own() -> None:
    names = [vector["name"] for vector in VECTORS]
    assert len(names) == len(set(names))
    assert {int(name[:2]) for name in names} == {*range(1, 31), *range(32, 35), *range(36, 48)}
