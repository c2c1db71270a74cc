"""What published files showed: each default, guess and passage is right, or is named in a note."""

import pytest
import yaml

from adapter.commands.migrate.read import NoteKind
from adapter.policy.documents import is_former
from adapter.policy.watermark_policy import parse_policy
from tests.manifests.rendering import MANIFESTS
from tests.migrate import kit

TO_DO, LOST, DIFFERS = NoteKind.TO_DO, NoteKind.LOST, NoteKind.DIFFERS
CPU_AVERAGE = kit.resource(averageValue="500m")
CPU = {"type": "cpu", "metadata": {"value": "60"}}
BY_POD = kit.by_rules("rps", kit.rule(as_="rps"))
COUNTER, RPS = "^(.*)_total$", "requests_per_second"

ALL = ("hpa", "hpa by pod", "keda", "wpa")
SAME = ("hpa", "mode", "hpaConfiguration", "step", "registry", "delay", "schedules", "fallback", "replicaMultiple")
SAME += ("convergeTowards", "fastScaleUp", "notify", "algorithm")
OF_WPA = {"hpa": "same", "hpa by pod": "same", "keda": "same", "wpa": "written"}
DEFAULTS: dict[str, dict[str, str]] = {
    # What each source has: `written`, `same` (the default does what the original does), or words of its note.
    **dict.fromkeys(SAME, dict.fromkeys(ALL, "same")),
    **dict.fromkeys(("tolerance", "metrics"), dict.fromkeys(ALL, "written")),
    **dict.fromkeys(("velocity", "cooldown"), OF_WPA),
    "pulledOut": dict.fromkeys(ALL, "pulledOut.replace"),
    "minServingPercent": dict.fromkeys(ALL, "minServingPercent"),
    "strategy": {"hpa": "written", "hpa by pod": "written", "keda": "written", "wpa": "same"},
    "acceptZeroUsage": {"hpa": "acceptZeroUsage", "hpa by pod": "written", "keda": "same", "wpa": "written"},
    "saturationFactor": {"hpa": "written", "hpa by pod": "same", "keda": "same", "wpa": "written"},
}
ORIGINALS = dict(zip(ALL, ((kit.hpa(CPU_AVERAGE),), BY_POD, (kit.scaled(),), (kit.wpa(),)), strict=True))


# --- A: defaults ---


