"""The whole decision path: from the pods' states to one count, and what held it."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import LastSample, Memory, PodMemory, Replacement
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Bounds, Mode, PulledOut, Query, ResourceMetric
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
    def outs(self, count: int) -> list[Pod]:
        return [out(f"out-{i}") for i in range(count)]

    def test_pods_that_are_out_are_replaced_on_the_way_up(self) -> None:
        assert mixed(7, "1440m", *self.outs(3)).desired == 12

    def test_not_where_the_policy_says_so(self) -> None:
        assert mixed(7, "1440m", *self.outs(3), rule=policy(replaces=False)).desired == 10

    def test_not_inside_the_band(self) -> None:
        assert mixed(7, "1000m", *self.outs(3)).desired == 10

    def test_not_before_they_are_out_for_so_long(self) -> None:
        rule = policy(replace_after=60.0)
        pods, loads = same(4, "1500m")
        first, decision = assess_and_decide(rule, [*pods, out("out")], usage(loads))
        assert decision.desired == 5
        for later, expected in ((59.0, 5), (60.0, 6)):
            samples = usage(loads, at=NOW + 50)
            found = assess_and_decide(rule, [*pods, out("out")], samples, memory=first.memory, now=NOW + later)[1]
            assert found.desired == expected

    def test_a_starting_pod_already_counts_as_a_replacement(self) -> None:
        # 4 at 1500m need 5; of 10, 4 are in and 4 start: 2 of the 6 out are nobody's yet.
        assert mixed(4, "1500m", *self.outs(2), *(fresh(f"new-{i}") for i in range(4))).desired == 10
        assert mixed(4, "1500m", *self.outs(6), *(fresh(f"new-{i}") for i in range(4)), current=10).desired == 10

    def test_surge_pods_beyond_the_count_replace_no_pod(self) -> None:
        # 8 serve, 4 are out, the count is 10: two of the four are surge.
        assert mixed(8, "1500m", *self.outs(4), current=10).desired == 12

    def test_unready_pods_are_not_replaced(self) -> None:
        assert mixed(4, "1500m", *(ill(f"ill-{i}") for i in range(6))).desired == 10

    def test_they_are_kept_on_the_way_down(self) -> None:
        assert mixed(6, "300m", *self.outs(4)).desired == 8

    def test_a_pod_doubtful_for_a_short_time_reserves_its_place(self) -> None:
        rule = policy(registry=REGISTRY)
        pods, loads = same(4, "1500m")
        pods = [replace(p, ips=(f"10.0.0.{i}",)) for i, p in enumerate(pods)]
        unknown = [pod(f"who-{i}", ip=f"10.0.1.{i}") for i in range(3)]
        listed = roster(*(f"10.0.0.{i}" for i in range(4)))
        idle = loads | dict.fromkeys((p.name for p in unknown), "0")
        everyone = [*pods, *unknown, *self.outs(3)]
        assert (
            assess_and_decide(rule, everyone, usage(idle), listed=listed)[1].desired == 10
        )  # 5 + 3 out; 3 doubts stand for them
        old = Memory(ever_in_roster=True, pods={p.uid: PodMemory(doubt_since=NOW - 300) for p in unknown})
        assert (
            assess_and_decide(rule, everyone, usage(idle), listed=listed, memory=old)[1].desired == 11
        )  # 5 + 3 out + 3 old doubts


class TestYoungDoubtfulPods:
    """Pods that came up just now and that a silent registry says nothing of."""

    RULE = policy(cpu("1200m", "400m"), registry=REGISTRY)

    def scaled_up(self, ready_for: float, *, seen: bool = False, load: str | None = "100m") -> Decision:
        """10 registered pods at 100m, and 5 that turned Ready after the registry's last answer."""
        old = [pod(f"web-{i}", ip=f"10.0.0.{i}") for i in range(10)]
        new = [pod(f"new-{i}", ip=f"10.0.1.{i}", age=ready_for + 10, ready_for=ready_for) for i in range(5)]
        known = PodMemory(seen=NOW - 900) if seen else PodMemory()
        memory = Memory(ever_in_roster=True, pods={one.uid: known for one in new})
        listed = roster(*(f"10.0.0.{i}" for i in range(10)), at=NOW - ready_for - 10)
        loads = {**dict.fromkeys((p.name for p in old), "100m"), **dict.fromkeys((p.name for p in new), load)}
        return assess_and_decide(self.RULE, [*old, *new], usage(loads), listed=listed, memory=memory)[1]

    @pytest.mark.parametrize("load", ["100m", None])
    def test_they_fill_on_the_way_down_as_starting_pods_do(self, load: str | None) -> None:
        assert self.scaled_up(40, load=load).desired == 15

    def test_for_300_s_and_only_where_they_never_were_registered(self) -> None:
        assert self.scaled_up(299).desired == 15
        assert self.scaled_up(300).desired == 7  # out: ⌊10 · 100/400⌋ and the five that are kept
        assert self.scaled_up(40, seen=True).desired == 7

    def test_a_number_for_the_service_waits_for_them_too(self) -> None:
        new = [pod(f"new-{i}", ip=f"10.0.1.{i}", age=60, ready_for=40) for i in range(5)]
        old = [pod(f"web-{i}", ip=f"10.0.0.{i}") for i in range(10)]
        listed = roster(*(f"10.0.0.{i}" for i in range(10)), at=NOW - 50)
        rule = replace(self.RULE, metrics=(queue("1200m", "400m"),))
        # All in: 3900m/15 → ⌊3900/400⌋ = 9, all out: inside.
        decision = assess_and_decide(
            rule, [*old, *new], total("3900m"), listed=listed, memory=Memory(ever_in_roster=True)
        )[1]
        assert decision.desired == 15


