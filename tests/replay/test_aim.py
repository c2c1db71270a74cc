"""The stock HPA beside a policy: as safe as the policy, so that pods are compared at the same risk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from adapter.commands.replay.comparison import SUBJECT, aimed_fairly, compare, replay
from adapter.commands.replay.levels import risk_of
from adapter.commands.replay.service import History, Setup
from tests.load.kit import cpu, policy
from tests.replay.services import POD, hpa, wandering

BAND = policy(cpu("1000m", "600m"))
SETUP = Setup(replicas=10, delay=5.0, window=15.0, capacity={"cpu": 12 * POD // 10})
PULLED_OUT = wandering(3, 1500)
TICKS = [tick._replace(pulled_out=0) for tick in PULLED_OUT[:1000]]


@contextmanager
def history() -> Iterator[History]:
    yield iter(TICKS)


def test_the_stock_hpa_has_the_shortfall_of_the_policy() -> None:
    found = replay(compare(BAND, hpa(2, 60), SETUP), TICKS)
    assert found is not None
    at_high = risk_of(found.runs[0].summary)
    wanted = risk_of(found.runs[SUBJECT].summary)
    fair = aimed_fairly(found, history)
    assert risk_of(fair.runs[0].summary) <= 1.01 * wanted
    assert abs(risk_of(fair.runs[0].summary) - wanted) < abs(at_high - wanted)
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


def test_no_target_with_its_tolerance_is_above_the_limit() -> None:
    limited = replace(SETUP, throttles={"cpu": 12 * POD // 10}, capacity={"cpu": 20 * POD // 10})
    found = replay(compare(BAND, hpa(2, 60), limited), TICKS[:400])
    assert found is not None
    (metric,) = aimed_fairly(found, history).comparison.stock.metrics
    assert metric.aim is not None
    assert metric.aim * 11 / 10 <= 12 * POD // 10
