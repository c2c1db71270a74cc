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
from tests.fuzz.spoil import mutate
from tests.migrate import kit

Capture = pytest.CaptureFixture[str]
TO_DO, LOST, DIFFERS, KEPT = NoteKind.TO_DO, NoteKind.LOST, NoteKind.DIFFERS, NoteKind.KEPT
SUM = "sum(<<.Series>>{<<.LabelMatchers>>})"


def test_an_hpas_behavior_and_bounds_stay_and_its_tolerance_moves() -> None:
    rate = [{"type": "Pods", "value": 2, "periodSeconds": 60}]
    behavior = {"scaleUp": {"tolerance": "0.05", "policies": rate}, "scaleDown": {"stabilizationWindowSeconds": 60}}
    original = kit.hpa(behavior=behavior)
    written, new = kit.pair(original).objects
    assert written["spec"]["tolerance"] == "5%"
    assert new["spec"]["behavior"]["scaleUp"] == {"tolerance": "0", "policies": rate}
    assert new["spec"]["behavior"]["scaleDown"] == {"tolerance": "0", "stabilizationWindowSeconds": 60}
    assert (new["spec"]["minReplicas"], new["spec"]["maxReplicas"]) == (2, 20)
    assert "spec.behavior.scaleDown.tolerance" in kit.notes(DIFFERS, original)
    smaller_down = kit.hpa(behavior={"scaleDown": {"tolerance": "0.02"}})
    assert "one tolerance; it is 10 %, that of the way up" in kit.notes(DIFFERS, smaller_down)


def test_what_whole_percents_and_the_stabilization_window_do_otherwise_is_noted_in_numbers() -> None:
    whole = "Differs: an HPA cuts utilization to whole percents: at 70 % with tolerance 10 % it rises from 78 % on, "
    later = "Differs: after a step down the policy keeps the count until samples began later, and the HPA's "
    found = kit.notes(None, kit.hpa(kit.resource(averageUtilization=70))).splitlines()
    assert f"{whole}the policy above 77 %." in found
    assert f"{later}stabilization window remembers that count: fewer, later steps down." in found
    found = kit.notes(None, kit.hpa(kit.resource(averageValue="100m"))).splitlines()
    assert [line.startswith(later) for line in found].count(True) == 1
    assert not any("whole percents" in line for line in found)


def test_an_external_metric_without_a_rule_stays_in_the_hpa() -> None:
    external = kit.served("External", "lag", topic="a")
    original = kit.hpa(kit.resource(), external)
    assert external in kit.pair(original).objects[1]["spec"]["metrics"]
    assert "Its own tolerance of 10 % is 0 there now" in kit.notes(KEPT, original)
    known = kit.rules(external=(kit.rule('lag{topic!=""}', SUM),))
    [_, moved] = kit.spec(known, original)["metrics"]
    assert moved["query"]["promQL"] == 'sum(lag{namespace="$namespace",topic="a"})'


@pytest.mark.parametrize("kind", ["External", "Pods"])
def test_a_selector_of_another_namespace_than_the_hpas_own_is_told_as_it_matches_nothing(kind: str) -> None:
    def original(namespace: str, *, known: bool = True) -> list[Any]:
        found = kit.rule('lag{pod!=""}', f"{SUM} by (<<.GroupBy>>)" if kind == "Pods" else SUM)
        metric = kit.served(kind, "lag", namespace=namespace, topic="a")
        made = kit.changed(kit.hpa(kit.resource(), metric), "metadata", "namespace", to="shop" if known else None)
        return [kit.rules(found, external=(found,)), made]

    assert '{namespace="$namespace",topic="a"' in kit.spec(*original("shop"))["metrics"][1]["query"]["promQL"]
    unknown = kit.spec(*original("shop", known=False))["metrics"][1]["query"]["promQL"]
    assert '{namespace="$namespace",namespace="shop",topic="a"' in unknown  # as prometheus-adapter asks
    other = original("kafka")
    assert len(kit.spec(*other)["metrics"]) == 1
    said = kit.notes(KEPT if kind == "External" else LOST, *other)
    assert "the selector's namespace kafka is not the HPA's, which the rule asks for as well" in said


