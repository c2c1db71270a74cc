"""An HPA that another adapter served becomes a policy that asks for the same counts."""

from typing import Any

import pytest
import yaml

from adapter.commands.migrate.original import NoteKind
from tests.migrate.kit import (
    BEHAVIOR,
    EVERYTHING_KMA,
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

RPS = {"metric-config.external.rps.prometheus/query": "sum(rps)"}
SERVER = "metric-config.external.rps.prometheus/prometheus-server"


def rule(**fields: Any) -> Object:
    """The first rule with other fields, alone."""
    return {"rules": [{**RULES["rules"][0], **fields}]}


def promql_of(*objects: Object) -> str:
    """The PromQL of the only policy's first metric."""
    text: str = policy_spec(*objects)["metrics"][0]["query"]["promQL"]
    return text


def test_an_annotated_query_becomes_inline_promql_with_the_same_target() -> None:
    migration = migrated(hpa(external("rps", "10", type="prometheus"), annotations=RPS))
    assert migration.pairs[0].policy["spec"] == {
        "strategy": "Ratio",
        "tolerance": "10%",
        "metrics": [{"name": "rps", "query": {"promQL": "sum(rps)", "server": "prometheus"}, "target": "10"}],
    }
    assert migration.settings["prometheus"]["inlineQueries"] is True


def test_a_target_may_become_two_watermarks() -> None:
    spec = policy_spec(hpa(external("rps", "10"), annotations=RPS), low_percent=60)
    assert "strategy" not in spec
    assert (spec["metrics"][0]["highWatermark"], spec["metrics"][0]["lowWatermark"]) == ("10", "6")


def test_every_metric_finds_its_query_or_is_told() -> None:
    spec = policy_spec(EVERYTHING_KMA)
    assert [metric["name"] for metric in spec["metrics"]] == ["rps", "cpu", "memory", "share"]
    rps, cpu, memory, share = spec["metrics"]
    assert rps["query"] == {"promQL": "sum(sum by (job) (rps))", "server": "prometheus"}
    assert (cpu["resource"], cpu["target"]) == ({"name": "cpu", "of": "Request"}, "60%")
    assert (memory["resource"], memory["target"]) == ({"name": "memory", "containers": ["app"]}, "314572800")
    assert share["query"] == {"promQL": "sum(rps)", "server": "prometheus-2"}
    assert [metric["type"] for metric in hpa_spec(EVERYTHING_KMA)["metrics"]] == ["Object", "External"]
    assert kinds_at("spec.metrics[4].external", EVERYTHING_KMA) == [NoteKind.KEPT]
    assert hpa_spec(EVERYTHING_KMA)["metrics"][1] == EVERYTHING_KMA["spec"]["metrics"][4]
    annotations = migrated(EVERYTHING_KMA).pairs[0].hpa["metadata"]["annotations"]
    assert annotations == {"metric-config.external.sqs.sqs/queue": "mails"}
    gone = "metadata.annotations[metric-config.external.gone.prometheus/query]"
    assert kinds_at(gone, EVERYTHING_KMA) == [NoteKind.IRRELEVANT]


def test_the_older_annotation_with_a_name_for_the_query_is_read() -> None:
    key = "metric-config.external.prometheus-query.prometheus/mails"
    original = hpa(external("prometheus-query", **{"query-name": "mails"}), annotations={key: "sum(mails)"})
    assert policy_spec(original)["metrics"][0]["name"] == "mails"
    assert promql_of(original) == "sum(mails)"


def scaling_schedule(*schedules: Object, kind: str = "ScalingSchedule", **metadata: str) -> Object:
    head = {"apiVersion": "zalando.org/v1", "kind": kind, "metadata": {"name": "peak", **metadata}}
    return {**head, "spec": {"schedules": list(schedules)}}


def scheduled(kind: str = "ScalingSchedule") -> Object:
    """A metric of 30 a pod, whose value a ScalingSchedule says."""
    described = {"apiVersion": "zalando.org/v1", "kind": kind, "name": "peak"}
    target = {"type": "AverageValue", "averageValue": "30"}
    return {"type": "Object", "object": {"describedObject": described, "metric": {"name": "peak"}, "target": target}}


def repeating(start: str, end: str = "", *, value: int = 1000, minutes: int = 0, zone: str = "Asia/Shanghai") -> Object:
    period = {"startTime": start, "endTime": end, "timezone": zone, "days": ["Fri", "Mon"]}
    return {"type": "Repeating", "durationMinutes": minutes, "value": value, "period": period}


@pytest.mark.parametrize(
    ("original", "row"),
    [
        (repeating("08:05", "20:00", minutes=30), {"durationSeconds": 42_900, "minReplicas": 34}),
        (repeating("08:05", minutes=45, value=30), {"durationSeconds": 2700, "minReplicas": 1}),
        (repeating("08:05", "07:00", minutes=45, zone=""), {"durationSeconds": 2700, "timeZone": "Europe/Berlin"}),
    ],
    ids=["until the end", "for so long", "by default in Berlin"],
)
@pytest.mark.parametrize("kind", ["ScalingSchedule", "ClusterScalingSchedule"])
def test_the_times_of_a_scaling_schedule_become_schedules(original: Object, row: Object, kind: str) -> None:
    where = {"namespace": "shop"} if kind == "ScalingSchedule" else {}
    web = hpa(external("rps", "10"), scheduled(kind), annotations=RPS)
    migration = migrated(scaling_schedule(original, kind=kind, **where), web)
    assert migration.pairs[0].policy["spec"]["schedules"] == [
        {"name": "peak-0", "cron": "5 8 * * 1,5", "timeZone": "Asia/Shanghai", "minReplicas": 34} | row
    ]
    assert not migration.refused
    assert "is not needed any more" in str(migration.notes[-1])


def test_two_scaling_schedules_of_one_name_become_schedules_with_different_names() -> None:
    web = hpa(external("rps", "10"), scheduled(), scheduled("ClusterScalingSchedule"), annotations=RPS)
    own = scaling_schedule(repeating("08:05", minutes=45), namespace="shop")
    of_all = scaling_schedule(repeating("18:05", minutes=45), kind="ClusterScalingSchedule")
    spec = migrated(own, of_all, web).pairs[0].policy["spec"]
    assert [one["name"] for one in spec["schedules"]] == ["peak-0", "peak-1"]


@pytest.mark.parametrize(
    ("original", "says"),
    [
        ({"type": "OneTime", "date": "2021-10-02T08:08:08+02:00", "value": 9}, "it happens once (2021-10-02T08:08:08"),
        (repeating("8 o'clock"), "it has no startTime (HH:MM)"),
        (repeating("08:05", "08:05"), "it lasts no time"),
    ],
    ids=["once", "no time", "no duration"],
)
def test_what_no_schedule_says_is_lost_with_its_reason(original: Object, says: str) -> None:
    web = hpa(external("rps", "10"), scheduled(), annotations=RPS)
    web["metadata"].pop("namespace", None)
    migration = migrated(scaling_schedule(original), web)
    (lost,) = [note for note in migration.pairs[0].notes if note.kind is NoteKind.LOST]
    assert lost.sentence.startswith(says)
    assert "schedules" not in migration.pairs[0].policy["spec"]


def test_a_scaling_schedule_alone_and_an_hpa_without_it_say_what_to_give() -> None:
    web = hpa(external("rps", "10"), scheduled(), annotations=RPS)
    (lost,) = [note for note in migrated(web).pairs[0].notes if note.kind is NoteKind.LOST]
    assert lost.sentence.startswith("its times become schedules where ScalingSchedule peak is in the input too")
    (refused,) = migrated(web, scaling_schedule(kind="ClusterScalingSchedule")).refused
    assert "give that too" in str(refused)


def test_a_scaling_schedule_is_still_needed_where_the_hpa_that_names_it_is_refused() -> None:
    web = hpa(external("rps", "0"), scheduled(), annotations=RPS)
    other = hpa(external("rps", "10"), annotations=RPS)
    other["metadata"]["name"] = "other"
    migration = migrated(scaling_schedule(repeating("08:05", "20:00"), namespace="shop"), web, other)
    assert [one.kind for one in migration.refused] == ["HorizontalPodAutoscaler", "ScalingSchedule"]
    assert not migration.notes


def test_targets_for_the_whole_service_make_a_policy_for_the_total() -> None:
    value = {"type": "External", "external": {"metric": {"name": "rps"}, "target": {"type": "Value", "value": "500"}}}
    assert policy_spec(hpa(value, annotations=RPS))["average"] == "Total"
    mixed = hpa(external("rps"), changed(value, "external", "metric", "name", to="more"),
                annotations={**RPS, "metric-config.external.more.prometheus/query": "sum(x)"})  # fmt: skip
    assert [metric["name"] for metric in policy_spec(mixed)["metrics"]] == ["rps"]
    assert kinds_at("spec.metrics[1]", mixed) == [NoteKind.LOST]


def test_behavior_stays_and_its_tolerance_moves_into_the_policy() -> None:
    spec = hpa_spec(EVERYTHING_KMA)["behavior"]
    assert spec["scaleUp"] == {**BEHAVIOR["scaleUp"], "tolerance": "0"}
    assert spec["scaleDown"] == {**BEHAVIOR["scaleDown"], "tolerance": "0"}
    assert policy_spec(EVERYTHING_KMA)["tolerance"] == "5%"
    assert "one tolerance" in note_at("spec.behavior.scaleUp.tolerance", EVERYTHING_KMA).sentence


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
        ({"seriesFilters": [{"is": "(x+)+y"}]}, "too involved"),
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
        ((changed(hpa(PODS, annotations=RPS), "apiVersion", to="autoscaling/v1"),), "must be autoscaling/v2"),
        ((hpa(annotations=RPS),), "spec.metrics: there is no metric"),
        ((hpa(external("rps", "0"), annotations=RPS),), "a target must be more than 0"),
        ((hpa(external("rps"), annotations={next(iter(RPS)): "sum(§)"}),), "is no PromQL"),
        ((hpa(external("rps"), annotations={next(iter(RPS)): 'sum(a{b="$namespace"})'}),), "holds $namespace"),
        ((hpa(external("rps"), annotations=RPS, behavior={"scaleUp": {"policies": []}}),), "must have at least one"),
        ((hpa(external("rps"), annotations={**RPS, SERVER: "prom:9090"}),), f"[{SERVER}]: 'prom:9090': write"),
        (({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},), "cannot be migrated; known are"),
        ((hpa(external("rps"), annotations=RPS),) * 2, "is already that of"),
    ],
)  # fmt: skip
def test_what_cannot_be_migrated_is_a_fault(objects: tuple[Object, ...], fault: str) -> None:
    assert any(fault in one for one in faults_of(*objects)), faults_of(*objects)


def test_a_config_map_and_plain_rules_are_the_same() -> None:
    data = {"config.yaml": yaml.safe_dump(RULES)}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    assert policy_spec(config, EVERYTHING_PA) == policy_spec(RULES, EVERYTHING_PA)


def test_where_hpas_have_no_tolerance_none_is_written_and_a_policy_below_the_controllers_is_told() -> None:
    original = hpa(
        external("rps", "10", type="prometheus"), annotations=RPS, behavior={"scaleUp": {"tolerance": "0.02"}}
    )
    (pair,) = migrated(original, tolerance=False).pairs
    assert pair.hpa["spec"]["behavior"] == {"scaleUp": {}, "scaleDown": {}}
    (told,) = (note.sentence for note in pair.notes if note.kind is NoteKind.TO_DO and note.field == "spec.tolerance")
    assert "HPAs have no field tolerance here: a policy with tolerance 10% asks for no such steps" in told
