"""The stock HPA beside a policy: as safe as the policy, so that pods are compared at the same risk."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import pytest

from adapter.commands.replay.aim import aimed_fairly, highest_share, risk
from adapter.commands.replay.comparison import SUBJECT, compare, replay
from adapter.commands.replay.service import History, Setup, Summary
from tests.load.kit import cpu, policy
from tests.replay.services import POD, hpa, wandering

BAND = policy(cpu("1000m", "600m"))
SETUP = Setup(replicas=10, delay=5.0, window=15.0, capacity={"cpu": 12 * POD // 10})
PULLED_OUT = wandering(3, 3000)
TICKS = [tick._replace(pulled_out=0) for tick in PULLED_OUT]


@contextmanager
def history() -> Iterator[History]:
    yield iter(TICKS)


def summary(shortfall: float) -> Summary:
    return Summary(60.0, 0.0, 0.0, shortfall, 0, 0, 0, 0, 60.0, 1, 1)


@pytest.mark.parametrize("edge", [41, 55, 99, 139])
def test_the_highest_share_that_is_safe_is_found_within_two_percent(edge: int) -> None:
    tried: list[Fraction] = []

    def play(shares: Sequence[Fraction]) -> list[Summary]:
        tried.extend(shares)
        return [summary(0.5 if share > Fraction(edge, 100) else 0.0) for share in shares]

    aim = highest_share(play, 0.0)
    assert aim is not None
    assert 0 <= Fraction(edge, 100) - aim.share < Fraction(2, 100)
    assert len(tried) == len(set(tried)) <= 11


def test_where_no_share_is_safe_enough_there_is_none() -> None:
    assert highest_share(lambda shares: [summary(0.5) for _ in shares], 0.1) is None


def test_the_stock_hpa_has_the_shortfall_of_the_policy() -> None:
    found = replay(compare(BAND, hpa(2, 60), SETUP), TICKS)
    assert found is not None
    at_high = risk(found.runs[0].summary)
    wanted = risk(found.runs[SUBJECT].summary)
    fair = aimed_fairly(found, history)
    assert risk(fair.runs[0].summary) <= 1.01 * wanted
    assert abs(risk(fair.runs[0].summary) - wanted) < abs(at_high - wanted)
    assert "where its shortfall is at most the policy's" in fair.comparison.stock_is
    assert fair.runs[SUBJECT:] == found.runs[SUBJECT:]


def test_a_stock_hpa_that_cannot_be_as_safe_says_so() -> None:
    @contextmanager
    def pulled_out() -> Iterator[History]:
        yield iter(PULLED_OUT)

    found = replay(compare(BAND, hpa(2, 60), SETUP), PULLED_OUT)
    assert found is not None
    assert "where its shortfall is still above the policy's" in aimed_fairly(found, pulled_out).comparison.stock_is


def test_an_hpa_that_runs_today_stays_as_it_is() -> None:
    mine = compare(BAND, hpa(2, 60), SETUP)
    found = replay(compare(BAND, hpa(2, 60), SETUP, stock=mine.stock), TICKS[:200])
    assert found is not None
    assert aimed_fairly(found, history) is found
    assert found.comparison.stock_is == "the HPA as it is today"