def test_a_total_beside_metrics_of_pods_is_left_out() -> None:
    value = {**kit.prometheus(), "metricType": "Value"}
    assert kit.spec(kit.scaled(value))["algorithm"] == "Absolute"
    mixed = kit.scaled(value, kit.prometheus())
    assert len(kit.spec(mixed)["metrics"]) == 1
    assert "for the whole service (Value)" in kit.notes(LOST, mixed)


def test_keda_keeps_servers_schedules_and_pauses() -> None:
    trigger = kit.prometheus(unsafeSsl="true", customHeaders="X-A=hush", cortexOrgID="tenant")
    cron = kit.cron("0 8 * * 1-5", "30 18 * * 1-5", "6", "Asia/Tokyo")
    original = kit.scaled(trigger, cron, pollingInterval=10)
    original["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "yes"}  # KEDA takes any word for true
    migration = kit.migrated(original)
    assert migration.settings["prometheus"]["servers"] == [
        {"name": "prometheus", "url": "http://prometheus:9090", "insecureSkipVerify": True,
         "headers": {"X-A": "hush", "X-Scope-OrgID": "tenant"}}
    ]  # fmt: skip
    applied = json.dumps(migration.pairs[0].objects)
    assert not [secret for secret in ("prometheus:9090", "hush", "tenant") if secret in applied]
    found = migration.pairs[0].objects[0]["spec"]
    assert found["velocity"] == {"scaleDownPercent": 0}
    assert found["schedules"] == [
        {"name": "cron-1", "cron": "0 8 * * 1-5", "timeZone": "Asia/Tokyo", "durationSeconds": 37800, "minReplicas": 6}
    ]
    assert "pollingInterval" not in kit.notes(None, original)


@pytest.mark.parametrize("threshold", ["1200m", "10k", "1Gi", "abc", ""])
def test_a_threshold_that_keda_cannot_read_is_refused(threshold: str) -> None:
    assert "metadata.threshold: must be a plain number" in kit.refusal(kit.scaled(kit.prometheus(threshold=threshold)))


def test_a_formula_over_triggers_and_a_recommender_are_refused() -> None:
    formula = kit.scaled(advanced={"scalingModifiers": {"formula": "a + b"}})
    assert "scalingModifiers: a formula over triggers has no equivalent" in kit.refusal(formula)
    assert "recommender" in kit.refusal(kit.wpa(recommender={"url": "http://x"}))


def test_the_wpas_defaults_and_roundings_are_kept() -> None:
    found = kit.spec(kit.wpa(scaleUpLimitFactor="33.3", downscaleForbiddenWindowSeconds=90000, algorithm=None))
    assert found["algorithm"] == "Absolute"
    assert found["velocity"] == {"scaleUpPercent": 33, "scaleDownPercent": 20}
    assert found["cooldown"] == {"scaleUpSeconds": 60, "scaleDownSeconds": 86400}
    assert [kit.spec(kit.wpa(tolerance=given))["tolerance"] for given in ("0", 1)] == ["10%", "99%"]
    behavior = kit.pair(kit.wpa()).objects[1]["spec"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 0


def test_a_datadog_query_is_a_todo_and_has_no_answer_until_it_is_written() -> None:
    external = {"metricName": "trace.hits", "metricSelector": {"matchLabels": {"service": "a"}}, "highWatermark": "9"}
    original = kit.wpa(metrics=[{"type": "External", "external": external}])
    [metric] = kit.spec(original)["metrics"]
    assert metric["query"]["promQL"] == "write_here_the_promql_of_trace_hits"
    assert (metric["highWatermark"], metric["lowWatermark"]) == ("9", "8999999999n")
    said = kit.notes(TO_DO, original)
    assert "one number that is trace.hits for service=a" in said
    assert "write the address of your Prometheus into the settings" in said


def test_a_policy_alone_becomes_its_hpa() -> None:
    [written] = kit.pair(kit.policy()).objects
    assert written["metadata"] == {"name": "web", "namespace": "shop"}
    assert (written["spec"]["minReplicas"], written["spec"]["maxReplicas"]) == (1, 10)
    assert parse_hpa(written).asks_for("web")
    assert written["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 120
    assert "write yours in the place of Deployment web, 1 and 10" in kit.notes(TO_DO, kit.policy())
    narrow = {**kit.policy()["spec"]["metrics"][0], "lowWatermark": "1000m"}
    assert "or minReplicas higher" in kit.notes(DIFFERS, kit.policy(metrics=[narrow]))


def test_what_is_migrated_already_and_kedas_own_hpa_are_left_out() -> None:
    own = kit.hpa(name="keda-hpa-web")
    own["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "web"}]
    migration = kit.migrated(own, kit.scaled())
    assert [one.kind for one in migration.pairs] == ["ScaledObject"]
    assert "is the HPA of ScaledObject web" in str(migration.notes)
    assert "left out" in kit.refusal(*migration.pairs[0].objects)
    [refused] = kit.migrated(kit.scaled(), kit.hpa(name="b")).refused
    assert "its target is already that of ScaledObject web" in refused
    other_kind = kit.changed(kit.hpa(name="b"), "spec", "scaleTargetRef", "kind", to="StatefulSet")
    assert kit.migrated(kit.scaled(), other_kind).refused == []


def test_keys_that_were_not_read_are_named_once() -> None:
    original = kit.scaled(kit.prometheus(namespace="x"), unheardOf={"a": 1, "b": [{"c": 2}]})
    [said] = kit.notes(NoteKind.UNREAD, original).splitlines()
    assert said.endswith(": spec.triggers[0].metadata.namespace, spec.unheardOf.a, spec.unheardOf.b[0].c")


@pytest.mark.parametrize("low_percent", [None, 60])
@given(data=st.data())
def test_a_changed_original_is_refused_or_becomes_a_valid_pair(low_percent: int | None, data: st.DataObject) -> None:
    root: dict[str, Any] = {"all": kit.with_texts(data.draw(st.sampled_from([*kit.ORIGINALS, [kit.policy()]])))}
    mutate(root, data.draw(st.randoms(use_true_random=False)))
    found = root.get("all") if isinstance(root.get("all"), list) else []
    text = "\n---\n".join(json.dumps(one) for one in found if isinstance(one, dict) and "kind" in one)
    try:
        migration = kit.migrated_text(text, low_percent=low_percent)
    except AssertionError:
        return  # the text is not readable
    for one in migration.pairs:
        if len(one.objects) > 1:
            assert parse_hpa(one.objects[-1]).asks_for(parse_policy(one.objects[0]).name)
    documents = filter(None, yaml.safe_load_all(as_yaml(migration)))
    assert [*documents] == [document for one in migration.pairs for document in one.objects]


@pytest.mark.parametrize("name", ["watermarkpodautoscaler", "prometheus-adapter", "scaledobject"])
def test_the_examples_are_what_the_command_writes(name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kit.EXAMPLES)
    assert main(["migrate", f"{name}.yaml"]) == OK
    assert capsys.readouterr().out == (kit.EXAMPLES / f"{name}.migrated.yaml").read_text()


def test_the_command_reads_a_list_from_standard_input_and_exits_with_1_for_a_part(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = kit.changed(kit.scaled(kit.prometheus("sum(")), "metadata", "name", to="broken")
    listed = {"apiVersion": "v1", "kind": "List", "items": [kit.hpa(), broken]}
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
