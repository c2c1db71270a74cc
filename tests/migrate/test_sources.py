"""Each source's fields in the pair, the command's output, and what stays in the new HPA."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.cli import main
from adapter.commands.migrate.read import NoteKind
from adapter.commands.migrate.write import as_yaml
from adapter.commands.terminal.command import FAILED, INVALID, OK
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.fuzz.spoil import mutate, places
from tests.migrate.kit import (
    EXAMPLES,
    changed,
    hpa,
    migrated,
    migrated_text,
    notes,
    pair,
    pods_metric,
    policy,
    prometheus,
    refusal,
    resource,
    rule,
    rules,
    scaled,
    spec,
    wpa,
)

Capture = pytest.CaptureFixture[str]
ORIGINALS = [
    [hpa(resource(), resource("memory", averageValue="300Mi"), behavior={"scaleDown": {"tolerance": "0.2"}})],
    [rules(rule(**{"as": "rps"})), hpa(pods_metric("rps"))],
    [scaled(prometheus(), {"type": "kafka", "metadata": {}}, fallback={"failureThreshold": 3, "replicas": 4})],
    [wpa(upscaleDelayAboveWatermarkSeconds=60, convergeTowardsWatermark="lowwatermark")],
    [policy()],
]


def test_an_hpas_behavior_and_bounds_stay_and_its_tolerance_moves() -> None:
    rate = [{"type": "Pods", "value": 2, "periodSeconds": 60}]
    behavior = {"scaleUp": {"tolerance": "0.05", "policies": rate}, "scaleDown": {"stabilizationWindowSeconds": 60}}
    original = hpa(behavior=behavior)
    written, new = pair(original).objects
    assert written["spec"]["tolerance"] == "5%"
    assert new["spec"]["behavior"]["scaleUp"] == {"tolerance": "0", "policies": rate}
    assert new["spec"]["behavior"]["scaleDown"] == {"tolerance": "0", "stabilizationWindowSeconds": 60}
    assert (new["spec"]["minReplicas"], new["spec"]["maxReplicas"]) == (2, 20)
    assert "spec.behavior.scaleDown.tolerance" in notes(NoteKind.DIFFERS, original)
    smaller_down = hpa(behavior={"scaleDown": {"tolerance": "0.02"}})
    assert "one tolerance; it is 10 %, that of the way up" in notes(NoteKind.DIFFERS, smaller_down)


def test_what_whole_percents_and_the_stabilization_window_do_otherwise_is_noted_in_numbers() -> None:
    whole = "Differs: an HPA cuts utilization to whole percents: at 70 % with tolerance 10 % it rises from 78 % on, "
    later = "Differs: after a step down the policy keeps the count until samples began later, and the HPA's "
    found = notes(None, hpa(resource(averageUtilization=70))).splitlines()
    assert f"{whole}the policy above 77 %." in found
    assert f"{later}stabilization window remembers that count: fewer, later steps down." in found
    found = notes(None, hpa(resource(averageValue="100m"))).splitlines()
    assert [line.startswith(later) for line in found].count(True) == 1
    assert not any("whole percents" in line for line in found)


def test_an_external_metric_without_a_rule_stays_in_the_hpa() -> None:
    metric = {"name": "lag", "selector": {"matchLabels": {"topic": "a"}}}
    external = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "5"}}
    original = hpa(resource(), {"type": "External", "external": external})
    assert {"type": "External", "external": external} in pair(original).objects[1]["spec"]["metrics"]
    assert "Its own tolerance of 10 % is 0 there now" in notes(NoteKind.KEPT, original)
    known = rules(external=(rule('lag{topic!=""}', "sum(<<.Series>>{<<.LabelMatchers>>})"),))
    [_, moved] = spec(known, original)["metrics"]
    assert moved["query"]["promQL"] == 'sum(lag{namespace="$namespace",topic="a"})'


@pytest.mark.parametrize("kind", ["External", "Pods"])
def test_a_selector_of_another_namespace_than_the_hpas_own_is_told_as_it_matches_nothing(kind: str) -> None:
    def original(namespace: str, *, known: bool = True) -> list[Any]:
        selector = {"matchLabels": {"namespace": namespace, "topic": "a"}}
        target = {"type": "AverageValue", "averageValue": "5"}
        metric = {"type": kind, kind.lower(): {"metric": {"name": "lag", "selector": selector}, "target": target}}
        found = rule('lag{pod!=""}', "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)" if kind == "Pods" else
                     "sum(<<.Series>>{<<.LabelMatchers>>})")  # fmt: skip
        made = changed(hpa(resource(), metric), "metadata", "namespace", to="shop" if known else None)
        return [rules(found, external=(found,)), made]

    assert '{namespace="$namespace",topic="a"' in spec(*original("shop"))["metrics"][1]["query"]["promQL"]
    unknown = spec(*original("shop", known=False))["metrics"][1]["query"]["promQL"]
    assert '{namespace="$namespace",namespace="shop",topic="a"' in unknown  # as prometheus-adapter asks
    other = original("kafka")
    assert len(spec(*other)["metrics"]) == 1
    said = notes(NoteKind.KEPT if kind == "External" else NoteKind.LOST, *other)
    assert "the selector's namespace kafka is not the HPA's, which the rule asks for as well" in said


def test_a_total_beside_metrics_of_pods_is_left_out() -> None:
    value = {**prometheus(), "metricType": "Value"}
    assert spec(scaled(value))["algorithm"] == "Absolute"
    mixed = scaled(value, prometheus())
    assert len(spec(mixed)["metrics"]) == 1
    assert "for the whole service (Value)" in notes(NoteKind.LOST, mixed)


def test_keda_keeps_servers_schedules_and_pauses() -> None:
    cron = {"timezone": "Asia/Tokyo", "start": "0 8 * * 1-5", "end": "30 18 * * 1-5", "desiredReplicas": "6"}
    trigger = prometheus(unsafeSsl="true", customHeaders="X-A=b", cortexOrgID="t", namespace="x")
    original = scaled(trigger, {"type": "cron", "metadata": cron}, pollingInterval=10)
    original["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "yes"}  # KEDA takes any word for true
    migration = migrated(original)
    assert migration.settings["prometheus"]["servers"] == [
        {"name": "prometheus", "url": "http://prometheus:9090", "insecureSkipVerify": True,
         "headers": {"X-A": "b", "X-Scope-OrgID": "t"}}
    ]  # fmt: skip
    found = migration.pairs[0].objects[0]["spec"]
    assert found["velocity"] == {"scaleDownPercent": 0}
    assert found["schedules"] == [
        {"name": "cron-1", "cron": "0 8 * * 1-5", "timeZone": "Asia/Tokyo", "durationSeconds": 37800, "minReplicas": 6}
    ]
    assert "spec.triggers[0].metadata.namespace" in notes(NoteKind.UNREAD, original)
    assert "pollingInterval" not in notes(None, original)


@pytest.mark.parametrize("threshold", ["1200m", "10k", "1Gi", "abc", ""])
def test_a_threshold_that_keda_cannot_read_is_refused(threshold: str) -> None:
    assert "metadata.threshold: must be a plain number" in refusal(scaled(prometheus(threshold=threshold)))


def test_an_annotation_of_keda_that_means_nothing_here_is_named() -> None:
    original = scaled()
    keys = ("autoscaling.keda.sh/new", "autoscaling.keda.sh/force-activation", "validations.keda.sh/hpa-ownership")
    original["metadata"]["annotations"] = dict.fromkeys(keys, "true")
    [named] = notes(NoteKind.LOST, original).splitlines()
    assert "'autoscaling.keda.sh/new': are not carried over" in named


def test_a_formula_over_triggers_and_a_recommender_are_refused() -> None:
    formula = scaled(advanced={"scalingModifiers": {"formula": "a + b"}})
    assert "scalingModifiers: a formula over triggers has no equivalent" in refusal(formula)
    assert "recommender" in refusal(wpa(recommender={"url": "http://x"}))


def test_the_wpas_defaults_and_roundings_are_kept() -> None:
    found = spec(changed(wpa(scaleUpLimitFactor="33.3", downscaleForbiddenWindowSeconds=90000), "spec", "algorithm",
                         to=None))  # fmt: skip
    assert found["algorithm"] == "Absolute"
    assert found["velocity"] == {"scaleUpPercent": 33, "scaleDownPercent": 20}
    assert found["cooldown"] == {"scaleUpSeconds": 60, "scaleDownSeconds": 86400}
    assert (spec(wpa(tolerance="0"))["tolerance"], spec(wpa(tolerance=1))["tolerance"]) == ("10%", "99%")
    behavior = pair(wpa()).objects[1]["spec"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 0


def test_a_datadog_query_is_a_todo_and_has_no_answer_until_it_is_written() -> None:
    external = {"metricName": "trace.hits", "metricSelector": {"matchLabels": {"service": "a"}}, "highWatermark": "9"}
    original = wpa(metrics=[{"type": "External", "external": external}])
    [metric] = spec(original)["metrics"]
    assert metric["query"]["promQL"] == "write_here_the_promql_of_trace_hits"
    assert (metric["highWatermark"], metric["lowWatermark"]) == ("9", "8999999999n")
    said = notes(NoteKind.TO_DO, original)
    assert "one number that is trace.hits for service=a" in said
    assert "write the address of your Prometheus into the settings" in said


def test_a_policy_alone_becomes_its_hpa() -> None:
    [written] = pair(policy()).objects
    assert written["metadata"] == {"name": "web", "namespace": "shop"}
    assert (written["spec"]["minReplicas"], written["spec"]["maxReplicas"]) == (1, 10)
    assert parse_hpa(written).asks_for("web")
    assert written["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 120
    assert "write yours in the place of Deployment web, 1 and 10" in notes(NoteKind.TO_DO, policy())
    narrow = {**policy()["spec"]["metrics"][0], "lowWatermark": "1000m"}
    assert "or minReplicas higher" in notes(NoteKind.DIFFERS, policy(metrics=[narrow]))


def test_what_is_migrated_already_and_kedas_own_hpa_are_left_out() -> None:
    own = hpa(name="keda-hpa-web")
    own["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "web"}]
    migration = migrated(own, scaled())
    assert [one.kind for one in migration.pairs] == ["ScaledObject"]
    assert "is the HPA of ScaledObject web" in str(migration.notes)
    assert "left out" in refusal(*migration.pairs[0].objects)
    assert "its target is already that of ScaledObject web" in "".join(migrated(scaled(), hpa(name="b")).refused)
    other_kind = changed(hpa(name="b"), "spec", "scaleTargetRef", "kind", to="StatefulSet")
    assert migrated(scaled(), other_kind).refused == []


def test_keys_that_were_not_read_are_named_once() -> None:
    original = changed(scaled(), "spec", "unheardOf", to={"a": 1, "b": [{"c": 2}]})
    [said] = notes(NoteKind.UNREAD, original).splitlines()
    assert "spec.unheardOf.a, spec.unheardOf.b[0].c" in said


@pytest.mark.parametrize("low_percent", [None, 60])
@given(data=st.data())
def test_a_changed_original_is_refused_or_becomes_a_valid_pair(low_percent: int | None, data: st.DataObject) -> None:
    root = {"all": json.loads(json.dumps(data.draw(st.sampled_from(ORIGINALS))))}
    chance = data.draw(st.randoms(use_true_random=False))
    if any(places(root)):
        mutate(root, chance)
    changed_ones = root.get("all") if isinstance(root.get("all"), list) else []
    text = "\n---\n".join(json.dumps(one) for one in changed_ones if isinstance(one, dict) and "kind" in one)
    try:
        migration = migrated_text(text, low_percent=low_percent)
    except AssertionError:
        return  # the text is not readable
    for one in migration.pairs:
        if len(one.objects) > 1:
            parsed = parse_policy(one.objects[0])
            assert parse_hpa(one.objects[-1]).asks_for(parsed.name)
    documents: list[Any] = [document for document in yaml.safe_load_all(as_yaml(migration)) if document]
    assert documents == [dict(document) for one in migration.pairs for document in one.objects]


@pytest.mark.parametrize("name", ["watermarkpodautoscaler", "prometheus-adapter", "scaledobject"])
def test_the_examples_are_what_the_command_writes(name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert main(["migrate", f"{name}.yaml"]) == OK
    assert capsys.readouterr().out == (EXAMPLES / f"{name}.migrated.yaml").read_text()


def test_the_command_reads_a_list_from_standard_input_and_exits_with_1_for_a_part(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = changed(scaled(prometheus("sum(")), "metadata", "name", to="broken")
    listed = {"apiVersion": "v1", "kind": "List", "items": [hpa(), broken]}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(listed).encode())))
    assert main(["migrate", "-"]) == FAILED
    written, said = capsys.readouterr()
    assert [one["kind"] for one in yaml.safe_load_all(written) if one] == ["WatermarkPolicy", "HorizontalPodAutoscaler"]
    assert "broken is not migrated: spec.triggers[0].metadata.query" in said


def test_the_command_exits_with_2_where_nothing_is_migrated(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    assert main(["migrate", str(file)]) == INVALID
    assert "there is nothing to migrate" in capsys.readouterr().err