def test_every_default_of_the_policy_is_considered_for_every_source() -> None:
    crd = yaml.safe_load((MANIFESTS / "crd" / "watermarkpolicies.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(DEFAULTS) == {name for name, field in schema.items() if not is_former(field)}
    for field, by_source in DEFAULTS.items():
        for source, what in by_source.items():
            one = kit.pair(*ORIGINALS[source])
            assert (field in one.objects[0]["spec"]) is (what == "written"), (field, source)
            if what not in {"written", "same"}:
                assert what in kit.notes(DIFFERS, *ORIGINALS[source]), (field, source)


def test_zero_by_pod_is_accepted_as_by_the_hpa() -> None:
    assert kit.case("zero-by-pod").pairs[0].objects[0]["spec"]["acceptZeroUsage"] is True
    assert kit.spec(kit.wpa(tolerateZero=True))["acceptZeroUsage"] is True


def test_cpu_in_cores_has_no_saturation_and_a_share_of_requests_needs_none() -> None:
    assert kit.spec(kit.hpa(CPU_AVERAGE))["saturationFactor"] == kit.spec(kit.wpa())["saturationFactor"] == "1"
    keda = {"type": "cpu", "metricType": "AverageValue", "metadata": {"value": "400m"}}
    assert kit.spec(kit.scaled(keda))["saturationFactor"] == "1"
    assert "saturationFactor" not in kit.spec(kit.hpa())


def test_a_fallback_beside_another_metric_says_when_it_applies() -> None:
    said = kit.everything(kit.case("keda-fallback-mixed"))
    assert "only while no metric answers. While one of several fails, KEDA goes to 10" in said
    fallback = {"failureThreshold": 3, "replicas": 10}
    with_cron = kit.scaled(CPU, kit.cron("0 8 * * *", "0 18 * * *", "5"), fallback=fallback)
    assert "fallback" not in kit.spec(with_cron)
    assert "KEDA never falls back for cpu and memory" in kit.notes(LOST, with_cron)
    alone = kit.scaled(fallback=fallback)
    assert kit.spec(alone)["fallback"] == {"afterSeconds": 90, "replicas": 10}
    assert "of several" not in kit.notes(DIFFERS, alone)


@pytest.mark.parametrize(("text", "answers"), [
    ("sum(a)", ["an empty answer"]), ("sum(a) / 1000", ["an empty answer"]),
    ('sum(a{path="/x"})', ["an empty answer"]), ("sum(a) / sum(b)", ["an empty answer", "NaN"]),
    ("scalar(sum(a))", ["NaN"]), ("sum(a) / sum(b) or vector(0)", ["NaN"]),
    ("sum(a) or vector(0)", []), ("vector(3)", []), ("42", []), ("((sum(a) / sum(b)) >= 0) or vector(0)", []),
])  # fmt: skip
def test_only_answers_that_a_query_may_give_are_named(text: str, answers: list[str]) -> None:
    said = kit.notes(DIFFERS, kit.scaled(kit.prometheus(text)))
    for answer in ("an empty answer", "NaN"):
        assert (f"KEDA takes {answer} for 0" in said) is (answer in answers)
    assert "NaN" in kit.everything(kit.case("keda-nan"))
    assert "vector(0) around" not in kit.everything(kit.case("keda-or-vector"))


def test_a_target_stays_a_target_and_watermarks_say_what_a_pod_carries() -> None:
    assert (kit.spec(kit.hpa())["strategy"], kit.spec(kit.hpa())["metrics"][0]["target"]) == ("Ratio", "80%")
    [metric] = kit.spec(kit.hpa(), low_percent=60)["metrics"]
    assert (metric["highWatermark"], metric["lowWatermark"]) == ("80%", "48%")
    assert "strategy" not in kit.spec(kit.hpa(), low_percent=60)
    said = kit.notes(DIFFERS, kit.hpa(), low_percent=60)
    assert "a rise begins above 88 % a pod and ends at 80 % or less" in said
    assert "begins below 43.2 % and ends at 48 % or more; today it begins below 72 % and ends at up to 80 %" in said
    assert "same load is above the high watermark" in kit.notes(TO_DO, kit.hpa(), low_percent=90)


# --- B: guesses ---


@pytest.mark.parametrize(("name", "series"), [
    ("adapter-ambiguous-rule", "rate(container_network_receive_bytes_total{"),
    ("adapter-generic-rules", "rate(http_requests_total{"),
])  # fmt: skip
def test_several_rules_become_a_todo_that_lists_them(name: str, series: str) -> None:
    migration = kit.case(name)
    [metric] = migration.pairs[0].objects[0]["spec"]["metrics"]
    assert metric["query"]["promQL"].startswith("write_here_the_promql_of_")
    [listed] = [str(note) for note in migration.pairs[0].notes if "several rules" in note.sentence]
    assert listed.startswith("ToDo")
    for part in (series, "rules[0]", "rules[2]"):
        assert part in listed


def test_of_rules_for_one_series_the_last_counts() -> None:
    first, last = (kit.rule(query=f"sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[{w}])) by (<<.GroupBy>>)", as_="rps")
                   for w in ("1m", "9m"))  # fmt: skip
    originals = kit.by_rules("rps", first, last)
    assert "[9m]" in kit.query(*originals)
    assert "rules[0] and rules[1] both give it; prometheus-adapter uses the last" in kit.notes(DIFFERS, *originals)


def test_a_rule_without_the_resource_is_skipped() -> None:
    of_services = kit.changed(kit.rule(as_="rps"), "resources", "overrides", to={
        "namespace": {"resource": "namespace"}, "svc": {"resource": "service"}})  # fmt: skip
    assert "by (namespace, pod)" in kit.query(*kit.by_rules("rps", of_services, kit.rule(as_="rps")))


def test_a_rule_that_names_its_series_is_preferred() -> None:
    two = kit.rule('{__name__=~"^req.*"}', matches=COUNTER), kit.rule(matches=COUNTER)
    assert kit.query(*kit.by_rules("requests", *two)).startswith("sum(rate(requests_total{")


# --- C: the passage ---


@pytest.mark.parametrize(("sleeping", "wakes"), [
    (kit.scaled(minReplicaCount=0), True), (kit.scaled(idleReplicaCount=0), True),
    (kit.changed(kit.scaled(), "metadata", "annotations", to={"autoscaling.keda.sh/paused-replicas": "0"}), True),
    (kit.scaled(CPU, minReplicaCount=0), False), (kit.scaled(), False),
])  # fmt: skip
def test_a_service_that_may_sleep_at_zero_is_to_be_woken_by_hand(sleeping: kit.Object, wakes: bool) -> None:
    command = "kubectl scale deployment web -n shop --replicas=1"
    assert (command in kit.notes(TO_DO, sleeping)) is wakes
    assert "--replicas=1" in kit.everything(kit.case("keda-at-zero"))


@pytest.mark.parametrize("original", [kit.hpa(), kit.scaled(), kit.wpa()], ids=["hpa", "keda", "wpa"])
def test_the_passage_names_gitops_the_last_step_and_the_way_back(original: kit.Object) -> None:
    said = kit.notes(TO_DO, original)
    for words in ("first save", "Argo CD, Flux or Helm owns it", "Then", "Last: effective-load check", "The way back"):
        assert words in said
    labels = {"team": "a", "argocd.argoproj.io/instance": "x", "kustomize.toolkit.fluxcd.io/name": "y"}
    tracked = kit.changed(original, "metadata", "labels", to=labels)
    assert all(one["metadata"]["labels"] == {"team": "a"} for one in kit.pair(tracked).objects)
    assert "argocd.argoproj.io/instance" in kit.notes(DIFFERS, tracked)


def test_metrics_of_another_adapter_name_the_takeover_of_its_api() -> None:
    for originals in (BY_POD, (kit.hpa(kit.resource(), kit.served("Pods", "x")),)):
        assert "custom.metrics.k8s.io has one server" in kit.notes(TO_DO, *originals)
    assert "custom.metrics.k8s.io" not in kit.notes(TO_DO, kit.hpa())


# --- D: valid PromQL, or refused ---


@pytest.mark.parametrize("text", ["sum(rate(x[2m])", "sum(rate())", 'x{a="$namespace"}'])
def test_a_query_that_a_policy_cannot_have_is_refused(text: str) -> None:
    assert "spec.triggers[0].metadata.query: the query" in kit.refusal(kit.scaled(kit.prometheus(text)))


@pytest.mark.parametrize(("given", "written"), [
    ("rate(x[1m])", "sum(rate(x[1m]))"), ("topk(1, x)", "sum(topk(1, x))"), ("42", "vector(42)"),
    ("scalar(a) / scalar(b)", "vector(scalar(a) / scalar(b))"),
    ("sum(x) # all", "sum(x) # all"), ("x # all", "sum(x # all\n)"),
])  # fmt: skip
def test_a_query_becomes_one_number(given: str, written: str) -> None:
    assert kit.query(kit.scaled(kit.prometheus(given))) == written


def test_a_query_by_pod_has_the_labels_of_a_policy_or_is_refused() -> None:
    by, by_pod, by_none = (
        kit.by_rules(
            "rps", kit.rule(query=f"sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[2m])) by ({labels})", as_="rps")
        )
        for labels in ("<<.GroupBy>>", "pod", "namespace")
    )
    rate = 'sum(rate(requests_total{namespace="$namespace",pod!=""}[2m])) by'
    assert kit.query(*by) == f"{rate} (namespace, pod)"
    assert kit.query(*by_pod) == f'label_replace({rate} (pod), "namespace", "$namespace", "", "")'
    assert "does not group by pod" in kit.refusal(*by_none)


# --- E: legal input ---


@pytest.mark.parametrize("one", [
    kit.rule(matches=COUNTER, as_=RPS), kit.rule(matches=COUNTER, as_="${1}_per_second"),
    kit.rule('{__name__="requests_total",pod!=""}', as_=RPS),
    kit.rule('{__name__=~"^requests_total$"}', matches="", as_=RPS),
    kit.rule("{pod!=''}", "sum(rate(requests_total{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)", as_=RPS),
])  # fmt: skip
def test_a_fixed_name_is_understood(one: kit.Object) -> None:
    assert "requests_total{namespace=" in kit.query(*kit.by_rules(RPS, one))


def test_what_aliases_of_yaml_share_is_read_for_each() -> None:
    two = [kit.rule(as_="rps"), kit.rule("errors_total", as_="eps")]
    two[1]["resources"] = two[0]["resources"]  # which YAML writes as an alias
    assert "errors_total{namespace=" in kit.query(*kit.by_rules("eps", *two))


def test_a_known_kind_of_another_group_is_refused_by_its_api_version() -> None:
    original = kit.changed(kit.scaled(), "apiVersion", to="keda.k8s.io/v1alpha1")
    assert "apiVersion: keda.k8s.io/v1alpha1 is not one of keda.sh" in kit.refusal(original)


def test_an_hpa_without_metrics_is_on_cpu_at_80_percent() -> None:
    assert kit.spec(kit.hpa(metrics=None))["metrics"][0]["target"] == "80%"
    assert "cpu at 80 %" in kit.notes(DIFFERS, kit.hpa(metrics=None))


def test_an_hpa_of_version_1_is_on_its_share_of_cpu_unless_annotations_hold_more() -> None:
    given = kit.hpa(metrics=None, targetCPUUtilizationPercentage=50)
    original = kit.changed(given, "apiVersion", to="autoscaling/v1")
    assert kit.spec(original)["metrics"][0]["target"] == "50%"
    more = {"autoscaling.alpha.kubernetes.io/metrics": "[]"}
    assert "kubectl get hpa.v2.autoscaling" in kit.refusal(kit.changed(original, "metadata", "annotations", to=more))


def test_a_metric_that_is_left_out_leaves_no_other_notes() -> None:
    value = {**kit.prometheus(), "metricType": "Value", "authenticationRef": {"name": "a"}}
    assert "spec.triggers[0]." not in kit.notes(None, kit.scaled(value, CPU))
    assert "not read" not in kit.notes(None, kit.hpa(kit.resource(), kit.resource("nvidia.com/gpu")))


def test_one_object_does_not_spoil_a_file() -> None:
    other = kit.changed(kit.hpa(name="b"), "spec", "scaleTargetRef", "name", to="b")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}
    broken = kit.changed(kit.scaled(kit.prometheus("sum(")), "metadata", "name", to="broken")
    many = kit.hpa(name="c", maxReplicas="many")
    migration = kit.migrated(deployment, kit.hpa(), broken, other, many)
    assert [one.name for one in migration.pairs] == ["web", "b"]
    assert [text.split(" is not")[0].split()[-1] for text in migration.refused] == ["broken", "c"]
    assert not migration.settings


# --- F: reasons ---


def test_a_refusal_has_the_reason_of_every_metric() -> None:
    said = kit.refusal(kit.rules(kit.rule(as_="rps")), kit.hpa(kit.served("External", "rps")))
    assert "rps: no rule is for it; External metrics come from externalRules" in said
    assert "rps: no rule is for it" in kit.refusal(*kit.by_rules("rps", kit.rule(as_="other")))
    said = kit.refusal(kit.scaled({"type": "redis", "metadata": {}}))
    assert "trigger redis: only prometheus, cpu and memory become metrics" in said
    said = kit.refusal(kit.hpa(kit.served("Pods", "x")))
    assert "if prometheus-adapter serves it, give its ConfigMap as well" in said


@pytest.mark.parametrize(("start", "end", "replicas", "why"), [
    ("0 8 * * *", "0 18 * * 7", "3", "KEDA refuses '0 18 * * 7'"), ("0 8 * *", "0 18 * * *", "3", "five fields"),
    ("0 8 * * *", "0 18 * * *", "0", "KEDA refuses desiredReplicas 0"),
    ("0 22 * * 1-5", "0 6 * * 1-5", "3", "not last equally long"),
    ("0 8 * * 1-5", "0 18 1 * *", "3", "not last equally long"),
    ("0 8 * * *", "0 8,18 * * *", "3", "not last equally long"),
])  # fmt: skip
def test_a_cron_trigger_that_is_no_schedule_says_why(start: str, end: str, replicas: str, why: str) -> None:
    original = kit.scaled(kit.prometheus(), kit.cron(start, end, replicas))
    assert "schedules" not in kit.spec(original)
    assert why in kit.notes(LOST, original)
    assert "schedules" not in kit.case("cron-zero").pairs[0].objects[0]["spec"]


def test_a_trigger_without_an_equivalent_is_lost_and_points_to_the_docs() -> None:
    migration = kit.case("keda-recipes")
    assert kit.everything(migration).count("docs/migrate.md has it for many") == 4
    parse_policy(migration.pairs[0].objects[0])


def test_rules_that_are_no_text_of_their_configmap_are_refused() -> None:
    nested = kit.changed(kit.rules(), "data", "config.yaml", to={"rules": []})
    assert "must be a text, which holds the YAML" in kit.refusal(nested)
