"""The bounds of the load: watermarks, the two readings of the lower bound, the one sum of the upper bound, floors."""

from dataclasses import replace
from fractions import Fraction
from typing import Literal

import pytest

from adapter.load.assessment import HeldBy
from adapter.load.decide import decide
from adapter.load.memory import Memory, MetricMemory
from adapter.load.pods import Owner, Pod
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Metric, Policy, PulledOut, Query, Target
from tests.load.kit import BOUNDS, NOW, TARGET, assess_and_decide, cpu, nano, out, pod, policy, same, scale, usage

BAND = policy(cpu("1200m", "400m"))


def test_a_rise_since_the_assessment_counts() -> None:
    pods, loads = same(9, "100m")
    assessment, decision = assess_and_decide(BAND, pods, usage(loads))
    assert decision.desired == 2
    later = decide(assessment, scale(12), BOUNDS, NOW + 1)
    assert (later.desired, later.held_by) == (12, HeldBy.WARMING_UP)


class TestConverging:
    @pytest.mark.parametrize(("towards", "load", "count"), [("High", "500m", 8), ("Low", "1100m", 12)])
    def test_one_assessment_takes_one_step_however_often_it_is_asked(
        self, towards: Literal["High", "Low"], load: str, count: int
    ) -> None:
        pods, loads = same(10, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards, replica_multiple=2)
        assessment, decision = assess_and_decide(rule, pods, usage(loads))
        assert (decision.desired, decide(assessment, scale(count), BOUNDS, NOW + 15).desired) == (count, count)


LOWEST = -(2**31)
FIRST = replace(BAND, pulled_out=PulledOut(replace_after=0, delete_first=True))


OTHER_SET = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")


def desired(
    *changed: Pod, rule: Policy = FIRST, target: Target | None = TARGET, cost: int = LOWEST, plan: str | None = None
) -> int | None:
    """The count asked for of 10 pods at 300m, four of them out and marked; the changed stand in for those they name."""
    pods = {f"web-{n}": pod(f"web-{n}") for n in range(6)}
    pods |= {f"out-{n}": out(f"out-{n}", deletion_cost=cost) for n in range(4)}
    pods |= {one.name: one for one in changed}
    _, decision = assess_and_decide(
        rule,
        list(pods.values()),
        with_plan(usage({name: "0" if name.startswith("out") else "300m" for name in pods}), plan),
        target=target,
    )
    return decision.desired


def test_pods_leave_the_count_where_they_are_certainly_deleted_first() -> None:
    assert desired() == desired(rule=BAND) == 4
    rule = replace(FIRST, metrics=(replace(PLAN, floor=False, low=Fraction(nano("50"))),))
    assert desired(rule=rule, plan="225") == 4
    assert desired(pod("web-6", deletion_cost=LOWEST, deleting=True)) == 4
    assert desired(cost=0) == desired(cost=5) == desired(out("out-0")) == desired(target=None) == 8
    assert desired(pod("web-0", deletion_cost=LOWEST)) == desired(OTHER_SET) == 8


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_a_deployments_pods_are_counted_on_to_go_first(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    names = [*(f"web-{n}" for n in range(6)), *(f"out-{n}" for n in range(4))]
    made = [replace(out(n, deletion_cost=LOWEST) if n.startswith("out") else pod(n), owner=owner) for n in names]
    assert desired(*made, target=replace(TARGET, kind=kind)) == 8


PLAN = Metric(name="plan", query=Query(name="plan"), high=Fraction(nano("100")), floor=True)
CPU = cpu("1200m", "400m")


def with_plan(samples: Samples, plan: str | None, *, age: float = 10.0, **more: object) -> Samples:
    """The samples, and a plan of so much load (None: its query failed)."""
    answer = QuerySamples(error="it answered with status 500")
    if plan is not None:
        answer = QuerySamples(total=Point(NOW - age, nano(plan)), fetched_at=NOW - age)
    return replace(samples, queries={**samples.queries, "plan": replace(answer, **more)})  # type: ignore[arg-type]


class TestWhenItFails:
    """It proposes nothing and blocks nothing, and a condition says so."""

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
        assert assessment.conditions["FloorMissing"].endswith(
            "query plan answers by pod, and a floor needs one number for the service; "
            "sum the query up, or take floor away"
        )

    def test_a_gap_in_its_window_may_hide_as_much_as_its_bound(self) -> None:
        pods, loads = same(6, "300m")
        samples = with_plan(usage(loads), None, error=None, total=Point(NOW - 10, nano("275"), 2), window=60.0)
        memory = Memory(metrics={"plan": MetricMemory(medians=((NOW - 60, 4),))})
        assert assess_and_decide(policy(CPU, PLAN), pods, samples, memory=memory)[1].desired == 6

    def test_its_old_sample_does_not_make_the_others_look_old(self) -> None:
        pods, loads = same(6, "300m")
        assessment, _ = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage(loads), "550", age=80))
        assert assessment.sampled_at == NOW - 10
        assert not assessment.conditions
