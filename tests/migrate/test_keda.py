"""A KEDA ScaledObject becomes a policy and an HPA that do what KEDA's own HPA did."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.migrate.keda import RECIPES
from adapter.commands.migrate.original import NoteKind
from tests.migrate.kit import (
    BEHAVIOR,
    EVERYTHING_KEDA,
    SCALED,
    Object,
    changed,
    faults_of,
    hpa_spec,
    kinds_at,
    migrated,
    note_at,
    notes_of,
    policy_spec,
)

TRIGGER = "spec.triggers[0].metadata"


def scaled(**spec: Any) -> Object:
    """The object with further or other fields of its spec."""
    return {**SCALED, "spec": {**SCALED["spec"], **spec}}


def metadata(**fields: Any) -> Object:
    """The object with other metadata of its trigger."""
    trigger = SCALED["spec"]["triggers"][0]
    return scaled(triggers=[{**trigger, "metadata": {**trigger["metadata"], **fields}}])


def test_the_common_object_becomes_a_ratio_of_its_query() -> None:
    assert policy_spec(SCALED) == {
        "strategy": "Ratio",
        "tolerance": "10%",
        "metrics": [
            {
                "name": "prometheus-0",
                "query": {"promQL": "sum(rate(requests[1m]))", "server": "prometheus"},
                "target": "100",
            }
        ],
    }
    spec = hpa_spec(SCALED)
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 100)
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def test_every_field_has_its_place() -> None:
    spec = policy_spec(EVERYTHING_KEDA)
    assert [metric["name"] for metric in spec["metrics"]] == ["requests", "cpu"]
    assert spec["metrics"][0]["query"]["promQL"] == "sum(sum by (job) (requests))"
    assert spec["metrics"][0]["target"] == "100500m"
    assert spec["metrics"][1]["resource"] == {"name": "cpu", "containers": ["app"], "relativeTo": "Request"}
    assert spec["mode"] == "Paused"
    assert spec["velocity"] == {"scaleUpPercent": 0, "scaleDownPercent": 0}
    assert spec["fallback"] == {"afterSeconds": 60, "replicas": 6}
    assert hpa_spec(EVERYTHING_KEDA)["behavior"]["scaleUp"] == {**BEHAVIOR["scaleUp"], "tolerance": "0"}
    [server] = migrated(EVERYTHING_KEDA).settings["prometheus"]["servers"]
    assert server == {
        "name": "prometheus",
        "url": "http://prometheus.a:9090",
        "insecureSkipVerify": True,
        "headers": {"X-Client": "one", "X-More": "two", "X-Scope-OrgID": "team-a"},
    }


def test_scaling_to_zero_is_told_and_the_minimum_is_one() -> None:
    from_zero = scaled(minReplicaCount=0)
    assert hpa_spec(from_zero)["minReplicas"] == 1
    assert "HPAScaleToZero" in note_at("spec.minReplicaCount", from_zero).sentence
    assert kinds_at(f"{TRIGGER}.activationThreshold", metadata(activationThreshold="5")) == []
    both = changed(metadata(activationThreshold="5"), "spec", "minReplicaCount", to=0)
    assert kinds_at(f"{TRIGGER}.activationThreshold", both) == [NoteKind.LOST]
    cpu = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}
    assert not kinds_at("spec.minReplicaCount", scaled(minReplicaCount=0, triggers=[cpu])), "it never went to zero"


def test_an_empty_answer_is_no_longer_zero() -> None:
    note = note_at(f"{TRIGGER}.ignoreNullValues", SCALED)
    assert note.kind is NoteKind.DIFFERS
    assert "or vector(0)" in note.sentence
    assert not kinds_at(f"{TRIGGER}.ignoreNullValues", metadata(ignoreNullValues="false"))
    assert "vector" not in policy_spec(SCALED)["metrics"][0]["query"]["promQL"]


@pytest.mark.parametrize(
    ("fallback", "written"),
    [
        ({"failureThreshold": 3, "replicas": 6}, {"afterSeconds": 90, "replicas": 6}),
        ({"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicas"}, None),
        ({"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicasIfLower"}, None),
        ({"failureThreshold": 3, "replicas": 0}, None),
        ({"failureThreshold": 2**31 - 1, "replicas": 1}, {"afterSeconds": 86_400, "replicas": 1}),
    ],
)
def test_a_fallback_only_ever_raises_the_count(fallback: Object, written: Object | None) -> None:
    assert policy_spec(scaled(fallback=fallback)).get("fallback") == written


def cron(start: str, end: str) -> Object:
    times = {"timezone": "Asia/Shanghai", "start": start, "end": end, "desiredReplicas": "20"}
    return scaled(triggers=[*SCALED["spec"]["triggers"], {"type": "cron", "metadata": times}])


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("0 11 * * 1-5", "30 13 * * 1-5", 9000),
        ("0 22 * * *", "0 6 * * *", 8 * 3600),
        ("0 8 * * 1", "0 20 * * 5", 4 * 86_400 + 12 * 3600),
        ("0 8 ? * 1-5", "0 20 ? * 1-5", 12 * 3600),
    ],
)
def test_a_cron_trigger_becomes_a_schedule(start: str, end: str, seconds: int) -> None:
    (schedule,) = policy_spec(cron(start, end))["schedules"]
    assert schedule == {
        "name": "cron-1", "cron": start.replace("?", "*"), "timeZone": "Asia/Shanghai", "durationSeconds": seconds,
        "minReplicas": 20,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("0 8 1 * *", "0 8 L * *", "its times do not last equally long"),
        ("0 8 1 * *", "0 8 20 * *", "its times last longer than a week"),
        ("often", "0 8 * * *", "its start or end is no cron expression"),
        ("0 8 * * 1-5", "0 20 * * *", "it also ends where it has not begun, and KEDA keeps its count"),
    ],
)
def test_a_cron_trigger_that_is_no_schedule_is_lost_with_its_reason(start: str, end: str, reason: str) -> None:
    assert reason in note_at("spec.triggers[1]", cron(start, end)).sentence
    assert "schedules" not in policy_spec(cron(start, end))


TRIGGERS: dict[str, Object] = yaml.load((Path(__file__).parent / "keda_triggers.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("kind", TRIGGERS)
def test_every_type_of_trigger_is_migrated_or_named_with_what_to_do(kind: str) -> None:
    trigger = {"type": kind, "metadata": TRIGGERS[kind]}
    original = scaled(triggers=[trigger])
    if kind in {"prometheus", "cpu", "memory"}:
        assert faults_of(original) == []
        return
    (fault,) = faults_of(original)
    assert fault.startswith(f"spec.triggers: no trigger becomes a metric, and a policy needs one: trigger {kind}: ")
    assert kind == "cron" or "PromQL" in fault or "export it" in fault or "sql_exporter" in fault
    beside = scaled(triggers=[*SCALED["spec"]["triggers"], trigger])
    assert faults_of(beside) == []
    named = [note for note in notes_of(beside) if note.field.startswith("spec.triggers[1]")]
    assert named or policy_spec(beside)["schedules"]


def test_every_trigger_with_a_recipe_has_a_row() -> None:
    assert set(RECIPES) <= set(TRIGGERS)
    assert len(TRIGGERS) > 60


def test_what_keda_stores_of_an_object_without_a_formula_is_none() -> None:
    """As `kubectl get scaledobject -o yaml` prints every object with `advanced`."""
    stored = {"restoreToOriginalReplicaCount": False, "scalingModifiers": {}}
    assert not faults_of(scaled(advanced=stored))
    assert not faults_of(metadata(activationThreshold="-1", threshold=2.5)), "numbers need no quotes"
    assert not kinds_at("spec.advanced.scalingModifiers", scaled(advanced=stored))


@pytest.mark.parametrize(
    ("original", "fault"),
    [
        (scaled(triggers=[]), "spec.triggers: there is no trigger"),
        (scaled(triggers=[{"type": "kafka", "metadata": {}}]), "trigger kafka: write it as a metric with PromQL: sum("),
        (scaled(triggers=[{"type": "cron", "metadata": {}}]), "spec.triggers[0].metadata.start: a cron expression"),
        (metadata(threshold="-1"), f"{TRIGGER}.threshold: '-1': must be at least 0.001"),
        (metadata(threshold="0"), f"{TRIGGER}.threshold: '0': must be at least 0.001"),
        (metadata(threshold="many"), f"{TRIGGER}.threshold: 'many': is no number"),
        (metadata(threshold="1e99"), f"{TRIGGER}.threshold: '1e99': is no number"),
        (metadata(threshold=None), f"{TRIGGER}.threshold: a number"),
        (metadata(query="sum(a) § 3"), "not readable at character 8, '§ 3'"),
        (metadata(serverAddress=None), f"{TRIGGER}.serverAddress: the address of Prometheus"),
        (metadata(ignoreNullValues="maybe"), 'write "true" or "false"'),
        (metadata(customHeaders="X"), "write name=value"),
        (metadata(customHeaders="X A=b"), f"{TRIGGER}.customHeaders[X A]: is an invalid header name"),
        (metadata(serverAddress="prometheus:9090"), f"{TRIGGER}.serverAddress: 'prometheus:9090': write http://"),
        (metadata(serverAddress="http://u:p@prometheus"), f"{TRIGGER}.serverAddress: contains a user"),
        (scaled(minReplicaCount=200), "spec.minReplicaCount: 200: must be at most maxReplicaCount (100)"),
        (scaled(idleReplicaCount=1), "spec.idleReplicaCount: 1: must be less than minReplicaCount"),
        (scaled(advanced={"scalingModifiers": {"formula": "a + b"}}), "a formula over triggers has no equivalent"),
        (scaled(fallback={"failureThreshold": 1, "replicas": 1, "behavior": "odd"}), "is no behavior of a fallback"),
    ],
)
def test_what_cannot_be_migrated_is_a_fault(original: Object, fault: str) -> None:
    assert any(fault in one for one in faults_of(original)), faults_of(original)
