"""The pictures of the dashboards, as far as they need neither Node.js nor a browser."""

import json
import re
from typing import Any

from monitoring.dashboards.files import as_json
from monitoring.picture.answers import FLEET, POLICY, drawing, unanswered
from monitoring.picture.drawing import PAGE
from monitoring.picture.run import Story

BEGIN = 1000.0


class Server:
    """A Prometheus that answers every query alike: a series with a value at each of these seconds."""

    def __init__(self, *moments: float, value: str = "1") -> None:
        self._points = [[BEGIN + moment, value] for moment in moments]

    def query(self, expression: str, *, at: float) -> list[dict[str, Any]]:
        return [{"metric": {}, "value": [at, point[1]]} for point in self._points[-1:]]

    def query_range(self, expression: str, begin: float, end: float, step: float) -> list[dict[str, Any]]:
        return [{"metric": {}, "values": self._points}] if self._points else []


def drawn(server: Server, name: str = "policy") -> dict[str, Any]:
    variables = {"policy": POLICY, "fleet": FLEET}[name]
    return drawing(as_json()[name], variables, Story(server, BEGIN, BEGIN + 60))


def test_every_panel_is_drawn_with_the_answer_of_each_of_its_queries() -> None:
    for name, dashboard in as_json().items():
        panels = drawn(Server(1, 2), name)["panels"]
        asked = [[target["refId"] for target in panel.get("targets", [])] for panel in dashboard["panels"]]
        assert [[answer["refId"] for answer in one["answers"]] for one in panels] == asked
        assert not [one for one in panels if "$" in one["panel"]["title"]]


def test_the_moments_of_an_annotation_are_one_region_as_long_as_none_is_missing() -> None:
    pull_outs, rescales = drawn(Server(3, 4, 5, 20))["annotations"]
    assert pull_outs["regions"] == rescales["regions"] == [{"from": 1003, "to": 1005}, {"from": 1020, "to": 1020}]
    assert drawn(Server())["annotations"][0]["regions"] == []


def test_a_query_without_a_number_is_named() -> None:
    assert list(unanswered(drawn(Server(1, 2)))) == []
    assert "Effective load / Policy: Asked: A has no series" in list(unanswered(drawn(Server())))
    assert "Effective load / Policy: Asked: A has no finite value" in list(unanswered(drawn(Server(1, value="NaN"))))


def test_the_page_knows_every_kind_of_panel_and_matcher_of_the_dashboards() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (PAGE / "src").iterdir())
    panels = [panel for dashboard in as_json().values() for panel in dashboard["panels"]]
    assert {panel["type"] for panel in panels} - {"row"} == set(
        re.findall(r"(\w+): \w+", re.search(r"const kinds = \{(.*)\}", source)[1])
    )
    matchers = {one["matcher"]["id"] for panel in panels for one in panel.get("fieldConfig", {}).get("overrides", [])}
    assert {one for one in matchers if f"'{one}'" not in source} == set()


def test_the_lock_of_the_page_names_no_registry() -> None:
    lock = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert [name for name, package in lock["packages"].items() if name and "integrity" not in package] == []
