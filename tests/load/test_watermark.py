"""The Watermark strategy: exact bands, recounts that hold and never reverse, and options of the policy."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.pods import Pod
from adapter.load.spec import Average, Bounds, Converge
from adapter.load.totals import Band, Totals
from adapter.load.watermark import recommend
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, pod, policy, queue, same, scale, total, usage

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


class TestBands:
    @pytest.mark.parametrize(
        ("each", "limits", "expected"),
        [
            ("1212m", {}, Verdict.INSIDE),
            ("1212000001n", {}, Verdict.ABOVE),
            ("396m", {}, Verdict.INSIDE),
            ("395999999n", {}, Verdict.BELOW),
            ("1200m", {"tolerance": "0"}, Verdict.INSIDE),
            ("1200000001n", {"tolerance": "0"}, Verdict.ABOVE),
            ("400m", {"tolerance": "0"}, Verdict.INSIDE),
            ("399999999n", {"tolerance": "0"}, Verdict.BELOW),
            ("9000", {"high": None}, Verdict.INSIDE),
            ("1n", {"low": None}, Verdict.INSIDE),
        ],
    )
    def test_both_edges_are_exact_equality_is_inside_and_one_that_is_not_given_never_proposes(
        self, each: str, limits: dict[str, str | None], expected: Verdict
    ) -> None:
        assert recommend(totals(7, each), band(**limits)).verdict is expected  # type: ignore[arg-type]

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


class TestGaps:
    @pytest.mark.parametrize(
        ("given", "needed"),
        [
            pytest.param(totals(4, "1515m", missing=1), None, id="above, and with an idle pod at the edge"),
            pytest.param(totals(4, "1515000001n", missing=1), 6, id="just beyond it"),
            pytest.param(totals(24, "362m", missing=1), None, id="below, and with a busy pod at the edge"),
            pytest.param(totals(24, "361999999n", missing=1), 24, id="just under it"),
        ],
    )
    def test_where_the_recount_equals_the_edge_a_missing_pod_holds(self, given: Totals, needed: int | None) -> None:
        found = recommend(given, band())
        assert (found.needed, found.held) == (needed, HeldBy.MISSING if needed is None else None)

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


def test_a_young_pod_is_waited_for_before_the_last_one_goes() -> None:
    pods = [pod("web-0"), pod("web-1", age=20, ready=False, ready_for=20)]
    _, decision = assess_and_decide(policy(queue("85", "40")), pods, total("0"), bounds=FREE)
    assert (decision.desired, decision.held_by) == (2, HeldBy.MISSING)


class TestFromZero:
    @pytest.mark.parametrize(("load", "expected"), [("0", 0), ("1n", 1), ("9000", 1)])
    @pytest.mark.parametrize(
        "left",
        [[], [pod(deleting=True)], [pod(age=5, ready=False, ready_for=5)]],
        ids=["no pod", "one on its way out", "one that starts already"],
    )
    def test_any_load_of_the_service_asks_for_one_pod(self, load: str, expected: int, left: list[Pod]) -> None:
        rule = policy(queue("85", "40"))
        assessment, decision = assess_and_decide(rule, left, total(load), current=0, bounds=FREE)
        assert (decision.desired, decision.error, decision.served) == (expected, None, 1000 * expected)
        assert assessment.memory.error_since is None
        assert left or not assessment.conditions, "having no pod is no trouble then"


class TestConverging:
    @pytest.mark.parametrize(
        ("towards", "n", "load", "current", "desired"),
        [
            pytest.param(Converge.HIGH, 10, "1080m", 10, 9, id="one fewer: 1200m exactly"),
            pytest.param(Converge.HIGH, 10, "1081m", 10, 10, id="one fewer would pass high"),
            pytest.param(Converge.LOW, 10, "440m", 10, 11, id="one more: 400m exactly"),
            pytest.param(Converge.LOW, 10, "439m", 10, 10, id="one more would pass low"),
            pytest.param(Converge.LOW, 8, "1200m", 12, 12, id="over the edge 9 would be asked for, which 12 has"),
            pytest.param(Converge.LOW, 8, "1200m", 8, 9, id="over the edge 9 would be asked for"),
            pytest.param(Converge.HIGH, 10, "500m", 8, 8, id="under the edge 9 would be asked for, 8 exist"),
        ],
    )
    def test_one_step_toward_the_watermark_and_not_past_it(
        self, towards: Converge, n: int, load: str, current: int, desired: int
    ) -> None:
        pods, loads = same(n, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards)
        assert assess_and_decide(rule, pods, usage(loads), current=current, bounds=FREE)[1].desired == desired

    @pytest.mark.parametrize(("towards", "count", "load"), [(Converge.HIGH, 10, "500m"), (Converge.LOW, 200, "1000m")])
    def test_a_pod_without_a_sample_holds(self, towards: Converge, count: int, load: str) -> None:
        """Over the edge of the band the missing pod, at nothing, would hold as well, however many pods there are."""
        pods, loads = same(count, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards)
        assert assess_and_decide(rule, [*pods, pod("gap")], usage(loads))[1].desired == count + 1

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
