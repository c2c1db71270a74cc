"""Properties of every decision: doubt never shrinks, gaps never shrink, more load never asks for fewer, bounds hold."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.pods import PodState
from adapter.load.served import served_value
from adapter.load.spec import Average, Bounds, Capacity, Converge, Mode, ResourceMetric
from tests.load.kit import BOUNDS, REGISTRY, cpu, policy
from tests.load.scenarios import DOUBTS, HIGH, LOW, Choices, DrawnPod, DrawnService, SeenAs, loads, scenarios, subsets

DOUBTFUL = (
    SeenAs.SERVING,
    SeenAs.SERVING,
    SeenAs.DOUBT,
    SeenAs.DOUBT,
    SeenAs.OUT,
    SeenAs.STARTING,
    SeenAs.UNREADY_YOUNG,
)
OLD = tuple(SeenAs.OLD_DOUBT if kind is SeenAs.DOUBT else kind for kind in DOUBTFUL)


def doubtful(scenario: DrawnService) -> list[int]:
    return [index for index, one in enumerate(scenario.pods) if one.kind in DOUBTS]


def surest(scenario: DrawnService) -> dict[frozenset[int], int]:
    """The counts that each way of being sure about the doubtful pods would ask for, by those that are in.

    Ways that leave no pod serving are no ways of being sure: then everybody is doubted.
    """
    doubt = doubtful(scenario)
    found = {}
    for inside in subsets(doubt):
        sure = scenario.seen({index: SeenAs.SERVING if index in inside else SeenAs.OUT for index in doubt})
        if any(one.kind is SeenAs.SERVING for one in sure.pods):
            found[inside] = sure.desired()
    return found


OF_LIMITS = policy(
    replace(cpu("1200m", "400m"), resource=ResourceMetric(name="cpu", of=Capacity.LIMIT)),
    replaces=False,
    registry=REGISTRY,
    min_serving_percent=0,
)


def unequal(kind: SeenAs, loads_and_limits: list[tuple[int, int]]) -> tuple[DrawnPod, ...]:
    return tuple(DrawnPod(kind, load, limit=limit) for load, limit in loads_and_limits)


class TestDoubt:
    @given(scenarios(Choices(kinds=DOUBTFUL, replaces=(False,), multiples=(1, 3))))
    def test_it_never_asks_for_fewer_than_any_way_of_being_sure(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0)

    @given(scenarios(Choices(kinds=OLD, replaces=(True,), multiples=(1, 3))))
    def test_old_doubt_with_replacing_never_changes_the_count(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0)

    @given(scenarios(Choices(kinds=DOUBTFUL, replaces=(False,), averages=(Average.TOTAL,))))
    def test_doubt_never_changes_the_count_with_watermarks_for_the_whole_service(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0)

    @given(scenarios(Choices(kinds=DOUBTFUL, replaces=(False,), totals=True)))
    def test_nor_with_a_service_total(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0)

    @given(scenarios(Choices(kinds=DOUBTFUL, replaces=(False,), of=True, limits=(2,))))
    def test_nor_with_utilization_of_equal_limits(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0)

    @given(scenarios(Choices(kinds=DOUBTFUL, replaces=(False,), of=True, limits=(1, 2, 7))))
    def test_with_utilization_of_unequal_limits_one_pod_may_be_missed(self, scenario: DrawnService) -> None:
        assert scenario.desired() >= max(surest(scenario).values(), default=0) - 1

    def test_ranking_by_share_misses_a_pod_where_limits_differ_much(self) -> None:
        """A large pod in pulls the share of all toward its own; the ranking by share alone tries it last.

        Known, and left so: to try every choice of pods would cost their number squared, and pods of one target differ
        in their limits only while a change of these rolls out.
        """
        pods = (
            *unequal(SeenAs.SERVING, [(490, 1), (438, 1), (3620, 20), (461, 1)]),
            *unequal(SeenAs.DOUBT, [(8860, 20), (753, 1)]),
        )
        scenario = DrawnService(pods, OF_LIMITS)
        assert (scenario.desired(), surest(scenario)[frozenset({4})]) == (4, 5)


ANY = Choices(lightest=1, multiples=(1, 3), averages=(Average.PER_POD, Average.TOTAL))


class TestMoreLoad:
    def more(self, scenario: DrawnService, data: st.DataObject, missed: int = 0) -> None:
        loaded = [index for index, one in enumerate(scenario.pods) if one.load is not None]
        assume(loaded)
        index = data.draw(st.sampled_from(loaded))
        by = data.draw(st.sampled_from([1, 3, 10, 400, 1200]) | st.integers(1, 6000))
        more = scenario.with_pod(index, load=(scenario.pods[index].load or 0) + by)
        assert more.desired() >= scenario.desired() - missed

    @given(scenarios(ANY), st.data())
    def test_on_any_pod_never_asks_for_fewer(self, scenario: DrawnService, data: st.DataObject) -> None:
        self.more(scenario, data)

    @given(scenarios(Choices(lightest=1, converge=(Converge.HIGH, Converge.LOW))), st.data())
    def test_nor_where_the_count_drifts(self, scenario: DrawnService, data: st.DataObject) -> None:
        self.more(scenario, data)

    @given(scenarios(Choices(lightest=1, of=True, limits=(2,))), st.data())
    def test_nor_of_equal_limits(self, scenario: DrawnService, data: st.DataObject) -> None:
        self.more(scenario, data)

    @given(scenarios(Choices(lightest=1, of=True, limits=(1, 2, 7))), st.data())
    def test_of_unequal_limits_one_pod_may_be_missed(self, scenario: DrawnService, data: st.DataObject) -> None:
        self.more(scenario, data, missed=1)

    def test_where_limits_differ_much_a_pod_is_missed_as_the_ranking_changes(self) -> None:
        """The other face of ranking by share (see above): more load on one doubtful pod takes another's place."""
        serving = [(2720, 20), (1526, 2), (846, 2)]
        doubt = [(6980, 20), (817, 2), (8180, 20)]
        pods = (*unequal(SeenAs.SERVING, serving), *unequal(SeenAs.DOUBT, doubt))
        scenario = DrawnService(pods, OF_LIMITS)
        assert (scenario.desired(), scenario.with_pod(4, load=819).desired()) == (5, 4)


