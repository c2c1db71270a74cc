"""The command `replay` on files: what it prints, and what it says of files and arguments that cannot be used."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from tests.replay.kit import HPA, POLICY

CPU_METRIC = "\n  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}\n"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  template:
    spec:
      containers:
      - {name: app, image: app, resources: {requests: {cpu: 750m}}}
      - {name: sidecar, image: app, resources: {requests: {cpu: 250m}}}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(f"# a comment alone\n---\n{POLICY}\n---\n{HPA}")
    lines = [f"{1_767_225_600 + 15 * index},{8 if index < 40 else 16},{index % 100 // 90}" for index in range(200)]
    Path("week.csv").write_text("\n".join(["time,cpu,pulled_out", *lines]))


def replay(*arguments: str) -> list[str]:
    return ["replay", "policy.yaml", *arguments, "--csv", "week.csv"]


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(replay(*arguments, "-o", "json")) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_table_has_a_line_for_each_autoscaler(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(replay("--capacity", "cpu=1500m")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Replay of shop/checkout, 2026-01-01T00:00:00Z to 2026-01-01T00:50:00Z: 50 min, 200 ticks"
    head, *rows = lines[lines.index("") + 1 :][:4]
    assert [line.split("  ")[0] for line in rows] == [
        "stock HPA, raw average", "stock HPA, effective average", "policy checkout",
    ]  # fmt: skip
    assert "SHORTFALL" in head
    assert main(replay()) == 0
    assert "SHORTFALL" not in capsys.readouterr().out, "no capacity is known"


def test_json_has_figures_and_the_count_over_time(capsys: pytest.CaptureFixture[str]) -> None:
    run = data(capsys)["runs"][2]
    assert run["changes"][0] == {"at": "2026-01-01T00:10:15Z", "before": 8, "after": 14}
    assert run["replicas"]["most"] == 17
    assert run["podHours"] == pytest.approx(run["replicas"]["average"] * run["seconds"] / 3600)


def test_span_is_cut_out_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    report = data(capsys, "--from", "2026-01-01T00:05:00Z", "--to", "2026-01-01T00:08:00Z")
    assert (report["from"], report["to"], report["ticks"]) == ("2026-01-01T00:05:00Z", "2026-01-01T00:08:00Z", 12)
    assert main(replay("--from", "2027-01-01T00:00:00Z")) == 1


def test_hpa_of_today_is_the_stock_hpa(capsys: pytest.CaptureFixture[str]) -> None:
    Path("hpa.yaml").write_text(HPA.split("  metrics:", maxsplit=1)[0] + "  metrics:" + CPU_METRIC)
    Path("workload.yaml").write_text(WORKLOAD)
    report = data(capsys, "hpa.yaml", "workload.yaml")
    assert report["stockHpa"] == "the HPA as it is today"
    assert report["runs"][0]["replicas"]["most"] >= 32  # 50 % of the pods' requests, which the workload has
    assert report["runs"][2]["replicas"]["most"] == 17


def test_observing_policy_of_three_metrics_with_a_schedule_is_replayed_as_if_it_acted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = "".join(
        f"\n  - {{name: {name}, query: {{name: {name}}}, highWatermark: 10}}" for name in ("rps", "queue")
    )
    schedule = "\n  schedules:\n  - {name: lunch, cron: 20 0 * * *, durationSeconds: 600, minReplicas: 30}\n"
    observing = POLICY.rstrip().replace("  metrics:", "  mode: Observe\n  metrics:")
    Path("policy.yaml").write_text(f"{observing}{metrics}{schedule}---\n{HPA}")
    lines = [f"{1_767_225_600 + 15 * index},8,{40 if index % 3 else ''},NaN" for index in range(200)]
    Path("week.csv").write_text("\n".join(["time,cpu,rps,queue", *lines]))
    assert data(capsys)["runs"][2]["replicas"]["most"] == 30


def test_settings_say_which_column_is_one_number_for_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.yaml").write_text(
        re.sub("- {name: cpu.*", "- {name: cpu, query: {name: q}, highWatermark: 1}", POLICY)
    )
    Path("settings.yaml").write_text(
        "prometheus:\n"
        "  servers: [{name: main, url: 'http://prometheus:9090'}]\n"
        "  queries: [{name: q, server: main, query: sum(queue), scope: Service}]\n"
    )
    changes = data(capsys, "--settings", "settings.yaml")["runs"][2]["changes"]
    assert changes[-1]["after"] >= 16


def test_sweep_recommends_a_cheaper_plan_or_the_present_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{1_767_225_600 + 60 * index},{8 + 6 * (index // 20 % 2)}" for index in range(120)]
    Path("week.csv").write_text("\n".join(["time,cpu", *lines]))
    sweep = data(capsys, "--sweep", "--capacity", "cpu=2")["sweep"]
    assert sweep["advice"].startswith("Set cpu highWatermark ")
    present, best = (plan["firstTwoThirds"] for plan in (sweep["present"], sweep["plans"][0]))
    assert best["podHours"] < present["podHours"]
    assert best["risk"] <= present["risk"]


def test_page_is_one_file_without_a_way_for_text_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    named = POLICY.replace("name: checkout", "name: '</script><b>x'")
    Path("policy.yaml").write_text(f"{named}\n---\n{HPA}")
    assert main(replay("--html", "replay.html")) == 0
    page = Path("replay.html").read_text()
    assert "<h1><bdi>shop/&lt;/script&gt;&lt;b&gt;x</bdi></h1>" in page
    assert "default-src 'none'" in page
    assert "<b>x" not in page
    assert "http:" not in page.split("<style>")[0]
    chart = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert chart["band"]["high"] == 1000
    assert (chart["runs"][2]["most"][0], max(chart["runs"][2]["load"]), max(chart["needed"])) == (8, 2000, 16)
    assert {len(column) for run in chart["runs"] for column in (run["least"], run["load"])} == {len(chart["times"])}
    assert "POD-HOURS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "none.yaml", "--csv", "week.csv"], "'none.yaml': does not exist"),
        (["replay", "policy.yaml", "--csv", "none.csv"], "'none.csv': cannot be read"),
        (["replay", "policy.yaml", "--prometheus", "http://x"], "--from: name the beginning"),
        (["replay", "policy.yaml", "--from", "1h"], "name the server by its address"),
        (replay("--capacity", "cpu"), "--capacity: 'cpu'"),
        (replay("--capacity", "cpu=0"), "write a name and an amount above 0"),
        (replay("--pod-startup", "soon"), "--pod-startup: 'soon': must be a duration"),
        (["replay", "hpa.yaml", "--csv", "week.csv"], "hpa.yaml: has no WatermarkPolicy"),
        (replay("--capacity", "memory=1Gi"), "column memory: is missing; --capacity needs it"),
        (["replay", "-", "--csv", "-"], "standard input has one document"),
        (replay("--query", "cpu=sum(x)"), "give either a CSV file or a Prometheus"),
        (replay("--from", "yesterday"), "--from: 'yesterday': write a time"),
        (replay("--html", "none/replay.html"), "No such file"),
        (replay("second.yaml"), "policy.yaml, second.yaml: has the policies checkout, cart; give the file of one"),
    ],
)
def test_argument_that_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    Path("second.yaml").write_text(POLICY.replace("name: checkout", "name: cart"))
    Path("hpa.yaml").write_text(HPA)
    assert said in refused(capsys, *arguments)


def test_request_that_a_metric_is_a_share_of_comes_from_the_workload(capsys: pytest.CaptureFixture[str]) -> None:
    share = "name: cpu, relativeTo: Request}, highWatermark: 80%"
    Path("policy.yaml").write_text(POLICY.replace("name: cpu}, highWatermark: 1000m, lowWatermark: 600m", share))
    assert "metric cpu: is a share of the pods' request of cpu, which no file has" in refused(capsys, *replay())
    Path("workload.yaml").write_text(WORKLOAD.replace("requests: {cpu: 250m}", "requests: {}"))
    assert "request of cpu, which no file has" in refused(capsys, *replay("workload.yaml")), "a container has none"
    Path("workload.yaml").write_text(WORKLOAD)
    assert main(replay("workload.yaml")) == 0


HEAD = "time,cpu,pulled_out"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["time,CPU", "0,1"], "line 1, column cpu: is missing; policy checkout needs it, and the file has time, CPU"),
        (["when,cpu", "0,1"], "column time: is missing"),
        (["time,cpu,cpu", "0,1,2"], "each column a name of its own"),
        ([HEAD, "0,1,2000000"], "pulled_out: '2000000': must be a whole number"),
        ([HEAD, "0,1,0", "1767225600,1,0"], "is more than 31 days after the line before"),
        ([HEAD, *(f"{15 * number},1,0" for number in range(200)), "x,1,0"], "line 202, time: 'x': must be a time"),
        ([HEAD, "0,1,0", "0,1,0"], "line 3, time: '0': must be later than in the line before"),
        ([HEAD, "0,much,0"], "week.csv, line 2, cpu: 'much'"),
        ([HEAD, "0,1"], "week.csv, line 2: must have as many cells"),
        ([], "column time: is missing"),
    ],
)
def test_history_that_cannot_be_used_is_refused(
    capsys: pytest.CaptureFixture[str], lines: list[str], said: str
) -> None:
    Path("week.csv").write_text("\n".join(lines))
    assert said in refused(capsys, *replay())


def test_any_usual_delimiter_and_a_byte_order_mark_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("week.csv").read_text()
    for mark, delimiter in (("", ";"), ("\ufeff", "\t")):
        Path("week.csv").write_text(mark + lines.replace(",", delimiter), encoding="utf-8")
        assert data(capsys)["runs"][2]["replicas"]["most"] == 17


def test_history_of_empty_cells_has_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    Path("week.csv").write_text("time,cpu\n0,\n15,NaN\n")
    assert main(replay()) == 1
    assert "the history has no data for that time" in capsys.readouterr().err
