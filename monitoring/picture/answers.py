"""What the page draws: a dashboard, its variables, and Prometheus' answers to its queries."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitoring.dashboards.questions import Variables, filled, questions
from monitoring.picture.run import STEP, Story

RATE_INTERVAL = "30s"
"""What Grafana makes of `$__rate_interval` here is 4 s; so short, a rate of rare events would be all peaks."""
FLEET: Variables = {"cluster": ".*", "job": ".+", "namespace": ".+", "__rate_interval": RATE_INTERVAL}
POLICY: Variables = {
    "cluster": ".*",
    "job": ".+",
    "namespace": "demo",
    "policy": "checkout",
    "metric": "cpu",
    "__rate_interval": RATE_INTERVAL,
}
_MOMENT: Variables = {"__rate_interval": "2s"}
"""An annotation begins at its moment and is as long as its look back."""


def drawing(dashboard: Mapping[str, Any], variables: Variables, story: Story) -> dict[str, Any]:
    """The page's input, as JSON."""
    answers: dict[int, list[dict[str, Any]]] = {}
    for question in questions(dashboard, variables):
        result = question.ask(story.server, story.begin, story.end, STEP)
        answer = {"refId": question.reference, "legend": question.legend, "step": STEP, "result": result}
        answers.setdefault(question.number, []).append(answer)
    return {
        "title": dashboard["title"],
        "variables": [{"label": label, "value": value} for label, value in _shown(dashboard, variables)],
        "range": {"from": story.begin, "to": story.end},
        "panels": [
            {"panel": {**panel, "title": filled(panel["title"], variables)}, "answers": answers.get(panel["id"], [])}
            for panel in dashboard["panels"]
        ],
        "annotations": [
            {"name": one["name"], "color": one["iconColor"], "regions": list(_regions(one["expr"], variables, story))}
            for one in dashboard.get("annotations", {}).get("list", ())
        ],
    }


def unanswered(drawn: Mapping[str, Any]) -> Iterator[str]:
    """The queries without a series, or with a value that is no number."""
    for one in drawn["panels"]:
        for answer in one["answers"]:
            name = f"{drawn['title']}: {one['panel']['title']}: {answer['refId']}"
            if not answer["result"]:
                yield f"{name} has no series"
            values = [float(text) for series in answer["result"] for _, text in _points(series)]
            if values and not any(map(math.isfinite, values)):
                yield f"{name} has no finite value"


def _points(series: Mapping[str, Any]) -> Sequence[tuple[float, str]]:
    return series["values"] if "values" in series else [series["value"]]


def _shown(dashboard: Mapping[str, Any], variables: Variables) -> Iterator[tuple[str, str]]:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            value = variables[variable["name"]]
            yield variable["label"], "All" if value in {".+", ".*"} else value


def _regions(expression: str, variables: Variables, story: Story) -> Iterator[dict[str, float]]:
    """The times without a gap at which an annotation's expression has a result."""
    asked = filled(expression, {**variables, **_MOMENT})
    times = sorted(
        at for one in story.server.query_range(asked, story.begin, story.end, STEP) for at, _ in one["values"]
    )
    begins = [at for before, at in itertools.pairwise([-math.inf, *times]) if at - before > STEP * 1.5]
    for begin, until in itertools.pairwise([*begins, math.inf]):
        yield {"from": begin, "to": max(at for at in times if at < until)}
