"""The Watermark strategy: exact bands, recounts that hold and never reverse, and options of the policy."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Scenario, Verdict
from adapter.load.decide import decide
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Bounds, Converge
from adapter.load.totals import Band, Totals
from adapter.load.watermark import recommend
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, out, pod, policy, queue, same, scale, total, usage

FREE = Bounds(minimum=0, maximum=1000)


def band(high: str | None = "1200m", low: str | None = "400m", tolerance: str = "0.01", **changes: object) -> Band:
    return Band(
        **{  # type: ignore[arg-type]
            "high": None if high is None else Fraction(nano(high)),
            "low": None if low is None else Fraction(nano(low)),
            "tolerance": Fraction(tolerance),
            "average": Average.PER_POD,
            "tolerate_zero": False,
            **changes,
        }
    )


def totals(n: int, each: str, missing: int = 0, young: int = 0, fill: str = "1212m") -> Totals:
    return Totals(
        usage=n * nano(each),
        bound=n * nano(each),
        n=n,
        weight=n,
        missing=missing,
        missing_weight=missing,
        missing_fill=missing * nano(fill),
        young=young,
        young_weight=young,
        young_fill=young * nano(fill),
    )


def verdict(n: int, each: str, **limits: object) -> Verdict:
    return recommend(totals(n, each), band(**limits)).verdict  # type: ignore[arg-type]


class TestBands:
    def test_both_edges_are_exact_and_equality_is_inside(self) -> None:
        assert verdict(7, "1212m") is Verdict.INSIDE
        assert verdict(7, "1212000001n") is Verdict.ABOVE
        assert verdict(7, "396m") is Verdict.INSIDE
        assert verdict(7, "395999999n") is Verdict.BELOW

    def test_tolerance_may_be_nothing(self) -> None:
        assert verdict(3, "1200m", tolerance="0") is Verdict.INSIDE
        assert verdict(3, "1200000001n", tolerance="0") is Verdict.ABOVE
        assert verdict(3, "400m", tolerance="0") is Verdict.INSIDE
        assert verdict(3, "399999999n", tolerance="0") is Verdict.BELOW

    def test_a_watermark_that_is_not_given_never_proposes(self) -> None:
        assert verdict(5, "9000", low="1", high=None) is Verdict.INSIDE
        assert verdict(5, "1n", high="1", low=None) is Verdict.INSIDE

    @given(
        n=st.integers(1, 300), each=st.integers(1, 5 * 10**9), tolerance=st.sampled_from(["0", "0.01", "0.1", "1/3"])
    )
    def test_tolerance_decides_whether_and_never_how_many(self, n: int, each: int, tolerance: str) -> None:
        loaded = Totals(usage=n * each, bound=n * each, n=n, weight=n)
        found = recommend(loaded, band(tolerance=tolerance))
        strict = recommend(loaded, band(tolerance="0"))
        if found.verdict is not Verdict.INSIDE:
            assert found == strict
        high, low = nano("1200m"), nano("400m")
        assert (found.verdict is Verdict.ABOVE) == (each > high * (1 + Fraction(tolerance)))
        assert (found.verdict is Verdict.BELOW) == (each < low * (1 - Fraction(tolerance)))

    @given(n=st.integers(1, 2000), each=st.integers(1, 10**12))
    def test_the_needed_count_carries_the_load_at_high_and_is_no_more_than_low_allows(self, n: int, each: int) -> None:
        found = recommend(Totals(usage=n * each, bound=n * each, n=n, weight=n), band())
        high, low = nano("1200m"), nano("400m")
        if found.verdict is Verdict.ABOVE:
            assert found.needed is not None
            assert found.needed * high >= n * each > (found.needed - 1) * high
            assert found.needed > n
        if found.verdict is Verdict.BELOW:
            assert found.needed is not None
            assert found.needed == 1 or found.needed * low <= n * each
            assert (found.needed + 1) * low > n * each
            assert found.needed < n or n == 1

    def test_no_float_is_in_the_way(self) -> None:
        # 0.1 + 0.2 > 0.3 in floats: the sum of three pods at a third must not be one more.
        third = Totals(usage=nano("85") * 20, n=11, weight=11)
        assert recommend(third, band("85", None)).needed == 20


class TestGaps:
    def test_pods_without_a_sample_count_as_idle_on_the_way_up(self) -> None:
        assert recommend(totals(4, "1500m", missing=1), band()) == Scenario(Verdict.ABOVE, held=HeldBy.MISSING)
        assert recommend(totals(4, "1600m", missing=1), band()).needed == math.ceil(6400 / 1200)

    def test_the_recount_that_equals_the_edge_holds(self) -> None:
        assert recommend(totals(4, "1515m", missing=1), band()).held is HeldBy.MISSING
        assert recommend(totals(4, "1515000001n", missing=1), band()).needed == 6

    def test_pods_without_a_sample_count_as_busy_on_the_way_down(self) -> None:
        assert recommend(totals(5, "300m", missing=1), band()).held is HeldBy.MISSING
        assert recommend(totals(20, "300m", missing=1), band()).needed == math.floor((20 * 300 + 1212) / 400)

    def test_young_pods_that_do_not_serve_count_as_busy_on_the_way_down_only(self) -> None:
        assert recommend(totals(5, "300m", young=1), band()).held is HeldBy.MISSING
        assert recommend(totals(20, "300m", young=1), band()).needed == 18
        assert recommend(totals(4, "1500m", young=40), band()).needed == 5

    def test_a_last_usage_above_high_fills_the_gap(self) -> None:
        assert recommend(totals(9, "300m", missing=1), band()).needed == 9
        assert recommend(totals(9, "300m", missing=1, fill="20000m"), band()).held is HeldBy.MISSING

    def test_without_a_high_watermark_a_gap_holds(self) -> None:
        assert recommend(totals(99, "1m", missing=1), band(None)).held is HeldBy.MISSING
        assert recommend(totals(99, "1m", young=1), band(None)).held is HeldBy.MISSING
        assert recommend(totals(99, "1m"), band(None)).needed == 1

    @given(
        n=st.integers(1, 40),
        each=st.integers(0, 4000),
        missing=st.integers(0, 20),
        young=st.integers(0, 20),
        fill=st.integers(1212, 30000),
    )
    def test_filling_turns_an_act_into_a_hold_and_never_into_the_other_act(
        self, n: int, each: int, missing: int, young: int, fill: int
    ) -> None:
        bare = recommend(totals(n, f"{each}m"), band())
        filled = recommend(totals(n, f"{each}m", missing, young, f"{fill}m"), band())
        assert filled.verdict is bare.verdict
        assert (filled.needed is None) or (filled.held is None)
        if filled.needed is not None and bare.needed is not None and bare.verdict is Verdict.BELOW:
            assert bare.needed <= filled.needed
            assert filled.needed < n + missing + young or n == 1
        if filled.needed is not None and bare.verdict is Verdict.ABOVE:
            assert filled.needed > n + missing


class TestTotal:
    TOTAL = policy(cpu("1200m", "400m"), average=Average.TOTAL)

    def test_the_watermarks_are_for_the_whole_service(self) -> None:
        pods, loads = same(4, "375m")
        assert assess_and_decide(self.TOTAL, pods, usage(loads))[1].desired == 5
        pods, loads = same(4, "75m")
        assert assess_and_decide(self.TOTAL, pods, usage(loads))[1].desired == 3  # ⌊4·300/400⌋
        pods, loads = same(4, "200m")
        assert assess_and_decide(self.TOTAL, pods, usage(loads))[1].desired == 4

    @pytest.mark.parametrize("gap", [pod("gap"), pod("gap", age=20, ready=False, ready_for=20)])
    def test_a_gap_holds_on_the_way_down(self, gap: object) -> None:
        pods, loads = same(4, "75m")
        _, decision = assess_and_decide(self.TOTAL, [*pods, gap], usage(loads))  # type: ignore[list-item]
        assert (decision.desired, decision.held_by) == (5, HeldBy.MISSING)

    def test_a_service_total_is_taken_as_it_is(self) -> None:
        rule = policy(queue("85", "40"), average=Average.TOTAL)
        assert assess_and_decide(rule, same(3, None)[0], total("100"))[1].desired == 4  # ⌈3·100/85⌉
        assert assess_and_decide(rule, same(3, None)[0], total("30"))[1].desired == 2


class TestZero:
    def test_pods_that_all_use_nothing_are_not_believed(self) -> None:
        pods, loads = same(4, "0")
        _, decision = assess_and_decide(policy(cpu("1200m", "400m")), pods, usage(loads))
        assert (decision.desired, decision.verdict) == (4, Verdict.INSIDE)

    def test_they_are_where_the_policy_says_so(self) -> None:
        pods, loads = same(4, "0")
        assert assess_and_decide(policy(cpu("1200m", "400m"), tolerate_zero=True), pods, usage(loads))[1].desired == 1

    def test_the_smallest_load_is_believed(self) -> None:
        pods, loads = same(4, "0")
        assert assess_and_decide(policy(cpu("1200m", "400m")), pods, usage(loads | {"web-0": "1n"}))[1].desired == 1

    def test_a_service_total_of_nothing_is_believed(self) -> None:
        pods, _ = same(4, None)
        assert assess_and_decide(policy(queue("85", "40")), pods, total("0"))[1].desired == 1
        rule = policy(queue("85", "40"), tolerate_zero=False)
        assert assess_and_decide(rule, pods, total("0"))[1].desired == 4

    def test_nothing_is_needed_of_nothing_where_the_minimum_is_0(self) -> None:
        pods, _ = same(4, None)
        assert assess_and_decide(policy(queue("85", "40")), pods, total("0"), bounds=FREE)[1].desired == 0
        assert assess_and_decide(policy(queue("85", "40")), pods, total("1n"), bounds=FREE)[1].desired == 1
        assert assess_and_decide(policy(queue("85")), pods, total("0"), bounds=FREE)[1].desired == 4

    def test_pods_that_use_nothing_never_go_to_0(self) -> None:
        pods, loads = same(4, "0")
        rule = policy(cpu("1200m", "400m"), tolerate_zero=True)
        assert assess_and_decide(rule, pods, usage(loads), bounds=FREE)[1].desired == 1

    def test_a_young_pod_is_waited_for_before_the_last_one_goes(self) -> None:
        pods = [pod("web-0"), pod("web-1", age=20, ready=False, ready_for=20)]
        _, decision = assess_and_decide(policy(queue("85", "40")), pods, total("0"), bounds=FREE)
        assert (decision.desired, decision.held_by) == (2, HeldBy.MISSING)


class TestFromZero:
    @pytest.mark.parametrize(("load", "expected"), [("0", 0), ("1n", 1), ("9000", 1)])
    def test_any_load_of_the_service_asks_for_one_pod(self, load: str, expected: int) -> None:
        _, decision = assess_and_decide(policy(queue("85", "40")), [], total(load), bounds=FREE)
        assert (decision.desired, decision.error) == (expected, None)
        assert decision.served == 1000 * expected

    def test_having_no_pod_is_no_trouble_then(self) -> None:
        assessment, decision = assess_and_decide(policy(queue("85", "40")), [], total("7"), bounds=FREE)
        assert (assessment.conditions, assessment.memory.error_since) == ({}, None)
        assert decision.verdict is Verdict.ABOVE

    def test_pods_on_their_way_out_do_not_matter(self) -> None:
        _, decision = assess_and_decide(policy(queue("85")), [pod(deleting=True)], total("3"), current=0, bounds=FREE)
        assert decision.desired == 1

    def test_a_pod_that_has_started_already_does_not_matter(self) -> None:
        starting = pod(age=5, ready=False, ready_for=5)
        _, decision = assess_and_decide(policy(queue("85")), [starting], total("3"), current=0, bounds=FREE)
        assert decision.desired == 1

    def test_metrics_of_pods_say_nothing_at_zero(self) -> None:
        _, decision = assess_and_decide(policy(cpu()), [], usage({}), current=0, bounds=FREE)
        assert (decision.desired, decision.error) == (None, "Deployment web is scaled to zero")
        _, decision = assess_and_decide(policy(cpu(), queue("85")), [], total("1"), current=0, bounds=FREE)
        assert decision.desired == 1

    def test_a_stale_total_is_an_error(self) -> None:
        _, decision = assess_and_decide(policy(queue("85")), [], total("3", at=0.0), current=0, bounds=FREE)
        assert decision.desired is None
        assert "no fresh sample" in (decision.error or "")

    def test_a_service_put_to_zero_by_hand_stays_there(self) -> None:
        _, decision = assess_and_decide(
            policy(queue("85")), [], total("3"), current=0, bounds=Bounds(minimum=2, maximum=9)
        )
        assert decision.desired == 0


class TestMultiples:
    def desired(
        self, n: int, load: str, of: int, current: int | None = None, outs: int = 0, **changes: object
    ) -> int | None:
        pods, loads = same(n, load)
        pods += [out(f"out-{i}") for i in range(outs)]
        rule = policy(cpu("1200m", "400m"), multiple_of=of, **changes)  # type: ignore[arg-type]
        return assess_and_decide(rule, pods, usage(loads), current=current)[1].desired

    def test_a_proposal_is_rounded_up_after_replaced_and_kept_pods(self) -> None:
        assert self.desired(4, "1500m", 4) == 8  # 5
        assert self.desired(4, "1500m", 4, outs=3) == 8  # 5 + 3
        assert self.desired(4, "1500m", 4, outs=4) == 12  # 5 + 4
        assert self.desired(8, "150m", 4) == 4  # 3
        assert self.desired(8, "150m", 4, outs=2) == 8  # 3 + 2

    def test_on_the_way_down_it_never_goes_up(self) -> None:
        assert self.desired(7, "350m", 4) == 7  # 6 → 8 → at most 7

    def test_a_hold_is_not_rounded(self) -> None:
        assert self.desired(7, "800m", 4) == 7


class TestConverging:
    def desired(self, towards: Converge, n: int, load: str, **changes: object) -> int | None:
        pods, loads = same(n, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards, multiple_of=changes.pop("of", 1))
        extra: list[object] = list(changes.pop("extra", []))  # type: ignore[call-overload]
        return assess_and_decide(rule, [*pods, *extra], usage(loads), **changes)[1].desired  # type: ignore[arg-type,list-item]

    def test_towards_high_one_pod_fewer_while_that_stays_under_it(self) -> None:
        assert self.desired(Converge.HIGH, 10, "1080m") == 9  # 1200m exactly
        assert self.desired(Converge.HIGH, 10, "1081m") == 10

    @pytest.mark.parametrize(("towards", "load", "count"), [(Converge.HIGH, "500m", 8), (Converge.LOW, "1100m", 12)])
    def test_one_assessment_takes_one_step_however_often_it_is_asked(
        self, towards: Converge, load: str, count: int
    ) -> None:
        pods, loads = same(10, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards, multiple_of=2)
        assessment, decision = assess_and_decide(rule, pods, usage(loads))
        assert (decision.desired, decide(assessment, scale(count), BOUNDS, NOW + 15).desired) == (count, count)

    @pytest.mark.parametrize("multiple", [1, 2])
    def test_samples_take_one_step_up_until_they_are_newer_than_the_count(self, multiple: int) -> None:
        pods, loads = same(6, "800m")
        rule = policy(cpu("1200m", "400m"), converge_towards=Converge.LOW, multiple_of=multiple)
        first, decision = assess_and_decide(rule, pods, usage(loads))
        grown = 6 + multiple
        assert decision.desired == grown
        more = [*pods, *(pod(f"new-{index}") for index in range(multiple))]
        again, decision = assess_and_decide(rule, more, usage(loads), memory=first.memory, now=NOW + 2)
        assert decision.desired == grown
        fresh = usage(dict.fromkeys((one.name for one in more), "600m"), at=NOW + 30)
        assert assess_and_decide(rule, more, fresh, memory=again.memory, now=NOW + 31)[1].desired == grown + multiple

    def test_towards_low_one_pod_more_while_that_stays_over_it(self) -> None:
        assert self.desired(Converge.LOW, 10, "440m") == 11  # 400m exactly
        assert self.desired(Converge.LOW, 10, "439m") == 10

    def test_outside_the_band_the_watermarks_rule(self) -> None:
        assert self.desired(Converge.HIGH, 10, "1500m") == 13
        assert self.desired(Converge.LOW, 10, "100m") == 2

    @pytest.mark.parametrize("gap", [pod("gap"), pod("gap", age=20, ready=False, ready_for=20)])
    def test_never_downward_with_a_gap(self, gap: object) -> None:
        assert self.desired(Converge.HIGH, 10, "500m", extra=[gap]) == 11

    def test_the_last_pod_stays(self) -> None:
        assert self.desired(Converge.HIGH, 1, "401m") == 1
        assert self.desired(Converge.HIGH, 2, "450m", current=1, bounds=FREE) == 1

    def test_with_a_multiple_it_is_a_step_of_that(self) -> None:
        assert self.desired(Converge.HIGH, 12, "600m", of=4) == 8
        assert self.desired(Converge.LOW, 8, "800m", of=4) == 12
        assert self.desired(Converge.HIGH, 4, "450m", of=4) == 4

    def test_a_step_from_between_two_multiples_goes_no_further_than_the_next(self) -> None:
        assert self.desired(Converge.LOW, 10, "800m", of=4) == 12
        assert self.desired(Converge.HIGH, 10, "500m", of=4) == 8

    def test_never_more_than_above_would_ask_at_the_edge(self) -> None:
        # 8 of 12 exist: over the edge ⌈8 · 1.212/1.2⌉ = 9 would be asked for, which 12 has.
        assert self.desired(Converge.LOW, 8, "1200m", current=12) == 12
        assert self.desired(Converge.LOW, 8, "1200m", current=8) == 9

    def test_never_more_than_above_would_ask_with_pods_missing(self) -> None:
        # Over the edge the missing pod, at nothing, holds.
        assert self.desired(Converge.LOW, 10, "1000m", extra=[pod("gap")]) == 11
        assert self.desired(Converge.LOW, 200, "1000m", extra=[pod("gap")]) == 201

    def test_never_fewer_than_below_would_ask_at_the_edge(self) -> None:
        # 10 pods of a count of 8 (a surge): under the edge ⌈10 · 0.99⌉ − 1 = 9 would be asked for, more than there is.
        assert self.desired(Converge.HIGH, 10, "500m", current=8) == 8
        assert self.desired(Converge.HIGH, 10, "500m", current=10) == 9

    def test_a_metric_without_that_watermark_does_not_move(self) -> None:
        pods, loads = same(4, "500m")
        up_only = policy(cpu("1200m", None), converge_towards=Converge.LOW)
        assert assess_and_decide(up_only, pods, usage(loads))[1].desired == 4
        down_only = policy(cpu(None, "400m"), converge_towards=Converge.HIGH)
        assert assess_and_decide(down_only, pods, usage(loads))[1].desired == 4


def test_the_unit_of_the_bands_is_a_nano_unit() -> None:
    assert band().high_plus == 1212 * NANO // 1000
    assert band(tolerance="1/3").low_minus == Fraction(800 * NANO, 3000)
    assert band().low_minus == 396 * NANO // 1000
