"""A stock HPA becomes a policy with today's target inside the band, and an HPA with today's bounds and behavior."""

import json
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.migrate.original import MigrationError
from adapter.commands.render.command import RenderError, Wanted, from_hpas
from adapter.load.quantity import NANO
from adapter.policy.behavior import count_metric
from adapter.policy.conditions import Reason
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.fuzz.spoil import mutate
from tests.render.kit import average, pair, stock, utilization


def spec_of(hpa: dict[str, Any]) -> dict[str, Any]:
    found: Any = pair(hpa).objects[0]
    return dict(found["spec"])


TOLERANCES = {"scaleUp": {"tolerance": "0.2"}, "scaleDown": {"tolerance": "0.3"}}


@pytest.mark.parametrize(
    ("hpa", "high", "low"),
    [
        pytest.param(stock(utilization(50), minReplicas=20, maxReplicas=60), "55%", "45%", id="where it acts today"),
        pytest.param(stock(average("600Mi"), minReplicas=2), "693M", "462M", id="where few replicas do not flap"),
        pytest.param(
            stock(utilization(50), minReplicas=9, behavior=TOLERANCES), "60%", "35%", id="at the HPA's own tolerances"
        ),
    ],
)
def test_the_watermarks_are_around_the_target(hpa: dict[str, Any], high: str, low: str) -> None:
    spec = spec_of(hpa)
    (metric,) = spec["metrics"]
    assert (spec["tolerance"], metric["highWatermark"], metric["lowWatermark"]) == ("0%", high, low)


def test_bounds_target_and_behavior_stay_but_for_the_tolerance() -> None:
    rules = {"stabilizationWindowSeconds": 120, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}
    rendered = pair(stock(behavior={"scaleDown": {**rules, "selectPolicy": "Min"}}))
    hpa: Any = rendered.objects[1]
    assert hpa["metadata"] == {"name": "web", "namespace": "shop", "labels": {"team": "a"}}
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (2, 20)
    assert hpa["spec"]["behavior"] == {
        "scaleUp": {"tolerance": "0"},
        "scaleDown": {**rules, "selectPolicy": "Min", "tolerance": "0"},
    }
    (metric,) = hpa["spec"]["metrics"]
    assert metric["object"]["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_an_external_metric_stays_beside_the_policy_and_that_is_said() -> None:
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": AVERAGE}}
    rendered = pair(stock(utilization(50), queue))
    hpa: Any = rendered.objects[1]
    assert hpa["spec"]["metrics"][1] == queue
    assert [one for one in rendered.remarks if one.startswith("Kept: spec.metrics[1].external: 'queue'")]


AVERAGE = {"type": "AverageValue", "averageValue": "5"}
PODS = {"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": AVERAGE}}
STORAGE = average("1Gi", "ephemeral-storage")


@pytest.mark.parametrize(
    ("hpa", "sentence"),
    [
        (stock(PODS), "spec.metrics[0].pods.metric.name: 'requests': is served by another adapter"),
        (stock(count_metric("web")), "'desired_replicas': the HPA follows a WatermarkPolicy already"),
        (stock(STORAGE), "has no equivalent: only cpu and memory come from metrics.k8s.io"),
        (stock(metrics=[]), "spec.metrics: there is no metric to migrate"),
        ({**stock(), "apiVersion": "autoscaling/v1"}, "apiVersion: 'autoscaling/v1': must be autoscaling/v2"),
        ({**stock(), "kind": "ScaledObject"}, "other autoscalers: effective-load migrate"),
        (stock(maxReplicas=1), "spec.minReplicas: 2: must be at most maxReplicas (1)"),
    ],
)
def test_what_has_no_equivalent_is_refused_with_its_field(hpa: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MigrationError) as refused:
        pair(hpa)
    assert sentence in str(refused.value)


def test_arguments_of_policies_are_refused_for_an_hpa() -> None:
    with pytest.raises(RenderError, match="--max-replicas: 5: is for policies"):
        from_hpas("hpa.yaml", "{}", Wanted(maximum=5))


RATIOS = st.fractions(0, Fraction(99, 100), max_denominator=100)


@given(st.integers(1, 10**15), st.integers(1, 100), RATIOS, RATIOS)
def test_the_target_is_inside_the_band_and_no_count_flaps(milli: int, least: int, up: Fraction, down: Fraction) -> None:
    behavior = {"scaleUp": {"tolerance": str(float(up))}, "scaleDown": {"tolerance": str(float(down))}}
    written, hpa = pair(stock(average(f"{milli}m"), minReplicas=least, maxReplicas=100, behavior=behavior)).objects
    read, target = parse_policy(written), Fraction(milli, 1000) * NANO
    high, low = read.metrics[0].high, read.metrics[0].low
    assert high is not None
    assert target <= high
    assert low is None or low <= target
    found = flaws(Wiring(policy=read, hpa=parse_hpa(hpa), has_tolerance=True))
    assert not [one for one in found if one.reason is Reason.WATERMARKS_TOO_CLOSE]


def test_a_spoilt_hpa_is_refused_or_rendered_and_never_breaks_the_command() -> None:
    chance = random.Random(1)
    refused = 0
    for _ in range(150):
        root: dict[str, Any] = {"all": stock(utilization(50), average("1Gi"), behavior={"scaleUp": {"tolerance": "0"}})}
        mutate(root, chance)
        try:
            from_hpas("hpa.json", json.dumps(root.get("all")), Wanted())
        except MigrationError:
            refused += 1
    assert 0 < refused < 150


def test_where_hpas_have_no_tolerance_the_policy_has_it_around_todays_target() -> None:
    """Watermarks at 55 % and 45 % would let the controller's own 10 % wait until 60.5 % and 40.5 %."""
    rendered = pair(stock(utilization(50), minReplicas=20, maxReplicas=60), tolerance=False)
    written: Any = [item["spec"] for item in rendered.objects]
    (metric,) = written[0]["metrics"]
    assert metric["resource"] == {"name": "cpu", "relativeTo": "Request"}
    assert (written[0]["tolerance"], metric["highWatermark"], metric["lowWatermark"]) == ("10%", "50%", "47%")
    assert written[1]["behavior"] == {"scaleUp": {}, "scaleDown": {}}
    assert not any("suppresses" in remark for remark in rendered.remarks)
