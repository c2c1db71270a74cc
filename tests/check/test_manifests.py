"""`check --manifests`: files are checked without a cluster, each fault with its file, line and field."""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.commands.check.manifest_links import check_folder
from adapter.commands.check.report import FindingLevel
from adapter.runtime.faults import FaultyDocument
from adapter.telemetry import logs
from tests.fuzz.spoil import mutate
from tests.manifests.rendering import MANIFESTS

CHECKOUT = (MANIFESTS / "examples" / "checkout.yaml").read_text()
ALERT = "---\nkind: PrometheusRule\napiVersion: monitoring.coreos.com/v1\nmetadata: {name: '{{ $labels.x }}'}\n"
Replace = tuple[str, str]
Found = list[tuple[str, str, str]]


def findings(folder: Path) -> Found:
    """The findings that are not ok: verdict, FILE:LINE: FIELD, sentence."""
    return [
        (one.verdict.value, str(one.place).removeprefix(f"{folder}/"), one.text)
        for section in check_folder(str(folder), None)
        for one in section.findings
        if one.verdict is not FindingLevel.OK
    ]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Found]:
    """Checks the example with some text replaced, and further files."""

    def run(*changes: Replace, **files: str) -> Found:
        text = CHECKOUT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "checkout.yaml").write_text(text)
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        return findings(tmp_path)

    return run


def settings(**prometheus: Any) -> str:
    """The ConfigMap of an installation."""
    text = yaml.safe_dump({"prometheus": prometheus}, sort_keys=False)
    inner = "".join(f"    {line}\n" for line in text.splitlines())
    return (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: effective-load-settings\ndata:\n  settings.yaml: |\n"
        + inner
    )


@pytest.mark.parametrize(
    ("changes", "place", "sentence"),
    [
        ([("highWatermark: 1200m", "highWatermark: 300m")], "yaml:33: spec.metrics[0].lowWatermark", "must be below"),
        ([("  tolerance: 1%", "  tolerancee: 1%")], "checkout.yaml:28: spec.tolerancee", "did you mean tolerance?"),
        ([("    scaleUp:\n      tolerance: '0'", "    scaleUp:")], "spec.behavior", "suppresses steps of up to 10 %"),
        ([("name: desired_replicas", "name: desired_replica")], "object.metric.name", "did you mean desired_replicas?"),
        ([("name: desired_replicas", "name: effective_cpu")], "spec.metrics[0]", "which is for reading only"),
        ([("averageValue: '1'", "averageValue: '2'")], "spec.metrics", 'averageValue "1"'),
        ([("WatermarkPolicy, name: checkout", "WatermarkPolicy, name: checkoutt")], "spec.metrics", "does not exist"),
        ([("  behavior:", "  behaviour:")], "spec.behaviour", "did you mean behavior?"),
        ([("resource: {name: memory, containers: [app]", "resource: {name: memory, containers: [web]")],
         "spec.metrics[1]", "Deployment checkout has no container web"),
        ([("          limits: {cpu: '2', memory: 512Mi}", "          limits: {cpu: '2'}")],
         "checkout.yaml:34: spec.metrics[1]", "container app has no memory limit in Deployment checkout"),
        ([("  # hpa: checkout         its", "  hpa: checkot\n  # its")], "spec.hpa", "did you mean checkout?"),
    ],
)  # fmt: skip
def test_each_fault_is_wrong_with_its_place(
    check: Callable[..., Found], changes: list[Replace], place: str, sentence: str
) -> None:
    found = [(where, text) for level, where, text in check(*changes) if level == "wrong"]
    assert [where for where, text in found if place in where and sentence in text], found


def test_a_watermark_or_stock_target_that_no_pod_can_pass_is_wrong(check: Callable[..., Found]) -> None:
    sentence = (
        "metric cpu adds pods above 2020m, and no pod shows more than 2, where its CPU limit throttles it; lower the "
        "watermark or target, or raise the limit"
    )
    found = check(("highWatermark: 1200m", "highWatermark: 2000m"))
    assert [(place.split()[-1], text) for _, place, text in found] == [("spec.metrics[0]", sentence)]
    assert check(("highWatermark: 1200m", "highWatermark: 1980m")) == []
    workload, _, hpa = yaml.safe_load_all(CHECKOUT)
    share = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 400}}
    hpa["spec"]["metrics"] = [{"type": "Resource", "resource": share}]
    hpa["metadata"]["name"] = hpa["spec"]["scaleTargetRef"]["name"] = workload["metadata"]["name"] = "stock"
    found = check(hpa=yaml.safe_dump(hpa), workload=yaml.safe_dump(workload))
    assert any("metric cpu adds pods above 400 %" in text for _, _, text in found)


