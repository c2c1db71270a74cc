"""Pacing: velocity, cooldown, schedules and fallback, in their order."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pacing import Paced, pace
from adapter.load.samples import QuerySamples, ResourceSamples, Samples
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Bounds, Cooldown, Fallback, Mode, Policy, Schedule, Velocity
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, out, pod, policy, queue, same, scale, total, usage

BAND = policy(cpu("1200m", "400m"))
NO_LIMITS = ScheduleLimits()


def paced(
    wanted: int, current: int, rule: Policy = BAND, limits: ScheduleLimits = NO_LIMITS, last: float | None = None
) -> tuple[int, HeldBy | None]:
    return pace(Paced(wanted, None), current, rule, limits, last, NOW)


def up(percent: int) -> Policy:
    return replace(BAND, velocity=Velocity(up=percent))


def down(percent: int) -> Policy:
    return replace(BAND, velocity=Velocity(down=percent))


class TestVelocity:
    @pytest.mark.parametrize(
        ("rule", "current", "wanted", "desired"),
        [
            (up(20), 3, 6, 4),
            (down(1), 7, 3, 6),
            (up(100), 5, 20, 10),
            (up(50), 5, 20, 7),
            (down(20), 10, 1, 8),
            (down(100), 10, 1, 1),
            (up(0), 5, 20, 5),
            (down(0), 5, 1, 5),
        ],
    )
    def test_so_many_percent_of_the_current_count_but_a_pod_at_least(
        self, rule: Policy, current: int, wanted: int, desired: int
    ) -> None:
        expected = None if desired == wanted else HeldBy.VELOCITY
        assert paced(wanted, current, rule) == (desired, expected)

    def test_a_direction_that_is_not_limited_moves_at_once(self) -> None:
        assert paced(1, 100, up(10)) == (1, None)
        assert paced(100, 1, down(10)) == (100, None)

    @given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
    def test_it_never_moves_away_from_the_wanted_count_nor_past_it(
        self, current: int, wanted: int, percent: int
    ) -> None:
        desired, _ = paced(wanted, current, replace(BAND, velocity=Velocity(up=percent, down=min(percent, 100))))
        assert min(current, wanted) <= desired <= max(current, wanted)
        assert desired != current or wanted == current or percent == 0


class TestCooldown:
    RULE = replace(BAND, cooldown=Cooldown(up=60, down=300))

    @pytest.mark.parametrize(
        ("wanted", "ago", "desired"), [(8, 59, 5), (8, 60, 8), (2, 299, 5), (2, 300, 2), (8, -500, 5), (5, 1, 5)]
    )
    def test_nothing_moves_in_a_direction_before_its_seconds_are_over(
        self, wanted: int, ago: float, desired: int
    ) -> None:
        expected = None if desired == wanted else HeldBy.COOLDOWN
        assert paced(wanted, 5, self.RULE, last=NOW - ago) == (desired, expected)

    def test_a_count_that_never_changed_cools_nothing(self) -> None:
        assert paced(8, 5, self.RULE) == (8, None)


@pytest.mark.parametrize(
    ("wanted", "current", "rule", "limits", "expected"),
    [
        pytest.param(5, 5, BAND, ScheduleLimits(floor=20), (20, HeldBy.SCHEDULE), id="a floor raises"),
        pytest.param(50, 5, BAND, ScheduleLimits(cap=8), (8, HeldBy.SCHEDULE), id="a cap lowers"),
        pytest.param(6, 5, BAND, ScheduleLimits(floor=3, cap=8), (6, None), id="between both"),
        pytest.param(5, 5, BAND, ScheduleLimits(floor=20, cap=8), (20, HeldBy.SCHEDULE), id="a floor beats a cap"),
        pytest.param(
            5, 5, replace(up(10), cooldown=Cooldown(up=600)), ScheduleLimits(floor=20), (20, HeldBy.SCHEDULE),
            id="a floor waits for nothing",
        ),
        pytest.param(
            100, 30, up(10), ScheduleLimits(floor=20), (33, HeldBy.VELOCITY), id="above the floor the pace holds"
        ),
        pytest.param(
            30, 30, down(10), ScheduleLimits(cap=20), (27, HeldBy.VELOCITY), id="a cap is reached at the pace"
        ),
    ],
)  # fmt: skip
def test_schedules(
    wanted: int, current: int, rule: Policy, limits: ScheduleLimits, expected: tuple[int, HeldBy | None]
) -> None:
    assert paced(wanted, current, rule, limits, last=NOW) == expected


def lunch(low: int | None = 20, high: int | None = None) -> Policy:
    """A policy with a schedule that is open now."""
    schedule = Schedule(name="lunch", cron="* * * * *", zone=ZoneInfo("UTC"), duration=3600, minimum=low, maximum=high)
    return replace(BAND, schedules=(schedule,))


def decided(rule: Policy, load: str = "800m", pods: int = 5, **changes: object) -> Decision:
    made, loads = same(pods, load)
    _, decision = assess_and_decide(rule, made, usage(loads), **changes)  # type: ignore[arg-type]
    return decision


def fallback(rule: Policy, after: float, replicas: int) -> Policy:
    return replace(rule, fallback=Fallback(after=after, replicas=replicas))


class TestDecisions:
    def test_a_schedule_is_bounded_by_the_hpa_too(self) -> None:
        decision = decided(lunch(20), bounds=Bounds(maximum=10))
        assert (decision.desired, decision.held_by) == (10, HeldBy.BOUNDS)

    def test_the_hpas_last_scaling_counts_for_the_cooldown(self) -> None:
        rule = replace(BAND, cooldown=Cooldown(up=60))
        held = decided(rule, "2400m", bounds=Bounds(maximum=100, last_scale=NOW - 59))
        assert (held.desired, held.held_by) == (5, HeldBy.COOLDOWN)
        assert decided(rule, "2400m", bounds=Bounds(maximum=100, last_scale=NOW - 60)).desired == 10

    def test_a_remembered_scaling_counts_after_a_restart(self) -> None:
        rule = replace(BAND, cooldown=Cooldown(up=60))
        memory = Memory(last_replicas=5, last_scale=NOW - 10)
        assert decided(rule, "2400m", memory=memory).desired == 5

    def test_a_scaling_since_the_assessment_counts_for_the_cooldown(self) -> None:
        rule = replace(BAND, cooldown=Cooldown(down=60))
        made, loads = same(5, "200m")
        assessment, before = assess_and_decide(rule, made, usage(loads))
        assert before.desired == 2
        seen = decide(assessment, scale(7), BOUNDS, NOW + 5)
        assert (seen.desired, seen.held_by) == (7, HeldBy.COOLDOWN)
        told = decide(assessment, scale(5), replace(BOUNDS, last_scale=NOW + 1), NOW + 5)
        assert (told.desired, told.held_by) == (5, HeldBy.COOLDOWN)

    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_policy_that_rests_minds_no_schedule(self, mode: Mode) -> None:
        decision = decided(replace(lunch(20), mode=mode))
        assert (decision.desired, decision.held_by) == (5, HeldBy.MODE)

    def test_a_policy_that_is_held_keeps_the_count_until_then(self) -> None:
        decision = decided(replace(lunch(20), hold_until=NOW + 1), "2400m")
        assert (decision.desired, decision.held_by) == (5, HeldBy.MODE)
        assert decided(replace(BAND, hold_until=NOW), "2400m").desired == 10

    def test_pods_that_are_out_are_no_reason_to_be_slower(self) -> None:
        pods, loads = same(5, "1500m")
        _, decision = assess_and_decide(up(20), [*pods, *(out(f"out-{n}") for n in range(5))], usage(loads))
        assert decision.desired == 12


class TestErrors:
    @pytest.mark.parametrize(
        ("rule", "failed_for", "maximum", "desired", "held_by"),
        [
            pytest.param(lunch(20), 0, 1000, 20, HeldBy.SCHEDULE, id="a floor is kept"),
            pytest.param(lunch(5), 0, 1000, None, None, id="but none that is no rise"),
            pytest.param(lunch(None, 2), 0, 1000, None, None, id="a cap shrinks nothing"),
            pytest.param(fallback(BAND, 300, 10), 299, 1000, None, None, id="a fallback waits for its time"),
            pytest.param(fallback(BAND, 300, 10), 300, 1000, 10, HeldBy.METRIC_ERROR, id="a fallback after its time"),
            pytest.param(fallback(BAND, 300, 3), 3000, 1000, None, None, id="it never lowers"),
            pytest.param(fallback(lunch(20), 0, 30), 1, 1000, 30, HeldBy.METRIC_ERROR, id="a fallback above a floor"),
            pytest.param(fallback(lunch(20), 0, 10), 1, 1000, 20, HeldBy.SCHEDULE, id="a floor above a fallback"),
            pytest.param(fallback(BAND, 0, 30), 1, 8, 8, HeldBy.BOUNDS, id="the HPA's bounds come last"),
        ],
    )
    def test_without_any_answer_floors_and_fallbacks_raise_and_nothing_lowers(
        self, rule: Policy, failed_for: float, maximum: int, desired: int | None, held_by: HeldBy | None
    ) -> None:
        made, _ = same(5, "1")
        failing = Samples(ResourceSamples(error="metrics.k8s.io: 503"))
        memory = Memory(error_since=NOW - failed_for)
        _, decision = assess_and_decide(rule, made, failing, memory=memory, bounds=Bounds(maximum=maximum))
        assert (decision.desired, decision.held_by, decision.verdict) == (desired, held_by, Verdict.ERROR)
        assert ("503" in (decision.error or "")) is (desired is None)

    def test_one_metric_with_an_answer_is_enough_to_do_without_the_fallback(self) -> None:
        rule = replace(policy(cpu("1200m", "400m"), queue("100")), fallback=Fallback(after=0, replicas=10))
        made, loads = same(5, "100m")
        _, decision = assess_and_decide(rule, made, usage(loads), memory=Memory(error_since=NOW - 3000))
        assert (decision.desired, decision.held_by) == (5, HeldBy.METRIC_ERROR)


class TestZero:
    def asleep(self, rule: Policy, load: str = "0", minimum: int = 0) -> Decision:
        _, decision = assess_and_decide(rule, [], total(load), current=0, bounds=Bounds(minimum=minimum, maximum=50))
        return decision

    def test_a_floor_wakes_a_service_that_may_sleep(self) -> None:
        rule = replace(lunch(3), metrics=(queue("100"),))
        assert self.asleep(rule).desired == 3

    def test_a_service_scaled_to_zero_by_hand_stays_at_zero(self) -> None:
        rule = replace(lunch(3), metrics=(queue("100"),))
        assert self.asleep(rule, "50", minimum=1).desired == 0

    def test_a_failing_source_is_an_error_at_zero_and_the_fallback_wakes(self) -> None:
        rule = replace(policy(cpu("1200m"), queue("100")), fallback=Fallback(after=300, replicas=10))
        bounds, silent = (
            Bounds(minimum=0, maximum=50),
            Samples(queries={"queue": QuerySamples(error="connection refused")}),
        )
        assessment, before = assess_and_decide(rule, [], silent, current=0, bounds=bounds)
        assert before.error == "Deployment web is scaled to zero; query queue: connection refused"
        assert decide(assessment, scale(0), bounds, NOW + 300).desired == 10

    def test_a_total_that_answers_at_zero_is_no_error_though_a_pod_that_is_left_does_not_serve(self) -> None:
        rule = replace(policy(queue("100")), fallback=Fallback(after=60, replicas=10))
        bounds = Bounds(minimum=0, maximum=50)
        for left in (pod("new", ready=False, age=5), pod("old", deleting=True)):
            assessment, decision = assess_and_decide(rule, [left], total("5"), current=0, bounds=bounds)
            assert (decision.desired, assessment.memory.error_since) == (1, None)

    def test_the_first_pod_comes_at_any_velocity_but_zero(self) -> None:
        rule = replace(up(10), metrics=(queue("100"),))
        assert self.asleep(rule, "500").desired == 1
        assert self.asleep(replace(rule, velocity=Velocity(up=0)), "500").desired == 0
