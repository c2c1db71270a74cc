"""A DataDog WatermarkPodAutoscaler becomes a policy with the same watermarks, pace and options."""

from typing import Any

import pytest

from adapter.commands.migrate.original import NoteKind
from tests.migrate.kit import (
    EVERYTHING_WPA,
    WPA,
    Object,
    changed,
    faults_of,
    hpa_spec,
    kinds_at,
    migrated,
    note_at,
    policy_spec,
)

CPU = "spec.metrics[0].resource"


def wpa(**spec: Any) -> Object:
    """The object with further or other fields of its spec."""
    return {**WPA, "spec": {**WPA["spec"], **spec}}


def marks(high: str | None, low: str | None) -> Object:
    """The object with these watermarks."""
    resource = dict(WPA["spec"]["metrics"][0]["resource"])
    for key, value in (("highWatermark", high), ("lowWatermark", low)):
        resource.pop(key)
        if value is not None:
            resource[key] = value
    return wpa(metrics=[{"type": "Resource", "resource": resource}])


def test_the_common_object_has_an_exact_equivalent() -> None:
    assert policy_spec(WPA) == {
        "tolerance": "1%",
        "velocity": {"scaleUpPercent": 50, "scaleDownPercent": 30},
        "cooldown": {"scaleUpSeconds": 30, "scaleDownSeconds": 120},
        "acceptZeroUsage": False,
        "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}],
    }
    spec = hpa_spec(WPA)
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 20)
    assert spec["scaleTargetRef"] == WPA["spec"]["scaleTargetRef"]
    assert spec["behavior"]["scaleDown"] == {
        "stabilizationWindowSeconds": 0,
        "tolerance": "0",
        "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 1},
            {"type": "Percent", "value": 30, "periodSeconds": 1},
        ],
        "selectPolicy": "Max",
    }


def test_fields_that_are_absent_have_the_controllers_defaults() -> None:
    short = wpa()
    for key in ("algorithm", "tolerance", "scaleUpLimitFactor", "scaleDownLimitFactor"):
        short = changed(short, "spec", key)
    for key in ("upscaleForbiddenWindowSeconds", "downscaleForbiddenWindowSeconds", "minReplicas"):
        short = changed(short, "spec", key)
    spec = policy_spec(short)
    assert spec["algorithm"] == "Absolute"
    assert spec["tolerance"] == "10%"
    assert spec["velocity"] == {"scaleUpPercent": 50, "scaleDownPercent": 20}
    assert spec["cooldown"] == {"scaleUpSeconds": 60, "scaleDownSeconds": 300}
    assert hpa_spec(short)["minReplicas"] == 1


def test_a_tolerance_without_quotes_is_read_with_a_note() -> None:
    """As the controller's own samples have it."""
    bare = changed(wpa(), "spec", "tolerance", to=0.01)
    assert policy_spec(bare)["tolerance"] == "1%"
    assert "a number with a fraction" in note_at("spec.tolerance", bare).sentence


def test_every_option_has_its_field() -> None:
    spec = policy_spec(EVERYTHING_WPA)
    assert spec["mode"] == "Observe"
    assert spec["replicaMultiple"] == 2
    assert spec["convergeTowards"] == "High"
    assert spec["acceptZeroUsage"] is True
    assert spec["minServingPercent"] == 40
    assert spec["delay"] == {"scaleUpSeconds": 30, "scaleDownSeconds": 60}


def test_a_datadog_query_becomes_a_named_query_that_somebody_has_to_write() -> None:
    migration = migrated(EVERYTHING_WPA)
    metric = migration.pairs[0].policy["spec"]["metrics"][1]
    assert metric == {
        "name": "queue_depth", "query": {"name": "queue_depth"}, "highWatermark": "9", "lowWatermark": "5",
    }  # fmt: skip
    [query] = migration.settings["prometheus"]["queries"]
    assert (query["name"], query["scope"]) == ("queue_depth", "Service")
    note = note_at("spec.metrics[1].external.metricName", EVERYTHING_WPA)
    assert note.kind is NoteKind.TO_DO
    assert "q=a, z In (1)" in note.sentence