class TestYoungPods:
    def test_a_pod_that_just_turned_unready_may_come_back_and_is_waited_for(self) -> None:
        assert mixed(5, "300m", ill("ill", ready_for=299.0)).held_by is HeldBy.MISSING
        assert mixed(5, "300m", ill("ill", ready_for=300.0)).desired == 3

    def test_a_young_pod_is_filled_with_its_last_usage(self) -> None:
        last = {"cpu": LastSample(at=NOW - 100, value=nano("20"))}
        known = Memory(pods={"uid-ill": PodMemory()}, samples=last_samples({"uid-ill": last}))
        assert mixed(9, "300m", ill("ill", ready_for=100.0)).desired == 9
        assert mixed(9, "300m", ill("ill", ready_for=100.0), memory=known).held_by is HeldBy.MISSING


class TestMinServing:
    def test_below_half_serving_nothing_shrinks(self) -> None:
        decision = mixed(4, "100m", *(ill(f"ill-{i}") for i in range(5)))
        assert (decision.desired, decision.held_by, decision.verdict) == (9, HeldBy.MIN_SERVING, Verdict.BELOW)

    def test_half_is_enough(self) -> None:
        assert mixed(5, "100m", *(ill(f"ill-{i}") for i in range(5))).desired == 1

    def test_pods_that_are_out_count_starting_ones_do_not(self) -> None:
        assert mixed(4, "100m", *(out(f"out-{i}") for i in range(5))).held_by is HeldBy.MIN_SERVING
        found = mixed(40, "100m", *(fresh(f"new-{i}", age=299) for i in range(50)))
        assert found.held_by is HeldBy.MISSING

    def test_it_never_holds_the_way_up(self) -> None:
        assert mixed(1, "15", *(ill(f"ill-{i}") for i in range(9))).desired == 13

    def test_the_share_is_the_policys(self) -> None:
        strict = policy(cpu("1200m", "400m"), min_serving_percent=100)
        assert mixed(9, "100m", ill("ill"), rule=strict).held_by is HeldBy.MIN_SERVING
        assert mixed(10, "100m", rule=strict).desired == 2
        loose = policy(cpu("1200m", "400m"), min_serving_percent=0)
        assert mixed(1, "100m", *(ill(f"ill-{i}") for i in range(9)), rule=loose).desired == 1


