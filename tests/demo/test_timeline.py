"""The totals of a timeline: seconds of overload, pod-minutes, rescales, and the recovery from the pull-out."""

import pytest

from lab.demo.timeline import Mark, Recovery, overloaded, recovery, summed
from tests.demo.world import pulled_out_story, side, tick, timeline


def test_overload_is_a_load_above_the_watermark_and_counts_until_the_next_tick() -> None:
    at_the_watermark, rounds_to_it = tick(0, 6000), tick(10, 6001)
    assert summed(timeline(at_the_watermark, rounds_to_it, tick(25, 6000), end=60), "ours").overloaded == 0
    account = summed(timeline(tick(0, 6000), tick(10, 6500), tick(25, 6000), tick(40, 7000), end=60), "ours")
    assert (account.overloaded, account.longest) == (35, 20)


def test_demand_without_serving_pods_is_the_worst_overload() -> None:
    account = summed(timeline(tick(0, 1600, stock=side(3, serving=0)), end=10), "stock")
    assert (account.overloaded, account.worst, account.excess) == (10, None, 16)
    assert not overloaded(tick(0, 0), side(3, serving=0), 1200)


def test_the_excess_is_the_demand_beyond_the_watermark_in_core_seconds() -> None:
    story = timeline(tick(0, 8000, ours=side(7, serving=5)), end=10)
    assert summed(story, "ours").excess == pytest.approx((8000 - 5 * 1200) * 10 / 1000)
    assert summed(story, "ours").worst == 1600


def test_pod_minutes_count_the_pods_that_exist_and_rescales_what_was_set() -> None:
    story = timeline(
        tick(0, ours=side(5)), tick(20, ours=side(7, pods=5)), tick(30, ours=side(7)), tick(50, ours=side(5)), end=60
    )
    account = summed(story, "ours")
    assert account.pod_minutes == pytest.approx((5 * 20 + 5 * 10 + 7 * 20 + 5 * 10) / 60)
    assert (account.rescales, account.final) == (2, 5)


def test_recovery_distinguishes_a_rescale_from_a_fall_in_demand() -> None:
    story = pulled_out_story()
    assert recovery(story, "ours") == Recovery(10, by_itself=True)
    assert recovery(story, "stock") == Recovery(30, by_itself=False)


def test_recovery_is_of_the_first_overload_after_the_pull_out_and_none_without_both() -> None:
    story = timeline(tick(0, 9000), tick(5, 1000), tick(10, 9000), tick(15, 1000), marks=(Mark(10, "out"),))
    assert recovery(story, "ours") == Recovery(5, by_itself=False)
    assert recovery(timeline(tick(0, 9000), marks=(Mark(0, "out"),)), "ours") == Recovery(None)
    assert recovery(timeline(tick(0, 9000)), "ours") is None
    assert recovery(timeline(tick(0, 1000), marks=(Mark(0, "out"),)), "ours") is None