@pytest.mark.parametrize(
    ("factor", "percent"),
    [(0, 0), ("0", 0), ("0.5", 1), ("29.9", 29), ("2.0", 2), ("100m", 1), (10_000, 10_000), (20_000, None)],
)
def test_a_factor_that_is_no_whole_percentage_never_becomes_0(factor: object, percent: int | None) -> None:
    assert policy_spec(wpa(scaleUpLimitFactor=factor)).get("velocity", {}).get("scaleUpPercent") == percent


def test_the_widened_watermark_of_the_controller_is_told_where_it_is_truncated() -> None:
    note = note_at(f"{CPU}.lowWatermark", marks("100m", "20m"))
    assert note.kind is NoteKind.DIFFERS
    assert "beyond 20m" in note.sentence
    assert "exactly 19800u" in note.sentence
    assert not kinds_at(f"{CPU}.highWatermark", marks("100m", "20m"))


@pytest.mark.parametrize(
    ("high", "low", "written"),
    [
        ("100m", None, ("100m", "99999999n")),
        (None, "100m", ("100m", "99999999n")),
        ("100m", "100m", ("100m", "99999999n")),
        ("100500u", "50m", ("101m", "50m")),
        ("1k", "0", ("1k", None)),
        (2, 1, ("2", "1")),
    ],
)
def test_watermarks_are_read_as_the_controller_reads_them(
    high: str | None, low: str | None, written: tuple[str, str | None]
) -> None:
    [metric] = policy_spec(marks(high, low))["metrics"]
    assert (metric["highWatermark"], metric.get("lowWatermark")) == written


@pytest.mark.parametrize(
    ("original", "fault"),
    [
        (wpa(metrics=[]), "spec.metrics: there is no metric"),
        (wpa(recommender={"url": "http://a"}, metrics=[]), "spec.recommender: a recommender's answers"),
        (wpa(tolerance="1.5"), "spec.tolerance: '1.5': must be more than 0 and at most 1"),
        (wpa(scaleDownLimitFactor=100), "spec.scaleDownLimitFactor: 100: must be from 0 to below 100 percent"),
        (wpa(scaleUpLimitFactor="-1"), "spec.scaleUpLimitFactor: '-1': must be 0 or more percent"),
        (wpa(minReplicas=30), "spec.minReplicas: 30: must be at most maxReplicas (20)"),
        (wpa(maxReplicas=None), "spec.maxReplicas: is required"),
        (wpa(upscaleForbiddenWindowSeconds=0), "spec.upscaleForbiddenWindowSeconds: 0: write an integer"),
        (wpa(replicaScalingAbsoluteModulo=5000), "replicaMultiple is at most 1000"),
        (wpa(minReplicas=10**40), "spec.minReplicas: 100000000000"),
        (wpa(scaleTargetRef={"kind": "Shop", "name": "web"}), "spec.scaleTargetRef.apiVersion: is required"),
        (
            wpa(scaleTargetRef={"apiVersion": "v1", "kind": "Deployment", "name": "web"}),
            "spec.scaleTargetRef.apiVersion: 'v1': must have the API group of kind Deployment",
        ),
        (marks(None, None), f"{CPU}: give highWatermark, lowWatermark, or both"),
        (marks("1", "2"), f"{CPU}.lowWatermark: '2': must not be above highWatermark"),
        (marks("-1", None), f"{CPU}.highWatermark: '-1': a watermark must be from 0 to 1Ei"),
        (marks("0", "0"), f"{CPU}.highWatermark: '0': a watermark of 0"),
        (marks("a lot", "1"), f"{CPU}.highWatermark: 'a lot': 'a lot' is not a quantity"),
    ],
)
def test_what_the_controller_refuses_is_a_fault(original: Object, fault: str) -> None:
    assert any(fault in one for one in faults_of(original)), faults_of(original)


def test_a_long_name_is_cut_and_stays_unique() -> None:
    one, other = (changed(WPA, "metadata", "name", to="w" * 70 + end) for end in "ab")
    names = [migrated(each).pairs[0].name for each in (one, other)]
    assert len(set(names)) == 2
    assert all(len(name) == 63 for name in names)
    [pair] = migrated(one).pairs
    assert pair.policy["spec"]["hpa"] == pair.hpa["metadata"]["name"] == "w" * 70 + "a"
    assert kinds_at("metadata.name", one) == [NoteKind.DIFFERS]
