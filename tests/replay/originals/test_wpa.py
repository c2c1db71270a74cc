"""The WatermarkPodAutoscaler's own arithmetic, slips included: values of its tests, and of its code when it ran."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from adapter.commands.migrate.pair import Wpa, WpaMetric
from adapter.commands.replay.originals import WpaAutoscaler, limited, propose
from adapter.commands.replay.service import View
from adapter.load.pods import Pod, PodCondition

METRIC = WpaMetric(name="m", high=85_000, low=75_000)
WPA = Wpa(metrics=(METRIC,), average=True, tolerance=10, maximum=1000)
MILLI = 10**6


def pods(count: int, ready: int | None = None, *, since: float = 0.0) -> tuple[Pod, ...]:
    """Pods of which the first ones are Ready."""
    return tuple(
        Pod(
            namespace="a",
            name=f"p{number}",
            uid=f"p{number}",
            created_at=0.0,
            started_at=0.0,
            ready=PodCondition(ready is None or number < ready, since),
        )
        for number in range(count)
    )


def view(replicas: int, total: int | None, now: float = 1000.0, **changes: Any) -> View:
    """What the controller sees: a total in milli-units of metric m."""
    load: Mapping[str, int] = {} if total is None else {"m": total * MILLI}
    seen = View(now, replicas, replicas, pods(replicas), {}, load, now)
    return seen._replace(**changes)


@pytest.mark.parametrize(
    ("ready", "total", "wanted"),
    [
        (11, 20 * 85_000, 21),  # exactly 20; the controller divides and multiplies in floats
        (10, 20 * 85_000, 20),
        (10, 851_000 + 8_500, 11),
        (21, 11 * 75_000, 10),  # exactly 11
        (20, 11 * 75_000, 11),
        (20, 1, 1),
    ],
)
def test_the_order_of_floats_is_the_controllers(ready: int, total: int, wanted: int) -> None:
    assert propose(WPA, METRIC, total, ready, ready).replicas == wanted


@pytest.mark.parametrize(
    ("usage", "tolerance", "acts"), [(101, 10, False), (102, 10, True), (20, 10, False), (19, 10, True), (20, 1, False)]
)
def test_the_band_is_widened_in_whole_milli_units(usage: int, tolerance: int, acts: bool) -> None:
    metric = WpaMetric(name="m", high=100, low=20)
    proposal = propose(replace(WPA, tolerance=tolerance), metric, usage, 1, 1)
    assert (proposal.above or proposal.below) is acts


def test_absolute_compares_the_sum() -> None:
    absolute = replace(WPA, average=False)
    assert propose(absolute, METRIC, 170_000, 4, 4).replicas == 8
    assert propose(absolute, METRIC, 80_000, 4, 4).replicas == 4


def test_a_proposal_is_rounded_up_to_a_multiple_and_never_turns() -> None:
    by_four = replace(WPA, modulo=4)
    assert propose(by_four, METRIC, 9 * 95_000, 9, 9).replicas == 12
    assert propose(by_four, METRIC, 6 * 70_000, 6, 6).replicas == 6
    assert propose(WPA, METRIC, 5 * 95_000, 5, 10).replicas == 10  # five that are not ready suppress it


@pytest.mark.parametrize(
    ("current", "factor", "up", "down"),
    [(423, 30_000, 549, 297), (10, 29_000, 12, 8), (3, 1_000, 4, 2), (10, 0, 10, 10), (200, 500, 201, 199)],
)
def test_one_step_is_a_whole_percentage_rounded_down_and_a_pod_at_least(
    current: int, factor: int, up: int, down: int
) -> None:
    wpa = replace(WPA, up_factor=factor, down_factor=factor)
    assert limited(wpa, current, 1000, current) == up
    assert limited(wpa, current, 1, current) == down


def test_a_capped_step_down_waits_for_pods_that_are_not_ready() -> None:
    assert limited(WPA, 20, 5, ready=12) == 20
    assert limited(WPA, 20, 5, ready=16) == 16


@pytest.mark.parametrize(
    ("towards", "usage", "wanted"),
    [("highwatermark", 76_000, 9), ("highwatermark", 84_000, 10), ("lowwatermark", 84_000, 11), ("", 76_000, 10)],
)
def test_inside_the_band_it_may_converge_by_a_step(towards: str, usage: int, wanted: int) -> None:
    assert propose(replace(WPA, converge=towards), METRIC, 10 * usage, 10, 10).replicas == wanted


def test_the_first_look_counts_as_a_scaling() -> None:
    controller = WpaAutoscaler(replace(WPA, up_window=60, down_window=300), "wpa")
    assert controller.sync(view(10, 10 * 80_000, 1000.0)) == 10
    assert controller.sync(view(10, 10 * 95_000, 1059.0)) == 10
    assert controller.sync(view(10, 10 * 95_000, 1060.0)) == 12
    assert controller.sync(view(12, 12 * 10_000, 1359.0)) == 12
    assert controller.sync(view(12, 12 * 10_000, 1360.0)) == 10


def test_a_delay_counts_from_the_first_look_beyond_the_watermark_and_anew_after_one_inside() -> None:
    controller = WpaAutoscaler(replace(WPA, up_window=1, up_delay=60), "wpa")
    steps = [(0, 80_000, 10), (15, 95_000, 10), (60, 95_000, 10), (61, 80_000, 10), (75, 95_000, 10), (134, 95_000, 10)]
    for at, usage, wanted in [*steps, (135, 95_000, 12)]:
        assert controller.sync(view(10, 10 * usage, float(at))) == wanted, at


def test_bounds_need_no_permission_but_an_answer() -> None:
    controller = WpaAutoscaler(replace(WPA, maximum=4, up_window=60), "wpa")
    assert controller.sync(view(9, None)) == 9
    assert controller.sync(view(9, 9 * 80_000)) == 4
    assert controller.sync(view(0, 1, pods=())) == 0


def test_zero_is_inside_the_band_and_proposes_the_ready_pods() -> None:
    controller = WpaAutoscaler(WPA, "wpa")
    assert controller.sync(view(10, 0, pods=pods(10, 9))) == 9
    assert WpaAutoscaler(replace(WPA, tolerate_zero=True), "wpa").sync(view(10, 0)) == 8


def test_too_few_ready_pods_stop_it_in_both_directions() -> None:
    controller = WpaAutoscaler(replace(WPA, min_available=50), "wpa")
    assert controller.sync(view(10, 10 * 95_000, pods=pods(10, 4))) == 10


def test_a_dry_run_counts_scalings_and_makes_none() -> None:
    controller = WpaAutoscaler(replace(WPA, dry_run=True, up_window=60), "wpa")
    assert [controller.sync(view(10, 10 * 95_000, at)) for at in (0.0, 60.0)] == [10, 10]


def test_cpu_of_a_pod_that_was_ready_before_the_delay_is_ignored_for_ever() -> None:
    cpu = WpaMetric(name="cpu", resource="cpu", high=100, low=50)
    wpa = replace(WPA, metrics=(cpu,), readiness_delay=10)
    samples = {"cpu": {f"p{number}": 200 * MILLI for number in range(4)}}
    early, late = pods(4, since=5.0), pods(4, since=10.0)
    assert WpaAutoscaler(wpa, "wpa").sync(view(4, None, pods=early, samples=samples)) == 4
    assert WpaAutoscaler(wpa, "wpa").sync(view(4, None, pods=late, samples=samples)) == 6
