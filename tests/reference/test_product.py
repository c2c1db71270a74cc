"""The product decides every document as the reference model does, which shares no code with it."""

import ast
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.load.assess import assess
from adapter.load.decide import decide
from tests.reference.generator import document
from tests.reference.model import decide as decided_by_model
from tests.reference.translation import case_of

DOCUMENTS = int(os.environ["EFFECTIVE_LOAD_DOCUMENTS"])
STEP = 250
HERE = Path(__file__).parent
ORACLE = ("documents", "generator", "model")


def answers(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the model and the product answer: the count, the served value, whether it is an error, the pods."""
    model, case = decided_by_model(given), case_of(given)
    assessment = assess(case.inputs)
    decision = decide(assessment, case.scale, case.inputs.bounds, case.now)
    keys = ("desiredReplicas", "served", "pods")
    product = {
        "desiredReplicas": decision.desired,
        "served": decision.served,
        "pods": {each.pod.name: each.state.value for each in assessment.pods},
        "error": decision.error is not None,
    }
    return {key: model[key] for key in keys} | {"error": model["error"] is not None}, product


@pytest.mark.parametrize("first", range(0, DOCUMENTS, STEP))
def test_random_documents_are_decided_as_by_the_model(first: int) -> None:
    for seed in range(first, first + STEP):
        model, product = answers(document(seed))
        assert product == model, f"seed {seed}"


@cache
def vectors() -> dict[str, dict[str, Any]]:
    table = yaml.load((HERE / "vectors.yaml").read_text(), yaml.CSafeLoader)["vectors"]
    return {vector["name"]: json.loads(json.dumps(vector)) for vector in table}


def test_the_pages_vectors_have_the_specified_answer_by_model_and_product() -> None:
    for name, vector in vectors().items():
        model, product = answers(vector["document"])
        assert product == model, name
        expected, error = vector["expect"], decided_by_model(vector["document"])["error"]
        assert model["desiredReplicas"] == expected.get("desiredReplicas"), name
        assert (error is not None) is ("error" in expected), name
        assert expected.get("error", True) is True or expected["error"] in (error or ""), name


def test_every_row_of_the_page_has_a_vector() -> None:
    assert {int(name[:2]) for name in vectors()} == {*range(1, 31), *range(32, 35), *range(36, 48)}


def test_what_decides_beside_the_product_imports_the_standard_library_and_itself_alone() -> None:
    allowed = sys.stdlib_module_names | {f"tests.reference.{name}" for name in ORACLE}
    for name in ORACLE:
        nodes = list(ast.walk(ast.parse((HERE / f"{name}.py").read_text())))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
        assert {one if one in allowed else one.partition(".")[0] for one in imported} <= allowed, name
