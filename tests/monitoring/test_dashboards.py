"""The dashboards as files: queries of series that the adapter exposes, links, and a size that kubectl can apply."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.monitoring.dashboards import FOLDER, dashboards, filled
from tests.monitoring.selectors import faults, selectors

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


def test_links_lead_from_one_dashboard_to_the_other() -> None:
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(dashboards())))
    assert linked == {one["uid"] for one in dashboards().values()} == {"effective-load-fleet", "effective-load-policy"}


def test_kubectl_apply_can_keep_each_dashboard_in_an_annotation() -> None:
    for path in FOLDER.glob("*.json"):
        assert path.stat().st_size < 200_000, "the API server allows 256 KiB"
