"""Floors: a service total that keeps the count from falling below what it needs, and does nothing else."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Assessment, Decision, HeldBy, Verdict
from adapter.load.conditions import ConditionType
from adapter.load.decide import decide
from adapter.load.explanation import explain, headline
from adapter.load.memory import Memory
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.schedule import Window
from adapter.load.spec import (
    Average,
    Bounds,
    Cooldown,
    Fallback,
    Metric,
    Mode,
    Policy,
    Query,
    Velocity,
)
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, pod, policy, same, scale, usage
from tests.load.scenarios import Choices, DrawnService, scenarios

PLAN = Metric(name="plan", query=Query(name="plan"), high=Fraction(nano("100")), floor=True)
CPU = cpu("1200m", "400m")
BOTH = policy(CPU, PLAN)


def with_plan(samples: Samples, plan: str | None, *, age: float = 10.0, **more: object) -> Samples:
    """The samples, and a plan of so much load (None: its query failed)."""
    answer = QuerySamples(error="it answered with status 500")
    if plan is not None:
        answer = QuerySamples(total=Point(NOW - age, nano(plan)), fetched_at=NOW - age)
    return replace(samples, queries={**samples.queries, "plan": replace(answer, **more)})  # type: ignore[arg-type]


def decided(
    count: int, load: str | None, plan: str | None, rule: Policy | None = None, **more: object
) -> tuple[Assessment, Decision]:
    pods, loads = same(count, load)
    samples = with_plan(usage(loads), plan)
    return assess_and_decide(rule or policy(CPU, PLAN), pods, samples, **more)  # type: ignore[arg-type]


def desired(count: int, load: str | None, plan: str | None, rule: Policy | None = None, **more: object) -> int | None:
    return decided(count, load, plan, rule, **more)[1].desired


class TestWhatItProposes:
    """⌈S/high⌉, whatever the band, and never the current count."""

    @pytest.mark.parametrize(
        ("count", "load", "plan", "rule", "expected"),
        [
            pytest.param(6, "300m", "600", BOTH, 6, id="what it needs exactly"),
            pytest.param(6, "300m", "601", BOTH, 7, id="a little more"),
            pytest.param(6, "300m", "1", BOTH, 4, id="less than the others"),
            pytest.param(6, "300m", "0", BOTH, 4, id="nothing"),
            pytest.param(10, "100m", "450", BOTH, 5, id="less than there is: it does not hold the count"),
            pytest.param(5, "2400m", "550", BOTH, 10, id="a larger need of another metric wins"),
            pytest.param(4, "800m", "550", policy(CPU, PLAN, multiple_of=4), 8, id="rounded up to a multiple"),
            pytest.param(6, "800m", "550", policy(CPU, PLAN, multiple_of=4), 6, id="but a count that it allows stays"),
        ],
    )
    def test_the_count_does_not_fall_below_what_the_total_needs(
        self, count: int, load: str, plan: str, rule: Policy, expected: int
    ) -> None:
        assert desired(count, load, plan, rule) == expected

    def test_a_floor_raises_a_count_that_is_inside_the_band(self) -> None:
        assessment, decision = decided(4, "800m", "550")
        assert (decision.desired, decision.verdict, decision.held_by) == (6, Verdict.ABOVE, None)
        assert headline(assessment, decision) == "asks for 6, now 4: plan: a floor for 550 at 100 a pod"

    def test_with_average_total_its_high_watermark_is_still_the_load_of_one_pod(self) -> None:
        demand = replace(CPU, high=Fraction(nano("100")), low=Fraction(nano("1")))
        assert desired(4, "10", "550", policy(demand, PLAN, average=Average.TOTAL)) == 6

    def test_pulled_out_pods_are_not_added_to_it(self) -> None:
        pods, loads = same(6, "300m")
        pods[:2] = [replace(one, pulled_out_annotation=True) for one in pods[:2]]
        _, decision = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage(loads), "550"))
        assert decision.desired == 6

    def test_the_largest_floor_wins(self) -> None:
        other = replace(PLAN, name="forecast", query=Query(name="forecast"))
        pods, loads = same(6, "300m")
        samples = with_plan(usage(loads), "450")
        samples = replace(samples, queries={**samples.queries, "forecast": QuerySamples(total=Point(NOW, nano("490")))})
        _, decision = assess_and_decide(policy(CPU, PLAN, other), pods, samples)
        assert decision.desired == 5

    def test_it_needs_no_pod_that_serves(self) -> None:
        young = [pod(f"web-{index}", ready=False, age=20, ready_for=20) for index in range(2)]
        _, decision = assess_and_decide(policy(CPU, PLAN), young, with_plan(usage({}), "550"))
        assert decision.desired == 6

    def test_the_explanation_says_what_it_keeps(self) -> None:
        assessment, decision = decided(6, "300m", "550")
        said = explain(assessment, decision, BOUNDS, NOW)
        assert "plan: a floor for 550 at 100 a pod" in said
        assert "plan proposes at least 6 (now 6)" in said


class TestThePace:
    """A floor's proposal is paced and bounded like any other."""

    @pytest.mark.parametrize(
        ("changes", "bounds", "expected", "held_by"),
        [
            ({"velocity": Velocity(up=50)}, BOUNDS, 6, HeldBy.VELOCITY),
            ({"velocity": Velocity(up=0)}, BOUNDS, 4, HeldBy.VELOCITY),
            ({"cooldown": Cooldown(up=60)}, Bounds(maximum=100, last_scale=NOW - 59), 4, HeldBy.COOLDOWN),
            ({"mode": Mode.OBSERVE}, BOUNDS, 4, HeldBy.MODE),
            ({}, Bounds(maximum=8), 8, HeldBy.BOUNDS),
        ],
        ids=["velocity", "no velocity", "cooldown", "a policy that observes", "the maximum"],
    )
    def test_each_stage_after_the_metrics_limits_it(
        self, changes: dict[str, object], bounds: Bounds, expected: int, held_by: HeldBy
    ) -> None:
        _, decision = decided(4, "800m", "1200", policy(CPU, PLAN, **changes), bounds=bounds)
        assert (decision.desired, decision.held_by) == (expected, held_by)

    def test_too_few_serving_pods_hold_a_fall_and_a_floor_still_raises(self) -> None:
        pods = [*same(1, "")[0], *(pod(f"ill-{index}", ready=False, ready_for=900) for index in range(5))]
        _, decision = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage({"web-0": "100m"}), "550"))
        assert (decision.desired, decision.held_by) == (6, HeldBy.MIN_SERVING)
        _, decision = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage({"web-0": "100m"}), "750"))
        assert (decision.desired, decision.held_by) == (8, None)


