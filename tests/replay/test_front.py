"""The front: pod-hours at equal shortfall, between levels that were played."""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from adapter.commands.replay import front
from adapter.commands.replay.comparison import compare, replay
from adapter.commands.replay.front import LEVELS, at_level, front_of
from adapter.commands.replay.levels import Level, Play, highest_safe, level_at, search_levels
from adapter.commands.replay.service import Setup, Summary, open_spool, spooled
from tests.load.kit import cpu, policy
from tests.replay.services import POD, hpa, phases

HOUR = 3600.0


def level_of(play: Play, shortfall: float) -> Level | None:
    return level_at(search_levels(play, [shortfall], LEVELS, 2), shortfall)


class Model:
    """Shortfall is a power of the level, pods fall with it; counts what is played."""

    def __init__(self) -> None:
        self.played: list[Fraction] = []

    def __call__(self, shares: Sequence[Fraction]) -> list[Summary]:
        self.played += shares
        return [self.summary(float(share)) for share in shares]

    def summary(self, share: float) -> Summary:
        return Summary(HOUR, 0.0, 0.0, 0.05 * share**6, 0, 0, 7, 0, HOUR * 10 / share, 1, 1)


@pytest.mark.parametrize("shortfall", [0.0001, 0.001, 0.005, 0.04])
def test_pod_hours_at_a_shortfall_are_exact_within_one_percent(shortfall: float) -> None:
    model = Model()
    level = level_of(model, shortfall)
    share = (shortfall / 0.05) ** (1 / 6)
    assert level is not None
    assert level.pod_hours == pytest.approx(10 / share, rel=0.01)
    assert level.flaps == 7
    assert len(model.played) == len(set(model.played)) <= 9


def test_a_level_beyond_which_an_autoscaler_ceases_to_act_lends_nothing_to_the_safe_ones_below_it() -> None:
    def play(shares: Sequence[Fraction]) -> list[Summary]:
        safe = Summary(HOUR, 0, 0, 0.00001, 0, 0, 7, 0, HOUR * 10, 1, 1)
        ceased = safe._replace(shortfall=0.6, pod_seconds=HOUR)
        return [safe if share <= Fraction(9, 10) else ceased for share in shares]

    level = level_of(play, 0.005)
    assert level is not None
    assert level.share == pytest.approx(0.9, abs=0.05)
    assert level.pod_hours == pytest.approx(10, rel=0.01)


def test_a_shortfall_that_no_level_is_safe_enough_for_has_none() -> None:
    assert level_of(lambda shares: [Summary(HOUR, 0, 0, 0.5, 0, 0, 0, 0, HOUR, 1, 1) for _ in shares], 0.1) is None


def test_where_every_level_is_safe_the_capacity_itself_is_the_level() -> None:
    safe = level_of(lambda shares: [Summary(HOUR, 0, 0, 0.0, 0, 0, 2, 0, HOUR, 1, 1) for _ in shares], 0.1)
    assert safe == Level(1.0, 1.0, 2.0)


@pytest.mark.parametrize("edge", [41, 55, 83, 99])
def test_the_highest_safe_level_is_found_within_two_percent(edge: int) -> None:
    def play(shares: Sequence[Fraction]) -> list[Summary]:
        risks = (0.5 if share > Fraction(edge, 100) else 0.0 for share in shares)
        return [Summary(HOUR, 0, 0, risk, 0, 0, 0, 0, HOUR, 1, 1) for risk in risks]

    safe = highest_safe(search_levels(play, [0.0], LEVELS, 6), 0.0)
    assert safe is not None
    assert 0 <= Fraction(edge, 100) - safe < Fraction(2, 100)


def test_a_policy_as_shipped_has_the_band_that_we_ship_whatever_the_policys_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "LEVELS", LEVELS[::3])
    monkeypatch.setattr(front, "SHORTFALLS", (0.005,))
    setup = Setup(replicas=10, capacity={"cpu": 15 * POD // 10})
    history = partial(open_spool, tmp_path / "ticks")
    ticks = list(spooled(phases((12, 900), (5, 1800)), tmp_path / "ticks"))
    fronts = []
    for low in ("600m", "200m"):
        result = replay(compare(policy(cpu("1000m", low)), hpa(2, 60), setup), ticks)
        assert result is not None
        fronts.append(front_of(result, Fraction(15 * POD, 10), history).levels)
    assert fronts[0]["policy as shipped"] == fronts[1]["policy as shipped"]
    assert fronts[0]["policy web"] != fronts[1]["policy web"]


def test_a_level_moves_both_watermarks() -> None:
    first = at_level(policy(cpu("1000m", "600m")), Fraction(2 * 10**9)).metrics[0]
    assert (first.high, first.low) == (2 * 10**9, 12 * 10**8)
    assert at_level(policy(cpu("1000m", "600m")), Fraction(10**9), Fraction(4, 5)).metrics[0].low == 8 * 10**8
