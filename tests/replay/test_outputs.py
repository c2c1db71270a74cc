"""`replay --html` and `--suggest`: the page and the suggestions beside the table, and what cannot be made."""

import json
import math
from pathlib import Path

import pytest
import yaml

from adapter.cli import main

MANIFESTS = """\
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {namespace: shop, name: checkout}
spec:
  metrics:
    - {name: cpu, resource: {name: cpu}, highWatermark: 1200m, lowWatermark: 900m}
  cooldown: {scaleDownSeconds: 300}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {namespace: shop, name: checkout}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  minReplicas: 4
  maxReplicas: 80
  behavior:
    scaleUp: {tolerance: "0", stabilizationWindowSeconds: 0}
    scaleDown: {tolerance: "0", stabilizationWindowSeconds: 300}
  metrics:
    - type: Object
      object:
        describedObject: {apiVersion: effective-load.io/v1alpha1, kind: WatermarkPolicy, name: checkout}
        metric: {name: desired_replicas}
        target: {type: AverageValue, averageValue: "1"}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments for three hours, with an hour in which pods are pulled out."""
    policy, table = tmp_path / "policy.yaml", tmp_path / "history.csv"
    policy.write_text(MANIFESTS)
    rows = (f"{1_788_134_400 + 240 * i},{9 + 4 * math.sin(i / 7):.3f},{3 if 15 <= i < 30 else 0}" for i in range(45))
    table.write_text("\n".join(["time,cpu,pulled_out", *rows]) + "\n")
    return ["replay", str(policy), "--csv", str(table), "--sync", "60s", "--capacity", "cpu=1500m"]


def test_the_page_is_written_beside_the_table(files: list[str], tmp_path: Path, capsys) -> None:
    page = tmp_path / "replay.html"
    assert main([*files, "--html", str(page)]) == 0
    text = page.read_text()
    assert "<h1><bdi>shop/checkout</bdi></h1>" in text
    assert "Suggestions" not in text
    assert "POD-HOURS" in capsys.readouterr().out


def test_suggestions_are_in_the_text_the_json_and_the_page_and_the_policy_stays(
    files: list[str], tmp_path: Path, capsys
) -> None:
    before = Path(files[1]).read_text()
    page = tmp_path / "replay.html"
    assert main([*files, "--suggest", "--html", str(page), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["suggestions"]
    assert found["judgedBy"] == "Capacity"
    assert found["judgedByLoad"] == "1500m"
    present, *others = found["candidates"]
    assert present["isPresent"]
    assert present["patch"] is None
    assert present["highWatermark"] == "1200m"
    for known in others:
        patch = next(yaml.safe_load_all(known["patch"]))
        assert patch["spec"]["metrics"][0]["resource"] == {"name": "cpu"}
    assert "Nothing is applied" in page.read_text()
    assert Path(files[1]).read_text() == before
