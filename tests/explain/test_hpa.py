"""What the page says of the HPA: the next sync by the model of the controller, and its rules."""

from typing import Any

import pytest

from adapter.commands.explain.sentences import will_do
from tests.explain.kit import document, explained, hpa_object

EXACT = {"tolerance": "0", "stabilizationWindowSeconds": 0}


def said(*, down: dict[str, Any] | None = None, up: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    behavior = {"scaleUp": {**EXACT, **(up or {})}, "scaleDown": {**EXACT, **(down or {})}}
    return list(will_do(explained(hpa=hpa_object(behavior=behavior, **spec))))


ONE_A_MINUTE = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}


@pytest.mark.parametrize(
    ("up", "sentence"),
    [
        ({}, "it sets 12 (now 10) at its next sync, at most 15 s from now by default"),
        (ONE_A_MINUTE, "it wants 12 and sets 11 (now 10): its behavior.scaleUp allows no more at once"),
        ({"selectPolicy": "Disabled"}, "it wants 12 and sets 10 (now 10): its behavior.scaleUp allows no more at once"),
        ({"stabilizationWindowSeconds": 120}, "it sets 12 (now 10) once nothing fewer was recommended for 120 s (stab"),
    ],
)
def test_the_next_sync_is_told_with_what_limits_it(up: dict[str, Any], sentence: str) -> None:
    assert said(up=up)[0].startswith(sentence)


def test_the_rules_are_told_with_their_defaults() -> None:
    lines = said(down={"stabilizationWindowSeconds": 300})
    assert "bounds: 1 to 50" in lines
    assert "scaleUp: window 0 s, at most 4 pods in 15 s or 100 % in 15 s (the larger)" in lines
    assert "scaleDown: window 300 s, at most 100 % in 15 s" in lines
    assert "tolerance: 0, so it sets every count exactly" in lines


def test_a_tolerance_that_is_not_zero_is_told_with_the_remedy() -> None:
    given = document()
    given["hpa"]["spec"]["behavior"] = {"scaleUp": {"tolerance": "0.1"}, "scaleDown": {"tolerance": "0.05"}}
    given["hpa"]["spec"]["metrics"] = hpa_object()["spec"]["metrics"]
    lines = list(will_do(explained(given)))
    assert "tolerance: it ignores changes of up to 10 % up and 5 % down; set tolerance 0 in both directions" in lines


def test_an_hpa_that_asks_for_something_else_is_named() -> None:
    stock = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    lines = said(metrics=[{"type": "Resource", "resource": stock}])
    assert lines[0] == "HPA web does not ask for desired_replicas of policy web"
    assert not any(line.startswith("it sets") for line in lines)
