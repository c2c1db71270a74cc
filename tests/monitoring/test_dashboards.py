"""The dashboards as files: what the code makes, and what a Grafana and a Prometheus make of them."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.files import FOLDER, as_json, differing
from monitoring.dashboards.questions import filled
from tests.monitoring.selectors import faults, selectors

COLUMNS = 24
VALUES = {
    "cluster": ".*",
    "job": ".+",
    "namespace": "shop",
    "policy": "checkout",
    "metric": "cpu",
    "__rate_interval": "1m",
}
RATES = re.compile(r"\b(?:rate|irate|increase|delta|changes)\(.*?\[([^\]]+)\]")
EACH = pytest.mark.parametrize("name", ["fleet", "policy"])
Panel = dict[str, Any]


def panels(dashboard: dict[str, Any]) -> list[Panel]:
    """All panels but rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """The queries of panels, annotations and variables."""
    for panel in panels(dashboard):
        yield from (target["expr"] for target in panel["targets"])
    yield from (annotation["expr"] for annotation in dashboard.get("annotations", {}).get("list", []))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            (selector,) = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"]).groups()
            yield selector


def lint(dashboard: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a dashboard, as sentences."""
    if not 0 < len(dashboard["uid"]) <= 40:
        yield f"the uid {dashboard['uid']} is longer than 40 characters"
    if dashboard["editable"]:
        yield "it may be edited, and the next start of Grafana undoes that"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        yield "two panels have one id"
    if "datasource" not in [one["name"] for one in dashboard["templating"]["list"] if one["type"] == "datasource"]:
        yield "it has no variable for the data source"
    for panel in panels(dashboard):
        yield from (f"{panel.get('title')}: {sentence}" for sentence in _lint_panel(panel))
    yield from _overlaps(dashboard)
    for expression in expressions(dashboard):
        yield from _lint_expression(expression)


def _lint_panel(panel: Panel) -> Iterator[str]:
    if not panel.get("title") or not panel.get("description"):
        yield "no title or no description"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    references = [target["refId"] for target in panel["targets"]]
    if len(references) != len(set(references)):
        yield "two queries have one reference"
    for one in (panel, *panel["targets"]):
        if one.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield "a data source that is not the variable"
    for target in panel["targets"]:
        grouped = re.match(r"\w+ by \(([\w, ]+)\)", target["expr"])
        if grouped and panel["type"] == "timeseries":
            for label in grouped[1].split(", "):
                if f"{{{{{label}}}}}" not in target["legendFormat"]:
                    yield f"the legend of {target['refId']} does not name {label}"


def _overlaps(dashboard: dict[str, Any]) -> Iterator[str]:
    places = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for title, place in places:
        if place["x"] + place["w"] > COLUMNS:
            yield f"{title} reaches beyond {COLUMNS} columns"
    for (one, a), (other, b) in itertools.combinations(places, 2):
        if all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h"))):
            yield f"{one} and {other} overlap"


def _lint_expression(expression: str) -> Iterator[str]:
    for window in RATES.findall(expression):
        if window != "$__rate_interval":
            yield f"a rate over {window}: {expression}"
    try:
        promql_parser.parse(filled(expression, VALUES))
    except (KeyError, ValueError) as error:
        yield f"{expression}: {error}"
        return
    for selector in selectors(filled(expression, VALUES)):
        labels = {label for _, label, _ in selector.matchers}
        # Lists of jobs and clusters cannot be limited to a job, and alerts are those of the rules.
        if "job" not in labels and selector.name not in {"effective_load_build_info", "ALERTS"}:
            yield f"{selector.name} of every job"
        if selector.name.startswith("effective_load_policy") and "namespace" not in labels | _of_namespaces(expression):
            yield f"{selector.name} of every namespace"


def _of_namespaces(expression: str) -> set[str]:
    """The list of namespaces cannot be limited to a namespace."""
    return {"namespace"} if expression == 'effective_load_policy_mode{cluster=~"$cluster", job=~"$job"}' else set()


def test_the_committed_files_are_what_the_code_makes() -> None:
    assert differing() == []


@EACH
def test_a_config_map_has_the_dashboard_and_the_label_of_the_sidecar(name: str) -> None:
    made = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["namespace"] == "effective-load"
    ((_, text),) = made["data"].items()
    assert text == (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    # `kubectl apply` keeps the whole object in an annotation, of which the API server allows 256 KiB.
    assert len(text) < 200_000


@EACH
def test_nothing_is_wrong_with_a_dashboard(name: str) -> None:
    assert list(lint(as_json()[name])) == []


@EACH
def test_the_sdk_reads_a_dashboard_as_it_was_written(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    read = Dashboard.from_json(json.loads(text))
    assert (read.uid, len(read.panels or ())) == (f"effective-load-{name}", len(json.loads(text)["panels"]))


@EACH
def test_each_query_asks_for_series_and_labels_that_the_adapter_exposes(name: str) -> None:
    asked = [filled(one, VALUES) for one in expressions(as_json()[name])]
    assert [fault for one in asked for fault in faults(one)] == []
    # Nothing else is needed, such as kube-state-metrics; Prometheus itself has the alerts that fire.
    others = {one.name for each in asked for one in selectors(each) if not one.name.startswith("effective_load_")}
    assert others <= {"ALERTS"}


def test_each_column_of_a_table_is_a_label_or_a_query_of_it() -> None:
    for dashboard in as_json().values():
        for panel in panels(dashboard):
            if panel["type"] != "table":
                continue
            organize = panel["transformations"][-1]["options"]
            labels = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", str(panel["targets"])))))
            values = {"Value"} if len(panel["targets"]) == 1 else {f"Value #{one['refId']}" for one in panel["targets"]}
            assert organize["renameByName"].keys() <= labels | values
            titles = {*organize["renameByName"].values()}
            assert {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]} <= titles


def test_links_lead_from_one_dashboard_to_the_other() -> None:
    uids = {dashboard["uid"] for dashboard in as_json().values()}
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(as_json())))
    assert linked == uids
