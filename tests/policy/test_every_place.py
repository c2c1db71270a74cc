"""Every field of a policy is known to every place that has to know it: a field cannot be half built.

The CRD says which fields there are. A place knows a field that it names as a text; what it may leave out has a reason.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import policy_reference

ROOT = Path(__file__).parents[2]
PLACES: Mapping[str, tuple[str, ...]] = {
    "the reader": ("adapter/policy/watermark_policy.py",),
    "the bounds of the schema, and the fuzz": ("tests/policy/test_schema.py", "tests/policy/wrong.py"),
    "the soak": tuple(f"lab/soak/{name}.py" for name in ("actions", "plan", "stage")),
}
_WRITES = {
    "fastScaleUp": "it is about a write of the companion, not about the count",
    "hpaConfiguration": "it is about a write of the companion, not about the count",
    "notify[]": "it is about messages, not about the count",
}
_NOT_DRAWN = "the soak does not draw it yet"
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "the soak": {
        **_WRITES,
        "hpa": "each policy has the HPA of its name",
        "metrics[]": "the harness writes the list",
        "metrics[].query.promQL": "its queries are those of the settings",
        **dict.fromkeys(("registry.group", "registry.namespace"), "its registry has one of each"),
        **dict.fromkeys(
            (
                "algorithm",
                "metrics[].query.containers[]",
                "metrics[].resource.containers[]",
                "pulledOut.deleteFirst",
                "registry.anyInstanceOut",
                "registry.match",
                "registry.podNameKey",
                "registry.port",
                "registry.treatUnhealthyAsOut",
                "saturationFactor",
                "schedules[]",
                "schedules[].cron",
                "schedules[].durationSeconds",
                "schedules[].timeZone",
            ),
            _NOT_DRAWN,
        ),
    },
}
"""Fields that a place may leave out, each with the reason."""


def named(files: tuple[str, ...]) -> set[str]:
    """All texts in these files."""
    trees = [ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_knows_every_field_or_says_why_not(place: str) -> None:
    known, left_out = named(PLACES[place]), LEFT_OUT.get(place, {})
    paths = list(policy_reference.spec_fields())
    absent = {path.removeprefix("spec.") for path in paths if path.removesuffix("[]").rpartition(".")[2] not in known}
    assert absent == set(left_out), f"{place} does not know these, or knows what is left out"
