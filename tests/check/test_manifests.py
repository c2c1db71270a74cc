"""`check --manifests`: files are checked without a cluster, each finding with its file, line and field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.commands.check.report import Level
from adapter.commands.check.run import check_files
from adapter.telemetry import logs
from tests.manifests.rendering import MANIFESTS

CHECKOUT = (MANIFESTS / "examples" / "checkout.yaml").read_text()
Replace = tuple[str, str]
Found = list[tuple[str, str, str]]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Found]:
    """Checks the example with some text replaced, and further files: level, FILE:LINE: FIELD, sentence."""

    def run(*changes: Replace, **files: str) -> Found:
        text = CHECKOUT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "checkout.yaml").write_text(text)
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        return [
            (one.level.value, str(one.place).removeprefix(f"{tmp_path}/"), one.text)
            for one in check_files(str(tmp_path), None)
            if one.level is not Level.OK
        ]

    return run


def settings(**given: Any) -> str:
    """The ConfigMap of an installation."""
    metadata = {"name": "effective-load-settings"}
    data = {"settings.yaml": yaml.safe_dump(given)}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def test_a_query_of_the_settings_that_no_policy_uses_is_checked(check: Callable[..., Found]) -> None:
    query = {"name": "load", "server": "main", "query": 'sum(rate(x{n="$namespace"}[5m])'}
    servers = [{"name": "main", "url": "http://prometheus:9090"}]
    [(level, _, text)] = check(settings=settings(prometheus={"servers": servers, "queries": [query]}))
    assert level == "error"
    assert "query load: not readable at character 4" in text


def test_the_example_has_no_fault(check: Callable[..., Found]) -> None:
    assert check() == []


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
        ([("resource: {name: memory, containers: [app]", "resource: {name: memory, containers: [web]")],
         "spec.metrics[1]", "Deployment checkout has no container web"),
        ([("          limits: {cpu: '2', memory: 512Mi}", "          limits: {cpu: '2'}")],
         "checkout.yaml:34: spec.metrics[1]", "container app has no memory limit in Deployment checkout"),
        ([("  # hpa: checkout         its", "  hpa: checkot\n  # its")], "spec.hpa", "did you mean checkout?"),
        ([("highWatermark: 1200m", "highWatermark: 2000m")], "spec.metrics[0]", "no pod shows more than 2"),
    ],
)  # fmt: skip
def test_a_fault_is_an_error_with_its_place(
    check: Callable[..., Found], changes: list[Replace], place: str, sentence: str
) -> None:
    found = check(*changes)
    assert [text for level, where, text in found if level == "error" and place in where and sentence in text], found


def test_a_second_copy_of_an_object_is_read_for_its_faults(check: Callable[..., Found]) -> None:
    overlay = CHECKOUT.replace("  tolerance: 1%", "  tolerancee: 1%")
    assert [place.split()[-1] for level, place, _ in check(overlay=overlay) if level == "error"] == ["spec.tolerancee"]


SCALED_OBJECT = {
    "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "old", "namespace": "default"},
    "spec": {"scaleTargetRef": {"name": "checkout"}},
}  # fmt: skip
WPA = {
    "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
    "metadata": {"name": "old", "namespace": "default"},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}},
}  # fmt: skip


@pytest.mark.parametrize("rival", [SCALED_OBJECT, WPA])
def test_another_autoscaler_of_the_target_is_an_error(check: Callable[..., Found], rival: dict[str, Any]) -> None:
    ((level, place, text),) = check(old=yaml.safe_dump(rival))
    assert (level, place.split()[-1]) == ("error", "spec.scaleTargetRef")
    assert text.startswith(f"{rival['kind']} old (")
    elsewhere = {**rival, "spec": {"scaleTargetRef": {"name": "cart"}}}
    assert check(old=yaml.safe_dump(elsewhere)) == []


def test_a_second_hpa_of_the_target_is_an_error(check: Callable[..., Found]) -> None:
    _, _, hpa = yaml.safe_load_all(CHECKOUT)
    second = {**hpa, "metadata": {**hpa["metadata"], "name": "second"}}
    assert [text for level, _, text in check(second=yaml.safe_dump(second)) if "other HPAs as well (second)" in text]


def test_what_the_settings_lack_is_an_error(check: Callable[..., Found]) -> None:
    policy = {
        "apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy",
        "metadata": {"name": "lag", "namespace": "shop"},
        "spec": {
            "hpa": "checkout", "registry": {"name": "nacos", "service": "shop"}, "notify": ["chat"],
            "metrics": [{"name": "lag", "query": {"name": "lag"}, "highWatermark": "10"}],
        },
    }  # fmt: skip
    text = yaml.safe_dump(policy)
    assert [one for one in check(lag=text) if one[0] == "skipped" and "its queries, registry, routes" in one[2]]
    places = [place.split()[-1] for level, place, _ in check(lag=text, settings=settings()) if level == "error"]
    assert {"spec.metrics[0].query", "spec.registry", "spec.notify"} <= {*places}


def test_faults_of_the_settings_are_errors(check: Callable[..., Found]) -> None:
    ((level, place, text),) = check(settings=settings(server={"prot": 1}))
    assert (level, place) == ("error", "settings.yaml:3: data.settings.yaml")
    assert text.startswith("server.prot: ")


def test_a_policy_whose_hpa_is_not_among_the_files_is_skipped(tmp_path: Path) -> None:
    _, policy, _ = CHECKOUT.split("---\n")
    (tmp_path / "policy.yaml").write_text(policy)
    assert check_files(str(tmp_path), None)[-1].level is Level.SKIPPED


def test_the_command_prints_lines_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # the test run keeps its own
    (tmp_path / "checkout.yaml").write_text(CHECKOUT + "---\n" + yaml.safe_dump(SCALED_OBJECT))
    assert cli.main(["check", "--manifests", str(tmp_path)]) == cli.FAILED
    *_, finding, summary = capsys.readouterr().out.splitlines()
    assert finding.startswith(f"  error    {tmp_path}/checkout.yaml:")
    assert summary.startswith("1 error, 0 warning, ")
    assert cli.main(["check", "--manifests", str(tmp_path), "-o", "json"]) == cli.FAILED
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert {"level", "text", "remedy", "file", "line", "field"} == report["sections"][-1]["findings"][0].keys()
    (tmp_path / "checkout.yaml").write_text(CHECKOUT)
    assert cli.main(["check", "--manifests", str(tmp_path)]) == cli.OK
    assert capsys.readouterr().out.startswith("0 error, 0 warning, 0 skipped, ")
    assert cli.main(["check", "--manifests", str(tmp_path), "--policy", "shop/checkout"]) == cli.INVALID
    assert cli.main(["check", "--manifests", str(tmp_path / "absent")]) == cli.INVALID