class TestSeveralMetrics:
    CPU = cpu("1200m", "400m")
    MEMORY = replace(cpu("1Gi", "500Mi"), name="memory", resource=ResourceMetric(name="memory"))
    LOST = replace(cpu("1", "500m"), name="lost", query=Query(name="lost"), resource=None)

    def decide(self, cpu_load: str, memory_load: str, *more: object, current: int = 4) -> Decision:
        pods = [pod(f"web-{i}") for i in range(4)]
        used = usage(dict.fromkeys((p.name for p in pods), cpu_load)).resources.pods
        also = usage(dict.fromkeys((p.name for p in pods), memory_load), resource="memory").resources.pods
        both = {
            name: replace(one, containers={"app": {**one.containers["app"], **also[name].containers["app"]}})
            for name, one in used.items()
        }
        samples = Samples(ResourceSamples(pods=both, fetched_at=NOW - 10))
        return assess_and_decide(policy(self.CPU, self.MEMORY, *more), pods, samples, current=current)[1]  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("cpu_load", "memory_load", "expected", "winner"),
        [
            ("1500m", "2Gi", 8, "memory"),
            ("3000m", "2Gi", 10, "cpu"),
            ("800m", "100Mi", 4, "cpu"),
            ("100m", "250Mi", 2, "memory"),
            ("200m", "100Mi", 2, "cpu"),
        ],
    )
    def test_the_largest_proposal_wins(self, cpu_load: str, memory_load: str, expected: int, winner: str) -> None:
        decision = self.decide(cpu_load, memory_load)
        assert decision.desired == expected
        assert decision.outcome is not None
        assert decision.outcome.metric.name == winner
        assert len(decision.outcomes) == 2

    def test_a_metric_in_error_blocks_the_way_down(self) -> None:
        decision = self.decide("100m", "100Mi", self.LOST)
        assert (decision.desired, decision.held_by) == (4, HeldBy.METRIC_ERROR)

    def test_a_metric_in_error_lets_the_others_scale_up(self) -> None:
        decision = self.decide("1500m", "100Mi", self.LOST)
        assert (decision.desired, decision.held_by) == (5, None)

    def test_where_all_are_in_error_nothing_is_decided_and_each_is_named(self) -> None:
        _, decision = assess_and_decide(policy(self.CPU, self.LOST), [pod()], Samples())
        assert decision.desired is None
        assert decision.error is not None
        assert "metric cpu: metrics.k8s.io has not answered yet; query lost:" in decision.error
        assert (decision.verdict, decision.held_by, decision.served) == (Verdict.ERROR, None, None)


class TestBoundsAndModes:
    def test_the_hpas_bounds_come_last(self) -> None:
        assert mixed(4, "1500m", bounds=Bounds(minimum=1, maximum=4)).held_by is HeldBy.BOUNDS
        assert mixed(4, "1500m", bounds=Bounds(minimum=1, maximum=5)).held_by is None
        low = mixed(4, "100m", bounds=Bounds(minimum=3, maximum=9))
        assert (low.desired, low.held_by) == (3, HeldBy.BOUNDS)

    def test_a_count_outside_the_bounds_is_brought_back(self) -> None:
        assert mixed(4, "800m", bounds=Bounds(minimum=6, maximum=9)).desired == 6
        assert mixed(4, "800m", bounds=Bounds(minimum=1, maximum=2)).desired == 2

    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_resting_policy_holds_and_still_publishes_its_outcome(self, mode: Mode) -> None:
        decision = mixed(4, "1500m", rule=replace(BAND, mode=mode), bounds=Bounds(minimum=6, maximum=9))
        assert (decision.desired, decision.held_by, decision.verdict) == (4, HeldBy.MODE, Verdict.ABOVE)
        assert decision.outcome is not None
        assert decision.outcome.proposal == 5

    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_policy_that_rests_is_never_in_error(self, mode: Mode) -> None:
        _, decision = assess_and_decide(replace(BAND, mode=mode), [pod()], Samples())
        assert (decision.desired, decision.error) == (1, None)

    def test_each_request_decides_on_the_count_of_its_moment(self) -> None:
        pods, loads = same(4, "1500m")
        assessment, _ = assess_and_decide(BAND, pods, usage(loads))
        assert [decide(assessment, scale(n), BOUNDS, NOW).desired for n in (1, 4, 5, 6, 9)] == [5, 5, 5, 6, 9]
        assert [decide(assessment, scale(n), BOUNDS, NOW).current for n in (1, 9)] == [1, 9]

    def test_the_value_served_is_shaped_by_the_count_that_exists(self) -> None:
        pods, loads = same(4, "100m")
        assessment, _ = assess_and_decide(BAND, pods, usage(loads))
        assert decide(assessment, scale(4), BOUNDS, NOW).served == 1
        assert decide(assessment, scale(4, 0), BOUNDS, NOW).served == 1000


