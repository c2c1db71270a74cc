"""The dashboards as the files that are committed: stable JSON, so that a regeneration is identical."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.fleet import fleet
from monitoring.dashboards.policy import policy

FOLDER = Path(__file__).parents[2] / "manifests" / "components" / "dashboards"


def dashboards() -> dict[str, Dashboard]:
    """Each dashboard by its name."""
    return {"fleet": fleet(), "policy": policy()}


def text_of(made: Dashboard) -> str:
    """The dashboard as JSON."""
    return json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def as_json() -> Mapping[str, dict[str, Any]]:
    """Each dashboard as Grafana reads it, by its name."""
    return {name: json.loads(text_of(made)) for name, made in dashboards().items()}


def config_map(name: str, text: str) -> str:
    """The ConfigMap of a dashboard, with the label that the sidecar of Grafana's charts looks for by default."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return _CONFIG_MAP.format(name=name) + lines


_CONFIG_MAP = """\
# Made by `python -m monitoring.dashboards --write`.
# yamllint disable rule:line-length
apiVersion: v1
kind: ConfigMap
metadata:
  name: effective-load-dashboard-{name}
  namespace: effective-load
  labels:
    app.kubernetes.io/name: effective-load
    app.kubernetes.io/part-of: effective-load
    grafana_dashboard: "1"
data:
  effective-load-{name}.json: |
"""


def files() -> dict[Path, str]:
    """The text of every file: each dashboard as JSON, to be imported by hand, and as a ConfigMap."""
    made = {}
    for name, one in dashboards().items():
        text = text_of(one)
        made[FOLDER / f"{name}.json"] = text
        made[FOLDER / f"{name}.yaml"] = config_map(name, text)
    return made


def differing() -> list[Path]:
    """The committed files that are not what the code makes."""
    return [path for path, text in files().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def write() -> None:
    """Writes all files."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
