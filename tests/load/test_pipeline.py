"""The whole decision path: from the pods' states to one count, and what held it."""

from dataclasses import replace

import pytest

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import LastSample, Memory, PodMemory
from adapter.load.pods import Pod
from adapter.load.roster import Roster
from adapter.load.samples import ResourceSamples, Samples, time_text
from adapter.load.spec import Bounds, Mode, Policy, Query
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
    last_samples,
    nano,
    out,
    pod,
    policy,
    queue,
    roster,
    same,
    scale,
    total,
    usage,
)

BAND = policy(cpu("1200m", "400m"))


def ill(name: str, ready_for: float = 900.0) -> Pod:
    return pod(name, ready=False, ready_for=ready_for)


def fresh(name: str, age: float = 60.0) -> Pod:
    return pod(name, age=age, ready=False, ready_for=age)


def mixed(count: int, load: str, *others: Pod, rule: object = BAND, **changes: object) -> Decision:
    """The decision on so many serving pods of the same load, and others."""
    pods, loads = same(count, load)
    return assess_and_decide(rule, [*pods, *others], usage(loads), **changes)[1]  # type: ignore[arg-type]


class TestReplacing:
    @pytest.mark.parametrize(
        ("serving", "load", "outs", "starting", "unready", "current", "desired"),
        [
            pytest.param(7, "1000m", 3, 0, 0, 10, 10, id="none inside the band"),
            pytest.param(4, "1500m", 2, 4, 0, 10, 10, id="starting pods stand for those that are out"),
            pytest.param(4, "1500m", 6, 4, 0, 10, 10, id="of the 6 that are out 2 are nobody's: 5 and 2"),
            pytest.param(8, "1500m", 4, 0, 0, 10, 12, id="surge pods beyond the count replace no pod"),
            pytest.param(4, "1500m", 0, 0, 6, 10, 10, id="unready pods are not replaced"),
        ],
    )
    def test_no_more_pods_than_the_count_lacks_are_replaced(
        self, serving: int, load: str, outs: int, starting: int, unready: int, current: int, desired: int
    ) -> None:
        others = [out(f"out-{i}") for i in range(outs)]
        others += [fresh(f"new-{i}") for i in range(starting)] + [ill(f"ill-{i}") for i in range(unready)]
        assert mixed(serving, load, *others, current=current).desired == desired

    @pytest.mark.parametrize(("doubted_for", "desired"), [(0, 10), (300, 11)])
    def test_a_pod_doubtful_for_a_short_time_reserves_its_place(self, doubted_for: float, desired: int) -> None:
        serving = [pod(f"web-{i}", ip=f"10.0.0.{i}") for i in range(4)]
        unknown = [pod(f"who-{i}", ip=f"10.0.1.{i}") for i in range(3)]
        loads = dict.fromkeys((one.name for one in serving), "1500m") | dict.fromkeys((p.name for p in unknown), "0")
        doubted = {one.uid: PodMemory(doubt_since=NOW - doubted_for) for one in unknown}
        # 5 are needed; of 3 that are out and 3 doubts, 10 - 4 - (3 young doubts) places are free.
        _, decision = assess_and_decide(
            policy(registry=REGISTRY), [*serving, *unknown, *(out(f"out-{i}") for i in range(3))],
            usage(loads), listed=roster(*(one.ips[0] for one in serving)),  # type: ignore[arg-type]
            memory=Memory(ever_in_roster=True, pods=doubted),
        )  # fmt: skip
        assert decision.desired == desired


OWN_SHARE = {percent: policy(cpu("1200m", "400m"), min_serving_percent=percent) for percent in (0, 100)}


