"""The command `replay` on files: what it prints, and what it says of files and arguments that cannot be used."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import argument_parser, main
from adapter.commands.replay import command

POLICY = """
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {name: checkout, namespace: shop}
spec:
  metrics:
  - {name: cpu, resource: {name: cpu}, highWatermark: 1000m, lowWatermark: 600m}
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: checkout, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  minReplicas: 2
  maxReplicas: 50
  behavior:
    scaleUp: {tolerance: "0"}
    scaleDown: {tolerance: "0", stabilizationWindowSeconds: 60}
  metrics:
  - type: Object
    object:
      describedObject: {apiVersion: effective-load.io/v1alpha1, kind: WatermarkPolicy, name: checkout}
      metric: {name: desired_replicas}
      target: {type: AverageValue, averageValue: "1"}
"""
CPU_METRIC = """
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec:
      containers:
      - {name: app, image: app, resources: {requests: {cpu: 750m}}}
      - {name: sidecar, image: app, resources: {requests: {cpu: 250m}}}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(f"# a comment alone\n---\n{POLICY}\n---\n{HPA}")
    lines = [f"{1_767_225_600 + 15 * index},{8 if index < 40 else 16},{index % 100 // 90},10" for index in range(200)]
    Path("week.csv").write_text("\n".join(["time,cpu,pulled_out,replicas", *lines]))


def replay(*arguments: str) -> list[str]:
    return ["replay", "policy.yaml", "--csv", "week.csv", *arguments]


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(replay(*arguments, "-o", "json")) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_the_table_has_a_line_for_each_autoscaler(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(replay("--price", "0.04", "--capacity", "cpu=1500m")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "Replay of shop/checkout, 2026-01-01T00:00:00Z to 2026-01-01T00:50:00Z: 50.0 min, 200 ticks"
    )
    assert [line.split("  ")[0] for line in lines[3:7]] == [
        "AUTOSCALER", "stock HPA, raw average", "stock HPA, effective average", "policy checkout",
    ]  # fmt: skip
    assert lines[1].startswith("The stock HPA is aimed at ")
    assert lines[3].split()[-2:] == ["POD-HOURS", "COST"]
    assert main(replay()) == 0
    assert not {"COST", "SHORTFALL"} & set(capsys.readouterr().out.split()), "nobody asked for them"


def test_json_has_the_figures_the_changes_and_a_chart(capsys: pytest.CaptureFixture[str]) -> None:
    report = data(capsys, "--price", "2")
    assert report["policy"] == {"namespace": "shop", "name": "checkout"}
    run = report["runs"][2]
    assert run["replicas"]["most"] == 17
    assert run["changes"][0] == {"at": "2026-01-01T00:10:15Z", "before": 10, "after": 14}
    assert run["cost"] == pytest.approx(2 * run["podHours"], abs=0.01)
    assert run["chart"][0]["averageLoad"] == "800m"


def test_the_recorded_count_is_the_first_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys)["runs"][2]["changes"][0]["before"] == 10


def test_the_page_is_written_beside_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(replay("--html", "replay.html")) == 0
    assert "<h1><bdi>shop/checkout</bdi></h1>" in Path("replay.html").read_text()
    assert "POD-HOURS" in capsys.readouterr().out


def test_the_settings_tell_which_metric_of_a_csv_file_is_one_number_for_the_service() -> None:
    names = ("queue", "rps")
    metrics = "\n  ".join(f"- {{name: {name}, query: {{name: {name}}}, highWatermark: 10}}" for name in names)
    Path("policy.yaml").write_text(re.sub("- {name: cpu.*", metrics, POLICY))
    Path("settings.yaml").write_text(
        "prometheus:\n"
        "  servers: [{name: main, url: 'http://prometheus:9090'}]\n"
        "  queries:\n"
        "  - {name: queue, server: main, query: sum(queue), scope: Service}\n"
        "  - {name: rps, server: main, query: 'sum by (namespace, pod) (rps)'}\n"
    )
    for given, totals in ((["--settings", "settings.yaml"], {"queue"}), ([], set())):
        parsed = argument_parser().parse_args(replay(*given))
        assert command.declared_totals(parsed, command.read_service(parsed)) == totals


def test_a_time_is_cut_out_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    report = data(capsys, "--from", "2026-01-01T00:05:00Z", "--to", "2026-01-01T00:08:00Z")
    assert (report["from"], report["to"], report["ticks"]) == ("2026-01-01T00:05:00Z", "2026-01-01T00:08:00Z", 12)
    assert main(replay("--from", "2027-01-01T00:00:00Z")) == 1


