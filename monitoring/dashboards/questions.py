"""The queries of a dashboard as Grafana sends them: with the variables' values instead of their names."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.harness.prometheus import Prometheus

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")

Variables = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a panel, which `number` identifies. `instant`: at the end of the range only."""

    number: int
    panel: str
    reference: str
    legend: str
    expression: str
    instant: bool

    def ask(self, server: Prometheus, begin: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of the answer, each with `values`, or with one `value`. Times in seconds."""
        if self.instant:
            return server.query(self.expression, at=end)
        return server.query_range(self.expression, begin, end, step)


def filled(text: str, variables: Variables) -> str:
    """The text with the values of its variables. Raises KeyError for one without a value."""
    return _VARIABLE.sub(lambda match: variables[match[1]], text)


def questions(dashboard: Mapping[str, Any], variables: Variables) -> Iterator[Question]:
    """Every query of every panel, in order."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = filled(target["expr"], variables)
            legend, instant = target.get("legendFormat", ""), target.get("instant", False)
            yield Question(panel["id"], panel["title"], target["refId"], legend, expression, instant)