class TestWhenItFails:
    """It proposes nothing and blocks nothing, and a condition says so."""

    def test_the_others_lower_the_count_without_it(self) -> None:
        assessment, decision = decided(6, "300m", None)
        assert (decision.desired, decision.held_by) == (4, None)
        assert assessment.conditions == {
            ConditionType.FLOOR_MISSING: (
                "a floor has no answer and keeps nothing up: query plan: it answered with status 500"
            )
        }

    @pytest.mark.parametrize(("age", "count"), [(10, 6), (90, 6), (91, 4)])
    def test_last_weeks_same_hour_is_as_old_as_its_answer(self, age: float, count: int) -> None:
        pods, loads = same(6, "300m")
        week = 7 * 86_400.0
        samples = with_plan(usage(loads), "550", age=week + age, behind=week, window=week, fetched_at=NOW - 1)
        assert assess_and_decide(policy(CPU, PLAN), pods, samples)[1].desired == count

    def test_a_metric_that_is_no_floor_is_as_old_as_its_samples(self) -> None:
        pods, _ = same(6, None)
        samples = with_plan(Samples(), "550", age=130, behind=120)
        assert assess_and_decide(policy(replace(PLAN, floor=False)), pods, samples)[1].error is not None

    def test_one_that_answers_by_pod_says_what_to_do(self) -> None:
        pods, loads = same(6, "300m")
        by_pod = QuerySamples(pods={"web-0": Point(NOW, nano("550"))}, by_pod=True, fetched_at=NOW)
        samples = replace(usage(loads), queries={"plan": by_pod})
        assessment, decision = assess_and_decide(policy(CPU, PLAN), pods, samples)
        assert decision.desired == 4
        assert assessment.conditions[ConditionType.FLOOR_MISSING].endswith(
            "query plan answers by pod, and a floor needs one number for the service; "
            "sum the query up, or take floor away"
        )

    def test_a_floor_that_answers_has_no_condition(self) -> None:
        assert not decided(6, "300m", "550")[0].conditions

    def test_its_old_sample_does_not_make_the_others_look_old(self) -> None:
        pods, loads = same(6, "300m")
        assessment, _ = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage(loads), "550", age=80))
        assert assessment.sampled_at == NOW - 10


class TestWhenTheOthersFail:
    """A metric in error lets others raise the count; a floor raises it, and cannot decide anything else."""

    def test_a_floor_above_the_current_count_raises_it(self) -> None:
        _, decision = decided(4, None, "550")
        assert (decision.desired, decision.verdict) == (6, Verdict.ABOVE)

    def test_a_floor_that_the_count_satisfies_does_not_hide_the_error(self) -> None:
        _, decision = decided(6, None, "550")
        assert decision.desired is None
        assert decision.error is not None
        assert "cpu" in decision.error

    def test_the_fallback_still_comes_after_its_time(self) -> None:
        rule = policy(CPU, PLAN, fallback=Fallback(after=300, replicas=9))
        _, decision = decided(6, None, "550", rule, memory=Memory(error_since=NOW - 300))
        assert (decision.desired, decision.held_by) == (9, HeldBy.METRIC_ERROR)
        _, decision = decided(6, None, "1050", rule, memory=Memory(error_since=NOW - 300))
        assert decision.desired == 11

    def test_the_clock_of_errors_runs_although_a_floor_answers(self) -> None:
        assert decided(4, None, "550")[0].memory.error_since == NOW
        assert decided(4, "800m", "550")[0].memory.error_since is None

    def test_a_floor_raises_a_target_whose_pods_do_not_exist(self) -> None:
        assert desired(0, None, "550", current=3) == 6
        assert desired(0, None, "250", current=3) is None