def test_faults_of_settings_have_the_line_in_their_config_map(check: Callable[..., Found]) -> None:
    query = {"name": "rps", "server": "main", "query": "up", "scope": "Pod"}
    found = check(settings=settings(servers=[{"name": "main", "url": "http://p"}], queries=[query]))
    assert ("wrong", "settings.yaml:15: data[settings.yaml]: prometheus.queries[0].scope") in [one[:2] for one in found]


RPS: Replace = ("resource: {name: cpu, containers: [app]}", "query: {name: rps}")


def test_a_query_that_the_settings_lack_is_wrong_and_without_settings_not_checked(check: Callable[..., Found]) -> None:
    ((level, where, text),) = check(RPS)
    assert (level, where) == ("skip", "checkout.yaml:22")
    assert text.startswith("not checked: its queries, for the settings are not among the files")
    ((level, where, text),) = check(RPS, settings=settings(inlineQueries=True))
    assert (level, where) == ("wrong", "checkout.yaml:31: spec.metrics[0].query")
    assert text == "metric cpu: the settings define no such query (they have none yet)"


def test_rivals_are_named_at_both(check: Callable[..., Found]) -> None:
    hpa = "".join(CHECKOUT.partition("---\napiVersion: autoscaling/v2")[1:])
    found = check(rival=hpa.replace("metadata:\n  name: checkout", "metadata:\n  name: rival"))
    (place,) = [where for _, where, text in found if "is scaled by other HPAs as well (rival)" in text]
    assert place == "checkout.yaml:44: spec.scaleTargetRef"


def test_selectors_that_overlap_are_wrong_where_hpas_scale_both(check: Callable[..., Found]) -> None:
    other = CHECKOUT.replace("name: checkout", "name: other").replace(
        "labels: {app: checkout}", "labels: {app: checkout, tier: b}"
    )
    ((level, where, text), (level2, where2, _)) = check(other=other.replace("matchLabels: {app", "matchLabels: {app"))
    assert (level, where) == ("wrong", "checkout.yaml:9: spec.selector")
    assert (level2, where2.split(":")[0]) == ("wrong", "other.yaml")
    assert "also selects the pods of Deployment other" in text


def test_a_part_that_is_elsewhere_is_not_checked_rather_than_wrong(tmp_path: Path) -> None:
    parts = CHECKOUT.split("---\n")
    (tmp_path / "policy.yaml").write_text(parts[1])
    assert [(level, text) for level, _, text in findings(tmp_path)] == [
        ("skip", "not checked: HPA checkout, which the policy names, is not among the files")
    ]
    (tmp_path / "policy.yaml").write_text(parts[2])
    assert findings(tmp_path)[0][0] == "skip"
    (tmp_path / "policy.yaml").write_text("---\n".join(parts[1:]))
    ((level, _, text),) = findings(tmp_path)
    assert level == "skip"
    assert text.endswith("Deployment checkout is not among the files, so its requests and limits are unknown")


@pytest.mark.parametrize("version", ["v1", "v2beta2"])
def test_an_hpa_of_a_version_without_these_metrics_is_wrong(check: Callable[..., Found], version: str) -> None:
    ((level, place, text),) = check(("apiVersion: autoscaling/v2", f"apiVersion: autoscaling/{version}"))
    assert (level, place) == ("wrong", "checkout.yaml:39: apiVersion")
    assert text.endswith("write autoscaling/v2")


def test_a_list_as_kubectl_prints_it_is_read(tmp_path: Path) -> None:
    items = [one for one in yaml.safe_load_all(CHECKOUT) if one]
    items[2]["spec"]["maxReplicas"] = 1
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))
    found = findings(tmp_path)
    (fault,) = [one for one in found if "must be at most maxReplicas" in one[2]]
    lines = (tmp_path / "all.json").read_text().splitlines()
    number = int(fault[1].split(":")[1])
    assert "minReplicas" in lines[number - 1]