@pytest.mark.parametrize(
    ("rule", "serving", "others", "desired", "held_by"),
    [
        pytest.param(BAND, 4, [ill(f"ill-{i}") for i in range(5)], 9, HeldBy.MIN_SERVING, id="fewer than half serve"),
        pytest.param(BAND, 5, [ill(f"ill-{i}") for i in range(5)], 1, None, id="half is enough"),
        pytest.param(BAND, 4, [out(f"out-{i}") for i in range(5)], 9, HeldBy.MIN_SERVING, id="pods that are out count"),
        pytest.param(BAND, 4, [fresh(f"n-{i}") for i in range(5)], 9, HeldBy.MISSING, id="starting ones do not"),
        pytest.param(OWN_SHARE[100], 9, [ill("ill")], 10, HeldBy.MIN_SERVING, id="the policy wants all to serve"),
        pytest.param(OWN_SHARE[100], 10, [], 2, None, id="and all serve"),
        pytest.param(OWN_SHARE[0], 1, [ill(f"ill-{i}") for i in range(9)], 1, None, id="the policy does not mind"),
    ],
)
def test_nothing_shrinks_while_too_few_pods_serve(
    rule: Policy, serving: int, others: list[Pod], desired: int, held_by: HeldBy | None
) -> None:
    found = mixed(serving, "100m", *others, rule=rule)
    assert (found.desired, found.held_by) == (desired, held_by)


def test_the_largest_proposal_wins_and_its_metric_is_told() -> None:
    rule = policy(queue("100"), replace(queue("100"), name="calls", query=Query(name="calls")))
    samples = Samples(queries={**total("300").queries, **total("500", "calls").queries})
    _, decision = assess_and_decide(rule, same(2, None)[0], samples)
    assert decision.outcome is not None
    assert (decision.desired, decision.outcome.metric.name, len(decision.outcomes)) == (5, "calls", 2)


class TestBoundsAndModes:
    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_resting_policy_holds_and_still_publishes_its_outcome(self, mode: Mode) -> None:
        decision = mixed(4, "1500m", rule=replace(BAND, mode=mode), bounds=Bounds(minimum=6, maximum=9))
        assert (decision.desired, decision.held_by, decision.verdict) == (4, HeldBy.MODE, Verdict.ABOVE)
        assert decision.outcome is not None
        assert decision.outcome.proposal == 5

    def test_each_request_decides_on_the_count_of_its_moment(self) -> None:
        pods, loads = same(4, "1500m")
        assessment, _ = assess_and_decide(BAND, pods, usage(loads))
        assert [decide(assessment, scale(n), BOUNDS, NOW).desired for n in (1, 4, 5, 6, 9)] == [5, 5, 5, 6, 9]
        assert [decide(assessment, scale(n), BOUNDS, NOW).current for n in (1, 9)] == [1, 9]


class TestHeldByDoubt:
    RULE = policy(cpu("1200m", "400m"), registry=REGISTRY)

    def decide(self, sure: list[str], doubt: list[str | None], memory: Memory | None = None) -> Decision:
        pods = [pod(f"sure-{i}", ip=f"10.0.0.{i}") for i in range(len(sure))]
        unknown = [pod(f"who-{i}", ip=f"10.0.1.{i}") for i in range(len(doubt))]
        loads: dict[str, str | int | None] = {p.name: load for p, load in zip(pods, sure, strict=True)}
        loads |= {p.name: load for p, load in zip(unknown, doubt, strict=True)}
        listed = roster(*(p.ips[0] for p in pods))
        return assess_and_decide(self.RULE, [*pods, *unknown], usage(loads), listed=listed, memory=memory)[1]

    def test_a_doubtful_pod_without_a_sample_comes_in_last_on_the_way_up_and_first_on_the_way_down(self) -> None:
        # With the busy one in, 12060/9 is above and needs 11; with the silent one in too, 12060/10 holds.
        assert self.decide(["1370m"] * 8, [None, "1100m"]).desired == 11
        # With none in, 1800m need 4 and the 5 that may be out. With the silent one alone in, (1800 + 1212)/7 holds.
        assert self.decide(["300m"] * 6, [None, "0", "0", "0", "0"]).desired == 11

    def test_the_last_usage_of_a_doubtful_pod_is_remembered(self) -> None:
        last = {"cpu": LastSample(at=NOW - 100, value=nano("20"))}
        known = Memory(ever_in_roster=True, pods={"uid-who-0": PodMemory()}, samples=last_samples({"uid-who-0": last}))
        assert self.decide(["300m"] * 9, [None]).desired == 9  # all in: (9 · 300 + 1212)/10 = 391m
        assert self.decide(["300m"] * 9, [None], known).desired == 10


