"""A KEDA ScaledObject becomes a policy and an HPA that do what KEDA's own HPA did."""

from typing import Any

import pytest

from adapter.migrate.notes import NoteKind
from adapter.migrate.originals import Keda
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
    assert spec["metrics"][1]["resource"] == {"name": "cpu", "containers": ["app"], "of": "Request"}
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
    assert kinds_at(f"{TRIGGER}.activationThreshold", metadata(activationThreshold="5")) == [NoteKind.IRRELEVANT]
    both = changed(metadata(activationThreshold="5"), "spec", "minReplicaCount", to=0)
    assert kinds_at(f"{TRIGGER}.activationThreshold", both) == [NoteKind.LOST]
    [pair] = migrated(both).pairs
    assert isinstance(pair.original, Keda)
    assert (pair.original.idle, pair.original.activations) == (0, {"prometheus-0": 5000})


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


def test_triggers_without_an_equivalent_are_lost_by_name() -> None:
    note = note_at("spec.triggers[2]", EVERYTHING_KEDA)
    assert note.kind is NoteKind.LOST
    assert "schedules" in note.sentence


def test_what_to_do_before_deleting_it_is_told() -> None:
    advice = [note.sentence for note in notes_of(EVERYTHING_KEDA) if note.kind is NoteKind.TO_DO]
    assert any("kubectl delete scaledobject web -n shop" in one for one in advice)
    assert any("set it to false before you delete" in one for one in advice)


def test_numbers_need_no_quotes() -> None:
    assert policy_spec(metadata(threshold=2.5))["metrics"][0]["target"] == "2500m"


@pytest.mark.parametrize(
    ("original", "fault"),
    [
        (scaled(triggers=[]), "spec.triggers: there is no trigger"),
        (scaled(triggers=[{"type": "kafka", "metadata": {}}]), "none of its metrics can be migrated"),
        (metadata(threshold="0"), f"{TRIGGER}.threshold: '0': must be at least 0.001"),
        (metadata(threshold="many"), f"{TRIGGER}.threshold: 'many': is no number"),
        (metadata(threshold="1e99"), f"{TRIGGER}.threshold: '1e99': is no number"),
        (metadata(threshold=None), f"{TRIGGER}.threshold: a number"),
        (metadata(query="sum(a) § 3"), "is no PromQL"),
        (metadata(serverAddress=None), f"{TRIGGER}.serverAddress: the address of Prometheus"),
        (metadata(ignoreNullValues="maybe"), 'write "true" or "false"'),
        (metadata(customHeaders="X"), "write name=value"),
        (scaled(minReplicaCount=200), "spec.minReplicaCount: 200: must be at most maxReplicaCount (100)"),
        (scaled(idleReplicaCount=1), "spec.idleReplicaCount: 1: must be less than minReplicaCount"),
        (scaled(advanced={"scalingModifiers": {"formula": "a + b"}}), "a formula over triggers has no equivalent"),
        (scaled(fallback={"failureThreshold": 1, "replicas": 1, "behavior": "odd"}), "is no behavior of a fallback"),
    ],
)
def test_what_cannot_be_migrated_is_a_fault(original: Object, fault: str) -> None:
    assert any(fault in one for one in faults_of(original)), faults_of(original)
