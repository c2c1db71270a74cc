"""Alerting rules and dashboards: tests of promtool, texts, runbooks, panels, links, and the series that they name."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.policy.conditions import FOUND, TROUBLE_WHILE_TRUE, ConditionType
from lab.harness import binaries
from monitoring.alerts import RUNBOOKS, TESTS, rule_file, rules
from tests.monitoring.dashboards import FOLDER, dashboards, filled
from tests.monitoring.selectors import faults, selectors

RUNBOOK_PAGES = Path(__file__).parents[2] / "docs" / "runbooks"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
UNIT_TESTS: dict[str, Any] = yaml.load(TESTS.read_text(), yaml.CSafeLoader)
every_rule = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])


@pytest.mark.integration
@pytest.mark.builds("promtool")
def test_each_alert_fires_for_its_fault_and_none_in_rollout_restart_and_night(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rule_file())
    # Without YAML merges, which promtool cannot read. Values such as 0x20 are quoted there.
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(UNIT_TESTS))
    command = [binaries.path_of("promtool"), "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@every_rule
def test_each_alert_has_a_test_that_it_fires_and_names_series_that_the_adapter_exposes(rule: dict[str, Any]) -> None:
    cases = [one for test in UNIT_TESTS["tests"] for one in test.get("alert_rule_test", ())]
    assert any(one["alertname"] == rule["alert"] and one.get("exp_alerts") for one in cases)
    assert list(faults(rule["expr"])) == []
    assert all(one.name.startswith("effective_load_") for one in selectors(rule["expr"]))


@every_rule
def test_each_alert_says_what_is_wrong_how_bad_it_is_and_where_its_runbook_is(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("EffectiveLoad")
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert re.fullmatch(r"\d+m", rule["for"])
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["summary"].endswith(".")
    assert annotations["summary"] not in annotations["description"]
    minutes = re.search(r"For (\d+) minutes", annotations["description"])
    assert minutes is None or f"{minutes[1]}m" == rule["for"], "the description names the alert's own `for`"
    assert re.search(r"\. First: [^.]", annotations["description"]), "the description ends with the first mitigation"
    assert annotations["runbook_url"] == f"{RUNBOOKS}{rule['alert']}.md"


@every_rule
def test_each_runbook_has_the_four_headings_and_names_its_expression_and_a_command(rule: dict[str, Any]) -> None:
    text = (RUNBOOK_PAGES / f"{rule['alert']}.md").read_text()
    assert text.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
    assert "```sh" in diagnosis
    for expression in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
        for line in expression.strip().splitlines():
            assert list(faults(line)) == []


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of our own commands in a page."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?:^|bin/)effective-load ([a-z].*)", line):
                yield shlex.split(found[1], comments=True)


def test_the_commands_of_the_runbooks_are_accepted() -> None:
    asked = [one for page in RUNBOOK_PAGES.glob("EffectiveLoad*.md") for one in commands(page)]
    assert {one[0] for one in asked} == {"check", "explain"}
    for arguments in asked:
        cli.argument_parser().parse_args([one.replace("NAMESPACE/POLICY", "shop/checkout") for one in arguments])


def test_no_runbook_is_left_without_its_alert_and_the_list_names_all() -> None:
    names = {rule["alert"] for rule in rules()}
    assert {page.stem for page in RUNBOOK_PAGES.glob("EffectiveLoad*.md")} == names
    listed = (RUNBOOK_PAGES.parent / "monitoring.md").read_text()
    for rule in rules():
        name = rule["alert"]
        assert f"\n| [{name}](runbooks/{name}.md) | {rule['labels']['severity']} | {rule['for']} |" in listed


def test_the_runbooks_are_those_of_the_tagged_version() -> None:
    project = tomllib.loads((RUNBOOK_PAGES.parents[1] / "pyproject.toml").read_text())["project"]
    assert RUNBOOKS.endswith(f"/blob/v{project['version']}/docs/runbooks/")


def test_an_alert_holds_back_none_of_another_cluster() -> None:
    text = (RUNBOOK_PAGES.parent / "monitoring.md").read_text()
    (block,) = re.findall(r"```yaml\n(inhibit_rules:\n.*?)```", text, re.DOTALL)
    assert [rule for rule in yaml.safe_load(block)["inhibit_rules"] if "cluster" not in rule["equal"]] == []


def test_the_rule_file_for_a_prometheus_without_the_operator_may_have_other_runbooks(tmp_path: Path) -> None:
    text = rule_file("https://runbooks.example.com/")
    assert RUNBOOKS not in text
    named = [rule["annotations"]["runbook_url"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    assert len(named) == len(rules())
    assert all(url.startswith("https://runbooks.example.com/EffectiveLoad") for url in named)


VALUES = {
    "cluster": ".*",
    "job": ".+",
    "namespace": "shop",
    "policy": "checkout",
    "metric": "cpu",
    "__rate_interval": "1m",
}
EACH = pytest.mark.parametrize("name", ["fleet", "policy"])


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """The queries of panels, annotations and variables."""
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (annotation["expr"] for annotation in dashboard["annotations"].get("list", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            (selector,) = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"]).groups()
            yield selector


@EACH
def test_each_query_selects_series_and_labels_that_the_adapter_exposes(name: str) -> None:
    asked = [filled(one, VALUES) for one in expressions(dashboards()[name])]
    assert len(asked) > 20
    assert [fault for one in asked for fault in faults(one)] == []
    # No other exporter is needed; Prometheus itself has the series of firing alerts.
    others = {one.name for each in asked for one in selectors(each) if not one.name.startswith("effective_load_")}
    assert others <= {"ALERTS"}


@EACH
def test_each_panel_has_a_title_a_description_and_the_chosen_data_source(name: str) -> None:
    for panel in dashboards()[name]["panels"]:
        if panel["type"] != "row":
            assert panel["title"], panel["id"]
            assert panel["description"], panel["title"]
            for one in (panel, *panel["targets"]):
                assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_the_panel_of_findings_shows_each_condition_while_it_is_trouble() -> None:
    good = {*FOUND, ConditionType.HPA_CONFORMANT, "ScalingActive"} - TROUBLE_WHILE_TRUE
    panel = next(one for one in dashboards()["policy"]["panels"] if one["title"] == "Missing samples and findings")
    texts = [one["expr"] for one in panel["targets"]]
    for query in ('1 - min by .+ condition=~"(.+)"', 'max by .+ condition!~"(.+)"'):
        (names,) = (match[1] for match in map(re.compile(query).match, texts) if match)
        assert set(names.split("|")) == good, (
            "name the conditions of which False is trouble in both queries of policy.json"
        )


def test_links_lead_from_one_dashboard_to_the_other() -> None:
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(dashboards())))
    assert linked == {one["uid"] for one in dashboards().values()} == {"effective-load-fleet", "effective-load-policy"}


def test_kubectl_apply_can_keep_each_dashboard_in_an_annotation() -> None:
    for path in FOLDER.glob("*.json"):
        assert path.stat().st_size < 200_000, "the API server allows 256 KiB"
