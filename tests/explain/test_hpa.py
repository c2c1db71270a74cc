"""What the page says of the HPA: the next sync by the model of the controller, and its tolerance."""

from typing import Any

import pytest

from adapter.commands.explain.hpa import did_last, will_do
from tests.explain.kit import document, explained, hpa_object

EXACT = {"tolerance": "0", "stabilizationWindowSeconds": 0}
STOCK = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]


def said(up: dict[str, Any]) -> list[str]:
    return list(will_do(explained(hpa=hpa_object(behavior={"scaleUp": {**EXACT, **up}, "scaleDown": EXACT}))))


ONE_A_MINUTE = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}


@pytest.mark.parametrize(
    ("up", "sentence"),
    [
        ({}, "it sets 12 (now 10) at its next sync, at most 15 s from now by default"),
        (ONE_A_MINUTE, "it wants 12 and sets 11 (now 10): its behavior.scaleUp allows no more at once"),
        ({"stabilizationWindowSeconds": 120}, "it sets 12 (now 10) once nothing fewer was recommended for 120 s (stab"),
    ],
)
def test_the_next_sync_names_what_limits_it(up: dict[str, Any], sentence: str) -> None:
    first, tolerance = said(up)
    assert first.startswith(sentence)
    assert tolerance == "tolerance: 0, so it sets every count exactly"


def test_the_tolerance_of_the_hpa_has_the_remedy() -> None:
    behavior = {"scaleUp": {"tolerance": "0.1"}, "scaleDown": {"tolerance": "0.05"}}
    lines = list(will_do(explained(hpa=hpa_object(behavior=behavior))))
    assert "tolerance: it ignores changes of up to 10 % up and 5 % down; set tolerance 0 in both directions" in lines


def test_a_stock_hpa_without_tolerance_has_the_controllers_10_percent() -> None:
    hpa = hpa_object(metrics=STOCK)
    del hpa["spec"]["behavior"]
    lines = list(will_do(explained(hpa=hpa)))
    assert lines[0] == "it does not ask for this policy's count: other metrics set its count"
    ten = "tolerance: it ignores changes of up to 10 % up and 10 % down (it sets none, so the controller's counts)"
    assert ten in lines


def test_an_hpa_of_ours_without_tolerance_has_that_of_the_servers_settings() -> None:
    given = document()
    given["hpa"]["spec"]["behavior"] = {way: {"tolerance": "0.2"} for way in ("scaleUp", "scaleDown")}
    given["hpa"]["spec"]["metrics"] = hpa_object()["spec"]["metrics"]
    hpa = hpa_object()
    del hpa["spec"]["behavior"]
    assert [line for line in will_do(explained(given, hpa)) if "up to 20 % up and 20 % down (it sets none" in line]


def test_a_target_scaled_to_0_by_hand_says_who_wakes_it() -> None:
    given = document()
    given["scale"]["spec"]["replicas"] = 0
    first, *_ = will_do(explained(given))
    assert first.startswith("it rests at 0 until somebody scales the target to 1")
    assert explained(given).answer.decision.explanation[-1].startswith("the target was scaled to 0 by hand")  # type: ignore[union-attr]


def test_an_hpa_that_gets_an_error_keeps_its_count_and_without_an_answer_nothing_is_said() -> None:
    refused = explained(answer=None, refusal="409 Conflict: two policies")
    assert list(will_do(refused)) == ["it keeps its count: it gets an error instead of a value"]
    assert list(will_do(explained(answer=None))) == []


def test_the_status_of_the_hpa_is_shown() -> None:
    assert list(did_last(explained())) == [
        "current 10, desired 10",
        "it last scaled 5 min ago",
        "ScalingActive True (ValidMetricFound): it found a metric",
    ]