def test_the_shipped_examples_have_no_fault(tmp_path: Path) -> None:
    for name in ("checkout", "step", "memory-ratio"):
        (tmp_path / f"{name}.yaml").write_text((MANIFESTS / "examples" / f"{name}.yaml").read_text())
    assert findings(tmp_path) == []


def test_the_command_needs_neither_settings_nor_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    (tmp_path / "all.yaml").write_text(CHECKOUT.replace("averageValue: '1'", "averageValue: '2'"))
    assert cli.main(["check", "--manifests", str(tmp_path), "-o", "json"]) == cli.FAILED
    report = json.loads(capsys.readouterr().out)
    (fault,) = [one for section in report["sections"] for one in section["findings"] if one["verdict"] == "wrong"]
    assert (fault["file"], fault["field"]) == (str(tmp_path / "all.yaml"), "spec.metrics[0]")
    assert cli.main(["check", "--manifests", str(tmp_path), "--policy", "a/b"]) == cli.INVALID
    assert "--policy is about a cluster" in capsys.readouterr().err


def test_spoilt_files_are_reported_and_never_break_the_check(tmp_path: Path) -> None:
    chance = random.Random(1)
    wrong = 0
    for _ in range(60):
        root = {"all": [one for one in yaml.safe_load_all(CHECKOUT + "---\n" + settings(inlineQueries=True)) if one]}
        for _ in range(3):
            mutate(root, chance)
        items = {"apiVersion": "v1", "kind": "List", "items": root.get("all", [])}
        (tmp_path / "all.yaml").write_text(json.dumps(items))
        wrong += any(level == "wrong" for level, _, _ in findings(tmp_path))
    assert wrong > 20


WRONG: Replace = ("averageValue: '1'", "averageValue: '2'")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("metadata:\n  name: web\n spec: {}\n", ("wrong", "web.yaml", "did not find expected key")),
        ("name: {{ .Release.Name }}\n{{- end }}\n", ("wrong", "web.yaml", "")),
        (
            "# of shop\napiVersion: effective-load.io/v1alpha1\nmetadata: {name: web}\n",
            ("wrong", "web.yaml:2", "has no kind, so the API server refuses it"),
        ),
        (
            "kind: WatermarkPolicy\nmetadata: {name: web}\n",
            ("wrong", "web.yaml:1", "has no apiVersion, so the API server refuses it"),
        ),
        ("apiVersion: v1\nkind: A\n---\n---\nkind: B\nspec: {}\nspec: {}\n", ("wrong", "web.yaml:6: spec", "")),
        (CHECKOUT + ALERT + "spec: {}\nspec: {}\n", ("wrong", "web.yaml:67: spec", "")),
        ('{"kind": "WatermarkPolicy", "apiVersion": "effective-load.io/v1alpha1"}', ("wrong", "web", "needs a name")),
        ("", ("note", "", "there is no WatermarkPolicy among the files")),
    ],
    ids=["indentation", "template", "no kind", "no apiVersion", "a key twice", "no template", "one line", "nothing"],
)
def test_a_file_that_is_broken_or_lacks_what_makes_an_object_does_not_pass(
    tmp_path: Path, text: str, told: tuple[str, str, str]
) -> None:
    (tmp_path / "web.yaml").write_text(text)
    level, place, sentence = told
    found = findings(tmp_path)
    assert [one for one in found if one[0] == level and place in one[1] and sentence in one[2]], found


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
        "resources: [policy.yaml]\n",
    ],
)
def test_what_is_no_object_is_none_of_its_business(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.yaml").write_text(text)
    assert {level for level, _, _ in findings(tmp_path)} <= {"note"}


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FaultyDocument, match="does not exist"):
        check_folder(str(tmp_path / "none"), None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CHECKOUT.replace(*WRONG), "-:58: spec.metrics[0]: "),
        *(
            (text, "there is no object in it: ")
            for text in ("", "\n---\n", "Error: values don't meet the specifications")
        ),
    ],
)
def test_what_helm_or_kustomize_print_is_read_from_standard_input_and_nothing_is_no_success(
    text: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe has the status of its last command, and `helm template` prints nothing where it fails."""
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli.main(["check", "--manifests", "-"]) == cli.FAILED
    assert f"  wrong  {told}" in capsys.readouterr().out
