"""The scenarios: the recorded figures, and what matters in each."""

from dataclasses import replace

import pytest

from tests.replay.kit import policy
from tests.replay.scenarios.catalog import FOLLOWING, MINUTE, RAW, SCENARIOS, WATERMARK, Contender, native
from tests.replay.scenarios.table import PAGE, counts, page, play, results

FLOOR = f"{WATERMARK} with a floor"


def test_documentation_has_the_figures_of_every_scenario_as_they_are() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), (
        "decisions changed; if that is meant: python -m tests.replay.scenarios"
    )


def shortfall(scenario: str, *contenders: Contender) -> list[float]:
    played = play(replace(SCENARIOS[scenario], contenders=contenders))
    return [one.summary.shortfall_ratio or 0.0 for one in played]


def watermarks(high: int, low: int, **spec: str) -> Contender:
    return Contender(f"{high}m", FOLLOWING, policy(f"{high}m", f"{low}m", **spec))


def test_of_a_spike_a_policy_fails_no_more_than_the_stock_hpa_with_the_same_level() -> None:
    """The first 45 s fail with any: until a sample shows the spike, and pods that follow from it serve."""
    at_800, at_1000 = watermarks(800, 640), watermarks(1000, 800)
    stocks = [Contender(f"{level}m", native(f"{level}m")) for level in (800, 1000)]
    ours_800, ours_1000, stock_800, stock_1000 = shortfall("spike", at_800, at_1000, *stocks)
    carried = 1500 * 10
    unavoidable = (24_000 - carried) * 45 / (8000 * 25 * MINUTE + 24_000 * 5 * MINUTE)
    assert ours_800 == stock_800 == pytest.approx(unavoidable)
    assert ours_1000 < stock_1000


def test_of_a_jump_beyond_the_limit_the_saturation_rule_fails_little_more_than_any_reaction() -> None:
    unavoidable = (25_000 - 1500 * 10) * MINUTE / (12_500 * 5 * MINUTE + 25_000 * 55 * MINUTE)
    usual, double = shortfall(
        "watermark-at-limit", watermarks(1500, 1200), watermarks(1500, 1200, saturationFactor="2")
    )
    assert double == pytest.approx(unavoidable)
    assert unavoidable < usual < 1.6 * unavoidable


def test_after_a_mass_pull_out_the_policy_is_below_the_high_watermark_within_two_minutes_the_stock_hpa_never() -> None:
    played = results("pull-out")
    assert (played[WATERMARK].summary.longest_over_high_seconds, counts(played[RAW])) == (
        pytest.approx(90, abs=30),
        [10],
    )
    assert played[RAW].summary.longest_over_high_seconds == 15 * MINUTE, "until the pods come back"
    assert (played[RAW].summary.shortfall_ratio, played[WATERMARK].summary.shortfall_ratio)[0] > 0.02


def test_a_floor_of_last_week_has_the_pods_up_before_the_peak() -> None:
    played = results("weekly-peak")
    ahead = next(at for at, count in played[FLOOR].counts if count >= 36)
    assert ahead < 30 * MINUTE
    assert played[FLOOR].seconds_to_goal == 0
    assert played[FLOOR].summary.shortfall_ratio == 0
    assert played[WATERMARK].summary.shortfall_ratio > 0
