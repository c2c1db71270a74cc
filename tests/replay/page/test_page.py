"""The page of a replay: it needs nothing else, nothing of a policy runs in it, and its size has a bound."""

import base64
import hashlib
import json
import re
from importlib import resources
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.commands.replay.page.markup import (
    LIBRARY,
    Html,
    change_text,
    embedded,
    share_text,
    tag,
)
from adapter.commands.replay.page.report import chart_data, load_scale, page
from adapter.commands.replay.score import BUCKETS_MOST
from adapter.commands.replay.service import Setup
from adapter.policy.watermark_policy import parse_policy
from tests.replay.page import kit

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--",
    "<script>",
    "]]>&lt;",
    "'; alert(1); //",
    "\u2028\u202e",
)


def embedded_data(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_names_nothing_to_load() -> None:
    text = page(kit.report())
    assert not re.findall(r"""(?:src|href|action|poster|data)=["']?(?!#|data:,)[^"'\s>]+""", _without_code(text))
    assert "@import" not in text
    assert "url(" not in text


def _without_code(text: str) -> str:
    return re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)


def test_the_content_policy_admits_the_pages_own_script_and_style_alone() -> None:
    text = page(kit.report())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#x27;", "'")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for element in ("script", "style"):
        [code] = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("file", LIBRARY)
def test_the_chart_library_is_the_published_one(file: str) -> None:
    asset = resources.files("adapter.commands.replay.page").joinpath("assets", file)
    assert hashlib.sha256(asset.read_bytes()).hexdigest() == LIBRARY[file]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_wherever_it_is_shown(name: str) -> None:
    policy = kit.policy_named(name)
    runs = kit.three(stock=kit.run(name, 1.0), policy=kit.run("policy", 1.0))
    text = page(kit.report(policy, runs, source=name, stock_is=name))
    assert embedded_data(text)["runs"][0]["name"] == name
    assert embedded_data(text)["metric"] == name
    assert len(re.findall(r"<script\b", text)) == 2
    assert "<img" not in text
    assert "<" not in name or name not in _without_code(text)


@settings(max_examples=30)
@given(st.text(max_size=20))
def test_data_within_a_script_comes_back_and_cannot_end_it(text: str) -> None:
    written = embedded({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert not set("<>&\u2028\u2029") & set(written)


@settings(max_examples=30)
@given(st.text(max_size=20))
def test_text_in_an_element_is_escaped_and_markup_is_not(text: str) -> None:
    assert "<" not in tag("p", text, title=text).removeprefix("<p").removesuffix("</p>")
    assert tag("p", Html("<b>")) == "<p><b></p>"


def test_the_page_of_a_long_history_is_no_larger_than_its_bound() -> None:
    long = kit.report(runs=[kit.run(f"run {index}", 1.0, number=BUCKETS_MOST) for index in range(4)])
    assert len(page(long).encode()) < 700_000
    assert len(embedded_data(page(long))["times"]) == BUCKETS_MOST + 1


def test_runs_with_other_stretches_share_one_axis_of_times() -> None:
    runs = [kit.run("a", 1.0, 100), kit.run("b", 1.0, 70)]
    data = chart_data(kit.POLICY, Setup(replicas=1), kit.POLICY.metrics[0], runs)
    times = data["times"]
    assert times == sorted(set(times))
    assert {len(column) for run in data["runs"] for column in (run["most"], run["average"])} == {len(times)}
    assert times[-1] == kit.SINCE + 168 * kit.HOUR
    assert data["runs"][1]["most"][0] == kit.buckets(70)[0].most


def test_the_needed_pods_are_the_load_at_the_high_watermark_each() -> None:
    data = chart_data(kit.POLICY, Setup(replicas=1), kit.POLICY.metrics[0], [kit.run("a", 0.8), kit.run("b", 1.3)])
    bucket = kit.buckets(500, 0.8)[250]
    assert data["needed"][250] == pytest.approx(bucket.average * bucket.serving / 1.2e9, rel=1e-3)


@pytest.mark.parametrize(
    ("resource", "marks", "setup", "expected"),
    [
        ({"name": "cpu"}, ("1200m", "400m"), {}, ("m", 1200, 400, 1200)),
        ({"name": "memory"}, ("2Gi", "1Gi"), {}, ("B", 2**31, 2**30, 1.2)),
        ({"name": "cpu", "relativeTo": "Limit"}, ("80%", "40%"), {"limits": {"cpu": 2 * 10**9}}, ("%", 80, 40, 60)),
        ({"name": "cpu", "relativeTo": "Limit"}, ("80%", "40%"), {}, ("m", None, None, 1200)),
    ],
)
def test_loads_and_watermarks_are_drawn_in_the_unit_of_the_policy(resource, marks, setup, expected) -> None:
    metric = {"name": "load", "resource": resource, "highWatermark": marks[0], "lowWatermark": marks[1]}
    policy = parse_policy({"metadata": {"name": "web"}, "spec": {"metrics": [metric]}})
    scale = load_scale(policy, Setup(replicas=1, **setup), policy.metrics[0])
    assert (scale.unit, scale.high, scale.low, scale.of(1.2e9)) == expected


def test_the_band_of_a_target_is_where_the_policy_does_not_act() -> None:
    spec = {"strategy": "Ratio", "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "target": "1"}]}
    policy = parse_policy({"metadata": {"name": "web"}, "spec": spec | {"tolerance": "10%"}})
    band = chart_data(policy, Setup(replicas=1), policy.metrics[0], [kit.run("a", 1.0)])["band"]
    assert band == {"high": 1100, "low": 900, "highPlus": 1100, "lowMinus": 900}


def test_figures_without_a_price_or_a_capacity_are_left_away() -> None:
    stock, ours = kit.run("stock HPA", 1.0, shortfall=None), kit.run("policy", 1.0, shortfall=None)
    text = page(kit.report(runs=kit.three(ours, stock), price=None))
    assert "Cost" not in text
    assert "beyond the pods" not in text


def test_small_shares_and_changes_are_never_shown_as_nothing() -> None:
    assert [share_text(share) for share in (None, 0.0, 0.00001, 0.0123)] == ["–", "0 %", "< 0.01 %", "1.23 %"]
    pairs = ((110, 100), (97.4, 100), (5, 5), (5, 0))
    assert [change_text(*pair) for pair in pairs] == ["+10.0 %", "−2.6 %", "±0 %", "–"]


def test_the_wheel_carries_the_assets() -> None:
    root = Path(__file__).parents[3]
    files = {file.distribution_path for file in WheelBuilder(str(root)).recurse_included_files()}
    assert {f"adapter/commands/replay/page/assets/{name}" for name in (*LIBRARY, "page.js", "page.css")} <= files


def test_the_headline_says_what_the_policy_fails_also_where_the_stock_hpa_fails_nothing() -> None:
    runs = kit.three(stock=kit.run("stock HPA", 0.8, shortfall=0.0), policy=kit.run("ours", 1.0, shortfall=0.000243))
    text = page(kit.report(runs=runs))
    assert "capacity <strong>0.0243 %</strong> instead of 0 %" in text


def test_the_charts_show_the_metric_that_the_runs_are_judged_by() -> None:
    data = embedded_data(page(kit.report(judged_by="memory")))
    assert (data["metric"], data["unit"], data["band"]["high"]) == ("memory", "B", 2**31)
    assert embedded_data(page(kit.report()))["metric"] == "cpu"
