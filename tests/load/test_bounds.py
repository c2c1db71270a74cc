"""The bounds of the load: watermarks, the two readings of the lower bound, the one sum of the upper bound."""

from dataclasses import replace
from typing import Literal

import pytest

from adapter.load.assessment import HeldBy
from adapter.load.decide import decide
from adapter.load.pods import Owner, Pod
from adapter.load.spec import Policy, PulledOut, Target
from tests.load.kit import BOUNDS, NOW, TARGET, assess_and_decide, cpu, out, pod, policy, same, scale, usage

BAND = policy(cpu("1200m", "400m"))


class TestUpperBound:
    @pytest.mark.parametrize("marked", [False, True])
    @pytest.mark.parametrize("after", ["10m", "0", None])
    def test_what_a_pod_carried_before_it_was_pulled_out_counts(self, marked: bool, after: str | None) -> None:
        """Its own sample is newer than the others', or it has none any more: their samples do not show its load yet."""
        cost = {"deletion_cost": -100 if marked else 0}
        pods, loads = same(9, "100m")
        carried = usage(loads | {"hot": "3000m"}, at=NOW - 15)
        before, first = assess_and_decide(BAND, [*pods, pod("hot")], carried, now=NOW - 10)
        samples = usage(loads | {"hot": after}, at=NOW - 15)
        if after is not None:
            samples.resources.pods["hot"] = usage({"hot": after}, at=NOW - 1).resources.pods["hot"]  # type: ignore[index]
        assert first.desired == 9
        memory = before.memory
        for _ in range(2):
            assessment, decision = assess_and_decide(BAND, [*pods, out("hot", **cost)], samples, memory=memory)
            memory = assessment.memory
            assert decision.desired in {9, 10}


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

    @pytest.mark.parametrize("multiple", [1, 2])
    def test_samples_take_one_step_up_until_they_are_newer_than_the_count(self, multiple: int) -> None:
        pods, loads = same(6, "800m")
        rule = policy(cpu("1200m", "400m"), converge_towards="Low", replica_multiple=multiple)
        first, decision = assess_and_decide(rule, pods, usage(loads))
        grown = 6 + multiple
        assert decision.desired == grown
        more = [*pods, *(pod(f"new-{index}") for index in range(multiple))]
        again, decision = assess_and_decide(rule, more, usage(loads), memory=first.memory, now=NOW + 2)
        assert decision.desired == grown
        fresh = usage(dict.fromkeys((one.name for one in more), "600m"), at=NOW + 40)
        assert assess_and_decide(rule, more, fresh, memory=again.memory, now=NOW + 41)[1].desired == grown + multiple


LOWEST = -(2**31)
FIRST = replace(BAND, pulled_out=PulledOut(replace_after=0, delete_first=True))


OTHER_SET = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")


def desired(*changed: Pod, rule: Policy = FIRST, target: Target | None = TARGET, cost: int = LOWEST) -> int | None:
    """The count asked for of 10 pods at 300m, four of them out and marked; the changed stand in for those they name."""
    pods = {f"web-{n}": pod(f"web-{n}") for n in range(6)}
    pods |= {f"out-{n}": out(f"out-{n}", deletion_cost=cost) for n in range(4)}
    pods |= {one.name: one for one in changed}
    _, decision = assess_and_decide(
        rule,
        list(pods.values()),
        usage({name: "0" if name.startswith("out") else "300m" for name in pods}),
        target=target,
    )
    return decision.desired


def test_pods_leave_the_count_where_they_are_certainly_deleted_first() -> None:
    assert desired() == desired(rule=BAND) == 4
    assert desired(pod("web-6", deletion_cost=LOWEST, deleting=True)) == 4
    assert desired(cost=0) == desired(cost=5) == desired(out("out-0")) == desired(target=None) == 8
    assert desired(pod("web-0", deletion_cost=LOWEST)) == desired(OTHER_SET) == 8


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_a_deployments_pods_are_counted_on_to_go_first(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    names = [*(f"web-{n}" for n in range(6)), *(f"out-{n}" for n in range(4))]
    made = [replace(out(n, deletion_cost=LOWEST) if n.startswith("out") else pod(n), owner=owner) for n in names]
    assert desired(*made, target=replace(TARGET, kind=kind)) == 8
