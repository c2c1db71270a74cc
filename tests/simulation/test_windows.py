"""Rates in closed loop while scrapes are missed: no gap shrinks an unchanged service or hides a fall for long.

`EFFECTIVE_LOAD_LOOPS=3000` runs more of the random loops. `tests/e2e/test_windows.py` has a few on real servers.
"""

import os
import random

import pytest

from tests.simulation.closed_loop import assert_never_below_the_truth
from tests.simulation.gaps import PAIRS, GapLoop, fault, faults, gap_loop
from tests.simulation.scrapes import Missed
from tests.simulation.sources import Kind

LOOPS = int(os.environ.get("EFFECTIVE_LOAD_LOOPS", "200"))
PARTS = 4


@pytest.mark.timeout(60 + LOOPS)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_gaps_shrink_nothing_and_hide_no_fall(part: int) -> None:
    each = LOOPS // PARTS
    assert faults(range(part * each, part * each + each)) == {}


@pytest.mark.parametrize("seed", [250, 550, 760, 804, 848])
def test_an_interval_that_was_learned_while_every_other_scrape_failed_shrinks_nothing(seed: int) -> None:
    assert fault(gap_loop(seed)) == ""


def looped(
    scrape: int, poll: int, window: int, missed: Missed = lambda _pod, _now: False, fall: int = 10**9
) -> GapLoop:
    """A service of ten pods whose first one is scraped with these gaps."""
    one = GapLoop(0, Kind.QUERY, scrape, poll, window, fall=fall)
    one.source.missed = lambda pod, now: pod == "web-0000" and missed(pod, now)
    return one


def assert_followed(one: GapLoop, after: int) -> None:
    """Asserts that the service has shrunk by then."""
    shrunk = [step.at for step in one.loop.steps if step.after < one.pods]
    assert shrunk, "it never shrinks"
    assert one.fall <= shrunk[0] <= after
    assert_never_below_the_truth(one.loop)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(("scrape", "poll", "window"), PAIRS)
def test_one_flaky_target_hides_no_fall_for_two_windows(scrape: int, poll: int, window: int, share: float) -> None:
    fall = 5 * window
    one = looped(scrape, poll, window, lambda pod, now: random.Random(f"{pod} {now}").random() < share, fall)
    one.loop.run(fall + 3 * window)
    assert_followed(one, fall + 2 * window + 2 * poll)


@pytest.mark.parametrize("every", [3, 7])
@pytest.mark.parametrize(("scrape", "poll", "window"), PAIRS)
def test_a_target_that_is_down_by_turns_hides_no_fall(scrape: int, poll: int, window: int, every: int) -> None:
    fall = 6 * window
    one = looped(scrape, poll, window, lambda _pod, now: now // scrape % every == 0, fall)
    one.loop.run(fall + 3 * window)
    assert_followed(one, fall + 2 * window + 2 * poll)


def test_a_changed_scrape_interval_is_learned_anew() -> None:
    one = GapLoop(0, Kind.QUERY, 15, 15, 120)
    loop, source = one.loop, one.source
    for interval in (15, 30, 15):
        source.stores[0].interval = interval
        loop.run(1200)
        begin, count = loop.now, loop.replicas
        source.missed = lambda _pod, now, begin=begin, end=begin + 2 * interval: begin <= now < end  # type: ignore[misc]
        loop.run(2 * interval + 15)
        points = source.samples().queries["load"].pods.values()
        assert {point.full_window for point in points} == {120 // interval}
        loop.run(600)
        assert loop.replicas == count