def test_a_second_policy_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(POLICY.replace("1000m", "800m").replace("name: checkout", "name: careful"))
    report = data(capsys, "--against", "other.yaml")
    assert report["runs"][3]["replicas"]["most"] > report["runs"][2]["replicas"]["most"]


def test_the_hpa_of_today_is_the_stock_hpa_of_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    Path("hpa.yaml").write_text(HPA.split("  metrics:", maxsplit=1)[0] + "  metrics:" + CPU_METRIC)
    Path("policy.yaml").write_text(f"{POLICY}\n---\n{HPA}\n---\n{WORKLOAD}")
    report = data(capsys, "--hpa", "hpa.yaml")
    assert report["runs"][0]["replicas"]["most"] >= 32  # 50 % of the pods' requests, which the workload says
    assert report["runs"][2]["replicas"]["most"] == 17


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "none.yaml", "--csv", "week.csv"], "POLICY: 'none.yaml': cannot be read"),
        (replay("--capacity", "cpu"), "--capacity: 'cpu'"),
        (replay("--capacity", "cpu=0"), "write a name and an amount above 0"),
        (replay("--starts", "soon"), "--starts: 'soon': must be a duration"),
        (replay("--price", "-1"), "--price: '-1': must not be negative"),
        (replay("--hpa", "week.csv"), "week.csv"),
        (replay("--against", "nothing.yaml"), "--against: 'nothing.yaml': cannot be read"),
        (replay("--capacity", "memory=1Gi"), "column memory: is missing; --capacity needs it"),
        (replay("--against", "hpa.yaml"), "hpa.yaml: has 0 WatermarkPolicies"),
        (replay("--shard", "0/2"), "--shard: '0/2': goes with --all"),
        (replay("--query", "cpu=sum(x)"), "give either a CSV file or a Prometheus"),
        (
            ["replay", "policy.yaml", "--prometheus", "http://127.0.0.1:1", "--from", "1h", "--capacity", "cpus=1"],
            "--capacity: 'cpus': there is no such metric, did you mean cpu?",
        ),
        (["replay", "policy.yaml", "--csv", "none.csv"], "--csv: 'none.csv': cannot be read"),
        (replay("--html", "none/replay.html"), "No such file"),
    ],
)
def test_what_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    Path("hpa.yaml").write_text(HPA)
    assert said in refused(capsys, *arguments)


SHARE = POLICY.replace(
    "name: cpu}, highWatermark: 1000m, lowWatermark: 600m", "name: cpu, relativeTo: Request}, highWatermark: 80%"
)


def test_the_request_that_a_policy_needs_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.yaml").write_text(f"{SHARE}\n---\n{HPA}")
    assert "--request: metric cpu is a share of it; say --request cpu=QUANTITY" in refused(capsys, *replay())
    assert main(replay("--request", "cpu=1")) == 0


HEAD = "time,cpu,pulled_out,replicas"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["time,memory", "0,1"], "column cpu: is missing; policy checkout needs it"),
        ([HEAD, "0,1,0,2000000000"], "replicas: 2000000000: a replay has at most 100,000 pods"),
        ([HEAD, "0,1,0,2", "1767225600,1,0,2"], "has no line for more than 31 days"),
        ([HEAD, *(f"{15 * number},1,0,2" for number in range(200)), "nonsense,1,0,10"], "line 202, time: 'nonsense'"),
    ],
    ids=["without the metric", "too many pods", "a gap of years", "a wrong line far into it"],
)
def test_a_history_that_cannot_be_used_is_refused(
    capsys: pytest.CaptureFixture[str], lines: list[str], said: str
) -> None:
    Path("week.csv").write_text("\n".join(lines))
    assert said in refused(capsys, *replay())


def test_a_gap_before_the_time_that_is_cut_out_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["time,cpu,pulled_out,replicas", "0,1,0,2", "1767225600,1,0,2"]
    Path("week.csv").write_text("\n".join(lines))
    assert main(replay("--from", "1767225600")) == 0


def test_a_history_of_nothing_but_empty_cells_has_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    Path("week.csv").write_text("time,cpu\n0,\n15,NaN\n")
    assert main(replay()) == 1
    assert capsys.readouterr().out == "the history has no data for that time\n"
