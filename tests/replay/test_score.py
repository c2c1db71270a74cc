"""The figures of a run: what counts, and for how long."""

import pytest

from adapter.commands.replay.score import BUCKETS_MOST, CHANGES_KEPT, Score
from adapter.commands.replay.service import Judge, Run, Setup
from adapter.commands.replay.simulation import simulate
from tests.replay.services import POD, START, Fixed, phases, steady

HIGH = Judge({"cpu": POD})


def run(history: object, plan: dict[int, int] | None = None, judge: Judge = HIGH, **setup: object) -> Run:
    settled = {"replicas": 4, "starts": 0.0, "stops": 0.0} | setup
    return simulate(history, Setup(**settled), [Fixed(plan)], judge)[0]


def test_time_over_the_high_watermark_is_counted_and_its_longest_stretch() -> None:
    summary = run(phases((4, 60), (5, 120), (4, 60), (5, 30))).summary
    assert (summary.over_high, summary.recovery, summary.seconds) == (150, 120, 270)

    once_new_pods_serve = run(steady(6, 120), {0: 8}, starts=30.0).summary
    assert once_new_pods_serve.over_high == 30


def test_load_beyond_the_capacity_of_serving_pods_is_lost() -> None:
    summary = run(phases((4, 60), (12, 60)), capacity={"cpu": 2 * POD}).summary
    assert summary.lost == 4 * POD * 60
    assert summary.shortfall == pytest.approx(4 * 60 / (4 * 60 + 12 * 60))
    none_serves = run(steady(4, 60, pulled_out=4), capacity={"cpu": POD}).summary
    assert (none_serves.shortfall, none_serves.over_high) == (1, 60)
    assert run(steady(400, 60)).summary.shortfall is None, "no capacity is known"


def test_a_change_that_is_turned_back_within_ten_minutes_is_a_flap() -> None:
    summary = run(steady(4, 1800), {0: 6, 40: 5, 60: 4, 110: 9}).summary
    assert (summary.changes, summary.flaps) == (4, 1)
    assert run(steady(4, 1800), {0: 6, 41: 5}).summary.flaps == 0


def test_overshoot_is_what_was_there_beyond_the_need() -> None:
    assert run(phases((4, 60), (2.5, 60)), {0: 7}).summary.overshoot == 4
    assert run(phases((4, 60), (2.5, 60)), {0: 7}, Judge({"cpu": POD}, minimum=5)).summary.overshoot == 2
    assert run(steady(4, 60, pulled_out=2), {0: 7}).summary.overshoot == 1
    assert run(steady(1, 60, pulled_out=2), {0: 7}, Judge({"cpu": POD}, minimum=3)).summary.overshoot == 2


def test_every_pod_that_exists_counts_for_pod_seconds() -> None:
    assert run(steady(4, 60), {0: 6}, starts=100.0).summary.pod_seconds == 6 * 60
    assert run(steady(4, 60), {0: 2}, stops=20.0).summary.pod_seconds == 4 * 20 + 2 * 40


def test_a_gap_is_not_judged() -> None:
    history = [*steady(9, 60), *(tick._replace(at=tick.at + 600) for tick in steady(9, 60))]
    summary = run(history, lasts=45.0, capacity={"cpu": POD}).summary
    assert summary.unknown == 600 - (45 + 45)
    assert summary.over_high == summary.seconds - summary.unknown
    assert summary.recovery == 90


def test_a_chart_has_a_bounded_number_of_points_and_loses_no_time() -> None:
    made = run(steady(4, 10 * 86_400, step=60.0), {100: 9, 101: 4}, sync=60.0)
    assert len(made.buckets) <= BUCKETS_MOST
    assert sum(bucket.seconds for bucket in made.buckets) == 10 * 86_400
    assert max(bucket.most for bucket in made.buckets) == 9
    assert made.buckets[0].at == START
    assert [two.at - one.at for one, two in zip(made.buckets, made.buckets[1:], strict=False)] == [
        bucket.seconds for bucket in made.buckets[:-1]
    ]


def test_a_chart_shows_the_load_of_a_serving_pod() -> None:
    bucket = run(phases((4, 30), (8, 30))).buckets[0]
    assert (bucket.average, bucket.highest, bucket.serving) == (1.5 * POD, 2 * POD, 4)


def test_only_the_first_changes_are_kept() -> None:
    score = Score(Setup(replicas=1), HIGH, START, "cpu")
    for index in range(CHANGES_KEPT + 5):
        score.changed(START + index, index % 2, 3)
    run = score.run("any")
    assert len(run.changes) == CHANGES_KEPT
    assert run.summary.changes == CHANGES_KEPT + 5