class TestConditions:
    def conditions(self, rule: object, pods: list[Pod], samples: Samples, **changes: object) -> dict[str, str]:
        return dict(assess_and_decide(rule, pods, samples, **changes)[0].conditions)  # type: ignore[arg-type]

    def test_missing_samples_and_errors_are_a_condition(self) -> None:
        pods, loads = same(3, "800m")
        gap = {"InputsFresh": "metric cpu: 1 pod without a fresh sample"}
        assert self.conditions(BAND, [*pods, pod("gap")], usage(loads)) == gap
        assert "503" in self.conditions(BAND, pods, Samples(ResourceSamples(error="503")))["InputsFresh"]

    def test_unready_pods_that_fill_the_count_are_a_condition(self) -> None:
        pods, loads = same(4, "1500m")
        found = self.conditions(BAND, [*pods, ill("x"), ill("y")], usage(loads))
        assert found == {
            "UndersizedByUnready": "5 serving pods are needed, 4 serve or start, and 2 unready ones fill the count"
        }
        assert self.conditions(BAND, [*pods, fresh("new"), ill("x")], usage(loads)) == {}

    @pytest.mark.parametrize(("limit", "is_fault"), [("1212m", True), ("1213m", False)])
    def test_a_watermark_that_no_pod_can_pass_within_its_limit_is_a_condition(
        self, limit: str, *, is_fault: bool
    ) -> None:
        pods, loads = same(3, "800m")
        limited = [
            replace(one, containers=tuple(replace(part, limits={"cpu": nano(limit)}) for part in one.containers))
            for one in pods
        ]
        assert ("WatermarkAtLimit" in self.conditions(BAND, limited, usage(loads))) is is_fault


def test_a_target_that_is_not_known_is_named_by_its_hpa() -> None:
    _, decision = assess_and_decide(BAND, [], usage({}), current=1, target=None)
    assert decision.error == "no pods of web exist"


class TestDistrust:
    def distrust(self, listed: Roster | None, pods: list[Pod] | None = None) -> str | None:
        """The condition RegistryTrusted of two registered pods, None where there is none."""
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")] if pods is None else pods
        found, _ = assess_and_decide(policy(registry=REGISTRY), pods, usage({"a": "600m", "b": "600m"}), listed=listed)
        return found.conditions.get("RegistryTrusted")

    @pytest.mark.parametrize(("age", "error"), [(1, None), (30, "HTTP 500"), (60, None)])
    def test_an_answer_is_trusted_a_while_and_one_that_fails_for_half_a_minute(
        self, age: float, error: str | None
    ) -> None:
        assert self.distrust(roster("10.0.0.1", "10.0.0.2", at=NOW - age, error=error)) is None

    def test_a_longer_failure_is_named_with_the_registrys_own_error(self) -> None:
        listed = roster("10.0.0.1", "10.0.0.2", at=NOW - 31, error="HTTP 403: ACL not found")
        assert self.distrust(listed) == (
            f"registry nacos gave its last valid answer at {time_text(NOW - 31)}, which counts: HTTP 403: ACL not found"
        )

    def test_the_error_of_a_registry_that_never_answered_is_named(self) -> None:
        told = self.distrust(roster(valid=False, error="http://nacos:8848: no answer within 5 s")) or ""
        assert "has not given a valid answer" in told
        assert told.endswith(": http://nacos:8848: no answer within 5 s")
