"""An HPA that another adapter served becomes a policy that asks for the same counts."""

from typing import Any

import pytest
import yaml

from adapter.commands.migrate.original import NoteKind
from tests.migrate.kit import (
    BEHAVIOR,
    EVERYTHING_PA,
    PODS,
    RULES,
    Object,
    changed,
    external,
    faults_of,
    hpa,
    hpa_spec,
    kinds_at,
    migrated,
    note_at,
    policy_spec,
)

RPS = {"externalRules": [{"seriesQuery": "rps", "name": {"as": "rps"}, "metricsQuery": "sum(<<.Series>>)"}]}


def rule(**fields: Any) -> Object:
    """The first rule with other fields, alone."""
    return {"rules": [{**RULES["rules"][0], **fields}]}


def promql_of(*objects: Object) -> str:
    """The PromQL of the only policy's first metric."""
    text: str = policy_spec(*objects)["metrics"][0]["query"]["promQL"]
    return text


def test_a_rule_becomes_inline_promql_with_the_same_target() -> None:
    migration = migrated(RPS, hpa(external("rps", "10")))
    assert migration.pairs[0].policy["spec"] == {
        "strategy": "Ratio",
        "tolerance": "10%",
        "metrics": [{"name": "rps", "query": {"promQL": "sum(rps)", "server": "prometheus"}, "target": "10"}],
    }
    assert migration.settings["prometheus"]["inlineQueries"] is True


def test_a_target_may_become_two_watermarks() -> None:
    spec = policy_spec(RPS, hpa(external("rps", "10")), low_percent=60)
    assert "strategy" not in spec
    assert (spec["metrics"][0]["highWatermark"], spec["metrics"][0]["lowWatermark"]) == ("10", "6")


def test_every_metric_finds_its_query_or_is_told() -> None:
    objects = RULES, EVERYTHING_PA
    metrics = policy_spec(*objects)["metrics"]
    assert [metric["name"] for metric in metrics] == [
        "http_requests_per_second", "depth", "cpu", "memory", "ingress_requests",
    ]  # fmt: skip
    _, depth, cpu, memory, ingress = metrics
    assert depth["query"] == {"promQL": 'max(queue_depth{queue="mails"})', "server": "prometheus"}
    assert (cpu["resource"], cpu["target"]) == ({"name": "cpu", "relativeTo": "Request"}, "60%")
    assert (memory["resource"], memory["target"]) == ({"name": "memory", "containers": ["app"]}, "314572800")
    assert 'kube_ingress="web"' in ingress["query"]["promQL"]
    assert [metric["type"] for metric in hpa_spec(*objects)["metrics"]] == ["Object", "External"]
    assert kinds_at("spec.metrics[5].external", *objects) == [NoteKind.KEPT]
    assert hpa_spec(*objects)["metrics"][1] == EVERYTHING_PA["spec"]["metrics"][5]


def test_targets_for_the_whole_service_make_a_policy_for_the_total() -> None:
    value = {"type": "External", "external": {"metric": {"name": "rps"}, "target": {"type": "Value", "value": "500"}}}
    assert policy_spec(RPS, hpa(value))["algorithm"] == "Absolute"
    mixed = RPS, hpa(external("rps"), value)
    assert [metric["name"] for metric in policy_spec(*mixed)["metrics"]] == ["rps"]
    assert kinds_at("spec.metrics[1]", *mixed) == [NoteKind.LOST]


def test_behavior_stays_and_its_tolerance_moves_into_the_policy() -> None:
    spec = hpa_spec(RULES, EVERYTHING_PA)["behavior"]
    assert spec["scaleUp"] == {**BEHAVIOR["scaleUp"], "tolerance": "0"}
    assert spec["scaleDown"] == {**BEHAVIOR["scaleDown"], "tolerance": "0"}
    assert policy_spec(RULES, EVERYTHING_PA)["tolerance"] == "5%"
    assert "one tolerance" in note_at("spec.behavior.scaleUp.tolerance", RULES, EVERYTHING_PA).sentence


OVERRIDES = {"overrides": {"ns": {"resource": "namespaces"}, "kube_pod": {"resource": "pods"}}}
OF_INGRESS = {
    "describedObject": {"apiVersion": "extensions/v1beta1", "kind": "Ingress", "name": "front"},
    "metric": {"name": "ingress_rps"},
    "target": {"type": "Value", "value": "500"},
}
EXPRESSIONS = [
    {"key": "a", "operator": "In", "values": ["x.y", "z"]},
    {"key": "b", "operator": "NotIn", "values": ["q"]},
    {"key": "c", "operator": "Exists"},
    {"key": "d", "operator": "DoesNotExist"},
]


