"""The dashboards as files, and their queries as Grafana sends them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tools.chart_templates import CHART

FOLDER = CHART / "dashboards"


def dashboards() -> dict[str, dict[str, Any]]:
    """Each dashboard by the name of its file."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def filled(text: str, variables: Mapping[str, str]) -> str:
    """The text with the values of its variables. Raises KeyError for a variable without a value."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables[match[1]], text)