class TestHeldByDoubt:
    RULE = policy(cpu("1200m", "400m"), registry=REGISTRY)

    def decide(self, sure: list[str], doubt: list[str | None], memory: Memory | None = None) -> Decision:
        pods = [pod(f"sure-{i}", ip=f"10.0.0.{i}") for i in range(len(sure))]
        unknown = [pod(f"who-{i}", ip=f"10.0.1.{i}") for i in range(len(doubt))]
        loads: dict[str, str | int | None] = {p.name: load for p, load in zip(pods, sure, strict=True)}
        loads |= {p.name: load for p, load in zip(unknown, doubt, strict=True)}
        listed = roster(*(p.ips[0] for p in pods))
        return assess_and_decide(self.RULE, [*pods, *unknown], usage(loads), listed=listed, memory=memory)[1]

    def test_a_hold_caused_only_by_doubt_is_held_by_doubt(self) -> None:
        decision = self.decide(["500m"] * 6, ["0"] * 4)
        assert (decision.desired, decision.held_by, decision.verdict) == (10, HeldBy.DOUBT, Verdict.INSIDE)

    def test_doubt_that_changes_nothing_is_not_named(self) -> None:
        decision = self.decide(["1300m"] * 4, ["1300m"] * 6)
        assert (decision.desired, decision.held_by) == (11, None)
        assert decision.outcome is not None
        assert decision.outcome.scenario.inside == 6

    def test_a_doubtful_pod_without_a_sample_comes_in_last_on_the_way_up_and_first_on_the_way_down(self) -> None:
        # With the busy one in, 12060/9 is above and needs 11; with the silent one in too, 12060/10 holds.
        assert self.decide(["1370m"] * 8, [None, "1100m"]).desired == 11
        # With none in, 1800m need 4 and the 5 that may be out. With the silent one alone in, (1800 + 1212)/7 holds.
        assert self.decide(["300m"] * 6, [None, "0", "0", "0", "0"]).desired == 11

    def test_without_a_certainly_serving_pod_the_count_does_not_shrink(self) -> None:
        assert self.decide([], ["10m"] * 5).desired == 5
        assert self.decide([], ["1500m"] * 5).desired == 7

    def test_without_any_sample_there_is_an_error(self) -> None:
        decision = self.decide([], [None, None])
        assert decision.desired is None

    def test_the_last_usage_of_a_doubtful_pod_is_remembered(self) -> None:
        last = {"cpu": LastSample(at=NOW - 100, value=nano("20"))}
        known = Memory(ever_in_roster=True, pods={"uid-who-0": PodMemory()}, samples=last_samples({"uid-who-0": last}))
        assert self.decide(["300m"] * 9, [None]).desired == 9  # all in: (9 · 300 + 1212)/10 = 391m
        assert self.decide(["300m"] * 9, [None], known).desired == 10


class TestConditions:
    def conditions(self, rule: object, pods: list[Pod], samples: Samples, **changes: object) -> dict[str, str]:
        return dict(assess_and_decide(rule, pods, samples, **changes)[0].conditions)  # type: ignore[arg-type]

    def test_a_healthy_service_has_no_condition(self) -> None:
        pods, loads = same(3, "800m")
        assert self.conditions(BAND, pods, usage(loads)) == {}

    def test_an_untrusted_registry_is_a_condition(self) -> None:
        pods, loads = same(3, "800m")
        found = self.conditions(policy(registry=REGISTRY), pods, usage(loads))
        assert set(found) == {"RegistryTrusted"}
        assert "nacos" in found["RegistryTrusted"]

    def test_missing_samples_and_errors_are_a_condition(self) -> None:
        pods, loads = same(3, "800m")
        assert self.conditions(BAND, [*pods, pod("gap")], usage(loads)) == {
            "InputsFresh": "metric cpu: 1 pod without a fresh sample"
        }
        found = self.conditions(BAND, pods, Samples(ResourceSamples(error="503")))
        assert "503" in found["InputsFresh"]

    def test_unready_pods_that_fill_the_count_are_a_condition(self) -> None:
        pods, loads = same(4, "1500m")
        found = self.conditions(BAND, [*pods, ill("x"), ill("y")], usage(loads))
        assert found == {
            "UndersizedByUnready": "5 serving pods are needed, 4 serve or start, and 2 unready ones fill the count"
        }
        assert self.conditions(BAND, [*pods, fresh("new"), ill("x")], usage(loads)) == {}

    def test_replacements_that_are_pulled_out_are_a_condition(self) -> None:
        memory = Memory(replacement=Replacement(first_step=NOW - 300))
        pods, loads = same(3, "800m")
        found = self.conditions(BAND, [*pods, out("a", age=100), out("b", age=100)], usage(loads), memory=memory)
        assert set(found) == {"ReplacementIneffective"}

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