@pytest.mark.parametrize(
    ("rules", "metric", "promql"),
    [
        pytest.param(
            RULES, PODS,
            'sum(rate(http_requests_total{namespace="$namespace",verb="GET",pod!=""}[2m])) by (namespace, pod)',
            id="Pods: the rule's query for every pod of the namespace",
        ),
        pytest.param(
            rule(resources=OVERRIDES), PODS,
            'label_replace(label_replace(sum(rate(http_requests_total{ns="$namespace",verb="GET",kube_pod!=""}[2m])) '
            'by (ns, kube_pod), "namespace", "$1", "ns", "(.*)"), "pod", "$1", "kube_pod", "(.*)")',
            id="other labels of pods and namespaces are renamed",
        ),
        pytest.param(
            changed(RULES, "rules", 1, "resources", "template", to="kube_<<.Resource>>"),
            {"type": "Object", "object": OF_INGRESS},
            'sum(avg(ingress_rps{kube_namespace="$namespace",kube_ingress="front"}) by (kube_ingress))',
            id="Object: one number for it",
        ),
        pytest.param(
            RULES, changed(PODS, "pods", "metric", "selector", to={"matchExpressions": EXPRESSIONS}),
            r'sum(rate(http_requests_total{namespace="$namespace",a=~"x\\.y|z",b!~"q",c!="",d="",pod!=""}[2m])) '
            "by (namespace, pod)",
            id="a selector becomes matchers",
        ),
        pytest.param(
            RULES, external("depth", queue="mails"), 'max(queue_depth{queue="mails"})',
            id="external rules keep their namespace out",
        ),
    ],
)  # fmt: skip
def test_a_rule_becomes_the_query_of_its_metric(rules: Object, metric: Object, promql: str) -> None:
    assert promql_of(rules, hpa(metric)) == promql


def test_a_rule_that_cannot_be_evaluated_here_is_told_and_its_metric_left_out() -> None:
    both = hpa(
        PODS, {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}
    )
    for fields, reason in (
        ({"name": {"matches": "^(a+)+$", "as": "$1"}}, "cannot be told from the metric's name"),
        ({"seriesFilters": [{"is": "(x"}]}, "is not one"),
        ({"metricsQuery": "<<.Series>>{<<.LabelValuesByName.pod>>}"}, "uses more than .Series"),
        ({"resources": {"overrides": {"namespace": {"resource": "namespace"}}}}, "give no label"),
        ({"metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) § by (<<.GroupBy>>)"}, "becomes no PromQL"),
    ):  # fmt: skip
        objects = (rule(**fields), both)
        assert [metric["name"] for metric in policy_spec(*objects)["metrics"]] == ["cpu"]
        note = note_at("spec.metrics[0].pods", *objects)
        assert note.kind is NoteKind.LOST
        assert reason in note.sentence, note.sentence


@pytest.mark.parametrize(
    "name", ['x{namespace="other"}) or sum(secret', "x or y", "x#", "9x", 'x{a="', "$workload", "x\n"]
)
def test_the_name_of_a_metric_never_goes_on_as_promql_of_its_own(name: str) -> None:
    rules = rule(seriesQuery='{__name__=~"^.*"}', seriesFilters=[], name={})
    assert any(
        "none of its metrics" in one for one in faults_of(rules, hpa(changed(PODS, "pods", "metric", "name", to=name)))
    )


@pytest.mark.parametrize("value", ["$workload", "a-$namespace"])
def test_a_text_that_a_policy_would_replace_is_no_value_of_a_label(value: str) -> None:
    selectors = (
        {"matchLabels": {"a": value}},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]},
    )
    for selector in selectors:
        pods = changed(PODS, "pods", "metric", "selector", to=selector)
        assert any("none of its metrics" in one for one in faults_of(RULES, hpa(pods)))
    query = f'sum(<<.Series>>{{<<.LabelMatchers>>,a="{value}"}}) by (<<.GroupBy>>)'
    assert any("none of its metrics" in one for one in faults_of(rule(metricsQuery=query), hpa(PODS)))


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        ((hpa(external("rps")),), "none of its metrics can be migrated"),
        ((RULES,), "there is nothing to migrate but rules"),
        ((RULES, RULES, EVERYTHING_PA), "is a second configuration of prometheus-adapter"),
        (({"rules": {"custom": []}}, EVERYTHING_PA), "as in Helm values"),
        ((RPS, changed(hpa(external("rps")), "apiVersion", to="autoscaling/v1")), "must be autoscaling/v2"),
        ((RPS, hpa()), "spec.metrics: there is no metric"),
        ((RPS, hpa(external("rps", "0"))), "a target must be more than 0"),
        ((RPS, hpa(external("rps"), behavior={"scaleUp": {"policies": []}})), "must have at least one"),
        (({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},), "cannot be migrated; known are"),
        ((RPS, *[hpa(external("rps"))] * 2), "is already that of"),
    ],
)  # fmt: skip
def test_what_cannot_be_migrated_is_a_fault(objects: tuple[Object, ...], fault: str) -> None:
    assert any(fault in one for one in faults_of(*objects)), faults_of(*objects)


def test_a_config_map_and_plain_rules_are_the_same() -> None:
    data = {"config.yaml": yaml.safe_dump(RULES)}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    assert policy_spec(config, EVERYTHING_PA) == policy_spec(RULES, EVERYTHING_PA)


def test_where_hpas_have_no_tolerance_none_is_written_and_a_policy_below_the_controllers_is_told() -> None:
    original = hpa(external("rps", "10"), behavior={"scaleUp": {"tolerance": "0.02"}})
    (pair,) = migrated(RPS, original, tolerance=False).pairs
    assert pair.hpa["spec"]["behavior"] == {"scaleUp": {}, "scaleDown": {}}
    (told,) = (note.sentence for note in pair.notes if note.kind is NoteKind.TO_DO and note.field == "spec.tolerance")
    assert "HPAs have no field tolerance here: a policy with tolerance 10% asks for no such steps" in told