def with_two_that_serve(scenario: DrawnService, data: st.DataObject, most: int) -> DrawnService:
    """The service with a lightly loaded pod, to be reported wrongly, and a last one that stays in."""
    lied = DrawnPod(load=data.draw(st.integers(0, most)))
    stays = DrawnPod(load=data.draw(loads()))
    return replace(scenario, pods=(*scenario.pods, lied, stays))


class TestGaps:
    """What is not seen: a lost sample, and a pod lost from its registry."""

    @given(scenarios(Choices(missing=False, multiples=(1, 3), averages=(Average.PER_POD, Average.TOTAL))), st.data())
    def test_lost_samples_never_ask_for_fewer_than_there_are_or_the_truth_would(
        self, scenario: DrawnService, data: st.DataObject
    ) -> None:
        self.lose(scenario, data)

    @given(scenarios(Choices(missing=False, of=True, limits=(1, 2, 7))), st.data())
    def test_nor_do_they_of_limits(self, scenario: DrawnService, data: st.DataObject) -> None:
        self.lose(scenario, data)

    def lose(self, scenario: DrawnService, data: st.DataObject) -> None:
        known = [i for i, one in enumerate(scenario.pods) if one.kind is SeenAs.SERVING or one.kind in DOUBTS]
        assume(known)
        lost = data.draw(st.lists(st.sampled_from(known), unique=True, min_size=1))
        seen = scenario
        for index in lost:
            one = scenario.pods[index]
            # What the pod truly uses is at most what a gap is filled with.
            fits = (one.load or 0) <= HIGH * one.limit
            seen = seen.with_pod(index, load=None, last=one.last if fits else one.load)
        assert seen.desired() >= min(scenario.current, scenario.desired())

    @given(scenarios(Choices(multiples=(1, 3))), st.data())
    def test_doubt_about_serving_pods_never_asks_for_fewer(self, scenario: DrawnService, data: st.DataObject) -> None:
        serving = [i for i, one in enumerate(scenario.pods) if one.kind is SeenAs.SERVING]
        assume(serving)
        vanished = data.draw(st.lists(st.sampled_from(serving), unique=True, min_size=1))
        assert scenario.seen(dict.fromkeys(vanished, SeenAs.DOUBT)).desired() >= min(
            scenario.current, scenario.desired()
        )

    @given(scenarios(Choices(missing=False, kinds=(SeenAs.SERVING, SeenAs.OUT, SeenAs.UNREADY))), st.data())
    def test_idle_pods_taken_for_pulled_out_never_ask_for_fewer(
        self, scenario: DrawnService, data: st.DataObject
    ) -> None:
        scenario = with_two_that_serve(scenario, data, LOW)
        # A sample that fell to 0 is doubted while the pod counts as serving; evidence of being out is not.
        idle = [
            i
            for i, one in enumerate(scenario.pods[:-1])
            if one.kind is SeenAs.SERVING and (one.load or 0) <= LOW and (one.load or not one.last)
        ]
        assume(idle)
        lied = data.draw(st.lists(st.sampled_from(idle), unique=True, min_size=1))
        seen = scenario.seen(dict.fromkeys(lied, SeenAs.OUT))
        assert seen.desired() >= min(scenario.current, scenario.desired())

    @given(
        scenarios(Choices(missing=False, kinds=(SeenAs.SERVING, SeenAs.OUT, SeenAs.UNREADY), one_sided=False)),
        st.data(),
    )
    def test_busy_pods_taken_for_pulled_out_leave_enough_for_all_of_the_load(
        self, scenario: DrawnService, data: st.DataObject
    ) -> None:
        """What is believed may be a lie: then fewer than the truth would hold may be asked for, never too few."""
        scenario = with_two_that_serve(scenario, data, HIGH)
        busy = [i for i, one in enumerate(scenario.pods[:-1]) if one.kind is SeenAs.SERVING and (one.load or 0) <= HIGH]
        lied = data.draw(st.lists(st.sampled_from(busy), unique=True, min_size=1))
        seen = scenario.seen(dict.fromkeys(lied, SeenAs.OUT))
        load = sum(one.load or 0 for one in scenario.pods if one.kind is SeenAs.SERVING)
        assert seen.desired() >= min(scenario.current, -(-load // HIGH))


class TestBounds:
    @given(scenarios(Choices(multiples=(1, 5))), st.integers(1, 6), st.integers(0, 6))
    def test_they_hold(self, scenario: DrawnService, minimum: int, above: int) -> None:
        bounds = Bounds(minimum=minimum, maximum=minimum + above)
        _, decision = replace(scenario, bounds=bounds).decided()
        assert decision.desired is None or bounds.minimum <= decision.desired <= bounds.maximum

    @given(scenarios(), st.sampled_from([Mode.OBSERVE, Mode.PAUSED]))
    def test_a_resting_policy_asks_for_the_current_count(self, scenario: DrawnService, mode: Mode) -> None:
        resting = replace(scenario, rule=replace(scenario.rule, mode=mode), bounds=Bounds(minimum=1, maximum=2))
        assert resting.decided()[1].desired == scenario.current

    @given(scenarios(Choices(averages=(Average.PER_POD, Average.TOTAL), converge=(None, Converge.HIGH, Converge.LOW))))
    def test_every_decision_is_sound(self, scenario: DrawnService) -> None:
        assessment, decision = scenario.decided()
        if decision.desired is None:
            assert decision.served is None
            assert decision.error
            return
        assert decision.served is not None
        assert decision.served > 0
        assert decision.desired > 0
        assert -(-decision.served // 1000) == decision.desired
        if decision.held_by in {HeldBy.MISSING, HeldBy.MIN_SERVING, HeldBy.METRIC_ERROR}:
            assert decision.desired == scenario.current
        if decision.verdict is Verdict.INSIDE and not scenario.rule.converge_towards:
            assert decision.desired == scenario.current
        if decision.verdict is Verdict.ABOVE:
            assert decision.desired >= scenario.current
        if decision.verdict is Verdict.BELOW:
            assert decision.desired <= scenario.current
        assert sum(assessment.counts.values()) == len(scenario.pods)

    @given(scenarios(Choices(kinds=(SeenAs.SERVING, SeenAs.OUT, SeenAs.STARTING, SeenAs.UNREADY), missing=False)))
    def test_the_count_is_never_more_than_needed_plus_those_out(self, scenario: DrawnService) -> None:
        loads = [one.load or 0 for one in scenario.pods if one.kind is SeenAs.SERVING]
        assume(loads)
        out = sum(one.kind is SeenAs.OUT for one in scenario.pods)
        plain = replace(scenario, rule=replace(scenario.rule, saturation_factor=Fraction(1)))
        assert plain.desired() <= max(scenario.current, -(-sum(loads) // HIGH) + out)


class TestOneAmongSeveral:
    @given(scenarios(), scenarios())
    def test_the_largest_proposal_wins_and_an_error_only_blocks_the_way_down(
        self, one: DrawnService, other: DrawnService
    ) -> None:
        high = one.rule.metrics[0]
        twin = replace(other.rule.metrics[0], name="twin")
        both = replace(one, rule=replace(one.rule, metrics=(high, twin)))
        alone = replace(one, rule=replace(one.rule, metrics=(twin,)))
        counts = [one.desired(), alone.desired()]
        assert both.desired() == max(counts)
        lost = replace(high, name="lost", resource=ResourceMetric(name="gpu"))
        beside = replace(one, rule=replace(one.rule, metrics=(high, lost)))
        assert beside.desired() == max(one.current, one.desired())


def hpa(served: int, current: int, status: int, tolerance: float) -> int:
    """The stock HPA's count for an Object metric with target AverageValue 1, in its own floating-point arithmetic."""
    ratio = float(served) / (1000.0 * float(status)) if status else float("inf")
    if 1.0 - tolerance <= ratio <= 1.0 + tolerance:
        return status
    return -(-served // 1000)


class TestServedValue:
    @given(desired=st.integers(0, 5000), status=st.integers(0, 5000))
    @settings(max_examples=500)
    def test_at_tolerance_0_the_hpa_sets_exactly_the_count(self, desired: int, status: int) -> None:
        assert hpa(served_value(desired, status), status, status, 0.0) == desired

    @pytest.mark.parametrize("tolerance", [0.1, 0.05, 0.2])
    def test_elsewhere_every_reachable_count_is_reached_and_the_others_hold(self, tolerance: float) -> None:
        for status in (*range(1, 60), 99, 100, 101, 1000):
            for desired in range(1, 2 * status + 20):
                # The values that round up to this count; the band being one interval, its ends tell.
                ends = 1000 * (desired - 1) + 1, 1000 * desired
                reachable = desired in {hpa(end, status, status, tolerance) for end in ends}
                expected = desired if reachable else status
                assert hpa(served_value(desired, status), status, status, tolerance) == expected, (desired, status)

    def test_the_documented_values(self) -> None:
        assert [served_value(*each) for each in ((12, 10), (10, 10), (9, 10), (1, 10), (0, 10), (0, 0), (1, 0))] == [
            12000,
            10000,
            8001,
            1,
            0,
            0,
            1000,
        ]


def test_made_up_services_have_their_states() -> None:
    """The drawn services have the states that they are drawn with."""
    every = DrawnService(tuple(DrawnPod(kind, 500) for kind in SeenAs), policy(registry=REGISTRY))
    assessment, _ = every.decided()
    assert [one.state for one in assessment.pods] == [
        PodState.SERVING,
        PodState.PULLED_OUT,
        PodState.DOUBTFUL,
        PodState.DOUBTFUL,
        PodState.STARTING,
        PodState.UNREADY,
        PodState.UNREADY,
    ]
    assert every.rule.tolerance == Fraction(1, 100)
    assert every.bounds == BOUNDS
