"""The alerting rules: their one source is the manifest of kind PrometheusRule; `tests.yaml` has promtool's tests."""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
MANIFEST = FOLDER.parents[1] / "manifests" / "components" / "alerts" / "prometheusrule.yaml"
TESTS = FOLDER / "tests.yaml"
"""promtool's tests. They name the rules as `rules.yaml`, in the folder in which promtool runs."""
RUNBOOKS = "https://github.com/OWNER/effective-load/blob/v0.1.0/docs/runbooks/"
"""Where `runbook_url` leads: the pages of the tagged repository. A release puts its own name in place of OWNER."""

Rule = dict[str, Any]


def groups() -> list[dict[str, Any]]:
    """The groups of rules, as in the manifest."""
    return list(yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["spec"]["groups"])


def rules() -> list[Rule]:
    """All rules, each with `alert`, `expr`, `for`, `labels` and `annotations`."""
    return [rule for group in groups() for rule in group["rules"]]


def rule_file(runbooks: str = RUNBOOKS) -> str:
    """The rules as a file for a Prometheus without the operator, with the runbooks at that URL."""
    text = yaml.safe_dump({"groups": groups()}, sort_keys=False, width=120)
    return text.replace(RUNBOOKS, runbooks)
