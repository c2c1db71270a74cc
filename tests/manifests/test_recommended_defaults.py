"""What people copy: every example and document has the watermarks and the pace that docs/watermarks.md recommends."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.load.spec import Policy, Strategy
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.watermark_policy import KIND, parse_policy

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILES = [
    *(ROOT / "manifests" / "examples").glob("*.yaml"),
    ROOT / "docs" / "examples" / "policies.yaml",
    ROOT / "README.md",
    ROOT / "README.zh.md",
    *(ROOT / "docs").glob("*.md"),
]


def objects(file: Path) -> Iterator[Mapping[str, Any]]:
    """The Kubernetes objects of a file, or of a document's blocks of YAML."""
    text = file.read_text(encoding="utf-8")
    for block in _BLOCK.findall(text) if file.suffix == ".md" else [text]:
        try:
            found = list(yaml.safe_load_all(block))
        except yaml.YAMLError:  # a block with an ellipsis
            continue
        yield from (one for one in found if isinstance(one, dict) and "spec" in one)


def policies(file: Path) -> list[Policy]:
    """The policies of a file; not those that stand for any, whose metrics are an ellipsis."""
    return [
        parse_policy({**one, "metadata": {"namespace": "shop", **one["metadata"]}})
        for one in objects(file)
        if one.get("kind") == KIND and "..." not in one["spec"].get("metrics", ())
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_watermarks_and_the_pace_down_are_those_that_are_recommended(file: Path) -> None:
    for policy in policies(file):
        for metric in policy.metrics:
            if metric.high is not None and metric.low is not None:
                assert metric.low / metric.high >= Fraction(3, 4), metric.name
    followed = {policy.hpa for policy in policies(file) if policy.strategy is Strategy.WATERMARK}
    for one in objects(file):
        if one.get("kind") == "HorizontalPodAutoscaler" and one["metadata"]["name"] in followed:
            down = one["spec"]["behavior"]["scaleDown"]
            assert down["stabilizationWindowSeconds"] == SHIPPED_PACE.stabilization
            assert down["policies"] == msgspec.to_builtins([*SHIPPED_PACE.policies])


def test_policies_and_hpas_are_found_at_all() -> None:
    kinds = [one.get("kind") for file in FILES for one in objects(file)]
    assert kinds.count(KIND) >= 5
    assert kinds.count("HorizontalPodAutoscaler") >= 4