class TestZero:
    """A floor wakes a sleeping service with what it needs; a floor of 0 is none."""

    BOUNDS = Bounds(minimum=0, maximum=100)
    QUEUE = Metric(name="queue", query=Query(name="queue"), high=Fraction(nano("100")), low=Fraction(nano("50")))

    def asleep(self, plan: str | None, queue: str | None = None, bounds: Bounds = BOUNDS) -> Decision:
        metric = CPU if queue is None else self.QUEUE
        samples = with_plan(Samples(), plan)
        if queue is not None:
            answer = QuerySamples(total=Point(NOW, nano(queue)), fetched_at=NOW)
            samples = replace(samples, queries={**samples.queries, "queue": answer})
        return assess_and_decide(policy(metric, PLAN), [], samples, bounds=bounds)[1]

    @pytest.mark.parametrize(
        ("plan", "queue", "bounds", "expected"),
        [
            pytest.param("550", None, BOUNDS, 6, id="it wakes a service whose metrics need pods"),
            pytest.param("550", "0", BOUNDS, 6, id="it wakes one whose total is nothing"),
            pytest.param("50", "700", BOUNDS, 1, id="a total asks for one pod"),
            pytest.param("0", None, BOUNDS, None, id="a floor of 0 says nothing"),
            pytest.param("0", "0", BOUNDS, 0, id="a floor of 0 says nothing beside a total"),
            pytest.param(None, None, BOUNDS, None, id="one that fails says nothing"),
            pytest.param(None, "0", BOUNDS, 0, id="one that fails says nothing beside a total"),
            pytest.param("550", "0", Bounds(minimum=1, maximum=100), 0, id="an HPA that is switched off stays off"),
            pytest.param("550", None, Bounds(minimum=1, maximum=100), None, id="and so without a total"),
        ],
    )
    def test_a_floor_wakes_a_sleeping_service_with_what_it_needs(
        self, plan: str | None, queue: str | None, bounds: Bounds, expected: int | None
    ) -> None:
        found = self.asleep(plan, queue, bounds)
        assert (found.desired, "is scaled to zero" in (found.error or "")) == (expected, expected is None)

    def test_a_floor_keeps_a_service_from_falling_asleep(self) -> None:
        pods, _ = same(3, None)
        samples = with_plan(Samples(queries={"queue": QuerySamples(total=Point(NOW, 0), fetched_at=NOW)}), "50")
        _, decision = assess_and_decide(policy(self.QUEUE, PLAN), pods, samples, bounds=self.BOUNDS)
        assert decision.desired == 1


def test_schedules_cap_a_floor_and_their_own_floors_beat_it() -> None:
    assessment, _ = decided(4, "800m", "1200")
    for window, expected in (
        (Window("night", NOW - 1, NOW + 1, None, 5), 5),
        (Window("sale", NOW - 1, NOW + 1, 20, None), 20),
    ):
        now = replace(assessment, windows=(window,))
        assert decide(now, scale(4), BOUNDS, NOW).desired == expected


PACES = st.builds(
    lambda up, down, cool_up, cool_down: {
        "velocity": Velocity(up=up, down=down), "cooldown": Cooldown(up=cool_up, down=cool_down)
    },
    st.sampled_from([None, 0, 20, 100]), st.sampled_from([None, 0, 20, 100]), st.sampled_from([0, 60]),
    st.sampled_from([0, 60]),
)  # fmt: skip


@given(
    scenarios(Choices(multiples=(1, 3))),
    st.none() | st.integers(0, 1500),
    PACES,
    st.sampled_from([NOW, NOW - 100, None]),
)
def test_with_a_floor_the_count_is_never_lower_and_a_failing_floor_changes_nothing(
    service: DrawnService, plan: int | None, pace: dict[str, object], last_scale: float | None
) -> None:
    bounds = Bounds(minimum=1, maximum=1000, last_scale=last_scale)
    rule = replace(service.rule, **pace)  # type: ignore[arg-type]
    plain = replace(service, rule=rule, bounds=bounds)
    floored = replace(plain, rule=replace(rule, metrics=(*rule.metrics, PLAN)), plan=plan)
    without, decision = plain.decided()[1], floored.decided()[1]
    if plan is None or plan == 0:
        same_parts = ("desired", "served", "error", "verdict", "held_by", "outcomes")
        kept = [one for one in decision.outcomes if not one.metric.floor]
        assert (decision.desired, decision.served, decision.error, decision.verdict, decision.held_by, kept) == (
            *(getattr(without, part) for part in same_parts[:-1]), list(without.outcomes),
        )  # fmt: skip
    assert floored.desired() >= plain.desired()
    assert floored.desired() <= max(plain.desired(), -(-(plan or 0) // 100) + 2)