class TestDecisions:
    def test_the_counts_are_by_state(self) -> None:
        pods = [
            pod("a"),
            out("b"),
            fresh("c"),
            ill("d"),
            pod("e", deleting=True),
            pod("f", phase="Failed", ready=False),
        ]
        assessment, _ = assess_and_decide(BAND, pods, usage({"a": "1"}))
        assert dict(assessment.counts) == {
            PodState.SERVING: 1,
            PodState.PULLED_OUT: 1,
            PodState.STARTING: 1,
            PodState.UNREADY: 1,
            PodState.TERMINATING: 1,
            PodState.FINISHED: 1,
        }

    def test_the_same_inputs_give_the_same_answer_in_any_order(self) -> None:
        pods = [pod("a"), out("b"), fresh("c"), ill("d"), pod("e")]
        loads: dict[str, str | int | None] = {"a": "1500m", "e": "1300m", "b": "0"}
        one, first = assess_and_decide(BAND, pods, usage(loads))
        two, second = assess_and_decide(BAND, pods[::-1], usage(dict(reversed(loads.items()))))
        assert first.desired == second.desired
        assert first.outcome == second.outcome
        assert one.memory == two.memory
        assert one.counts == two.counts

    def test_a_metric_is_found_by_its_name(self) -> None:
        assessment, _ = assess_and_decide(policy(cpu(), queue("85")), [pod()], total("3"))
        found = assessment.metric("queue")
        assert found is not None
        assert found.usage == Fraction(nano("3"))
        assert assessment.metric("nope") is None
        assert assessment.sampled_at == NOW - 10

    def test_a_target_that_is_not_known_is_named_by_its_hpa(self) -> None:
        _, decision = assess_and_decide(BAND, [], usage({}), current=1, target=None)
        assert decision.error == "no pods of web exist"

    def test_pulled_out_defaults_are_the_specified_ones(self) -> None:
        assert PulledOut() == PulledOut(replace=True, replace_after=60.0, max_percent=50)

    def test_a_query_that_was_never_answered_is_not_a_service_total(self) -> None:
        _, decision = assess_and_decide(
            policy(queue("85")), [pod()], Samples(queries={"queue": QuerySamples(error="timeout")})
        )
        assert decision.desired is None
        assert "timeout" in (decision.error or "")


class TestDistrust:
    def distrust(self, listed: Roster | None, pods: list[Pod] | None = None) -> str | None:
        """The condition RegistryTrusted of two registered pods, None where there is none."""
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")] if pods is None else pods
        found, _ = assess_and_decide(policy(registry=REGISTRY), pods, usage({"a": "600m", "b": "600m"}), listed=listed)
        return found.conditions.get("RegistryTrusted")

    def test_a_registry_that_answers_is_trusted(self) -> None:
        assert self.distrust(roster("10.0.0.1", "10.0.0.2")) is None

    def test_a_failure_of_half_a_minute_is_not_worth_a_word(self) -> None:
        assert self.distrust(roster("10.0.0.1", "10.0.0.2", at=NOW - 30, error="HTTP 500")) is None

    def test_a_longer_failure_is_named_with_the_registrys_own_error(self) -> None:
        listed = roster("10.0.0.1", "10.0.0.2", at=NOW - 31, error="HTTP 403: ACL not found")
        assert self.distrust(listed) == (
            f"registry nacos gave its last valid answer at {time_text(NOW - 31)}, which counts: HTTP 403: ACL not found"
        )

    def test_an_old_answer_without_an_error_is_trouble_from_5_min_on(self) -> None:
        assert self.distrust(roster("10.0.0.1", "10.0.0.2", at=NOW - 60)) is None
        assert time_text(NOW - 301) in (self.distrust(roster("10.0.0.1", "10.0.0.2", at=NOW - 301)) or "")

    def test_the_error_of_a_registry_that_never_answered_is_named(self) -> None:
        told = self.distrust(roster(valid=False, error="http://nacos:8848: no answer within 5 s")) or ""
        assert "has not given a valid answer" in told
        assert told.endswith(": http://nacos:8848: no answer within 5 s")
