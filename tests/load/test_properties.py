"""Properties of every decision: doubt never shrinks, gaps never shrink, more load never asks for fewer, bounds hold."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.spec import Average, Bounds, Capacity, Converge, Mode, ResourceMetric
from tests.load.kit import REGISTRY, cpu, policy
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
    @pytest.mark.parametrize(
        ("drawn", "missed"),
        [
            pytest.param(Choices(kinds=DOUBTFUL, replaces=(False,), multiples=(1, 3)), 0, id="young doubt"),
            pytest.param(Choices(kinds=OLD, replaces=(True,), multiples=(1, 3)), 0, id="old doubt with replacing"),
            pytest.param(Choices(kinds=DOUBTFUL, replaces=(False,), averages=(Average.TOTAL,)), 0, id="Total"),
            pytest.param(Choices(kinds=DOUBTFUL, replaces=(False,), totals=True), 0, id="a service total"),
            pytest.param(Choices(kinds=DOUBTFUL, replaces=(False,), of=True, limits=(2,)), 0, id="of equal limits"),
            pytest.param(
                Choices(kinds=DOUBTFUL, replaces=(False,), of=True, limits=(1, 2, 7)), 1, id="of unequal ones"
            ),
        ],
    )
    @given(data=st.data())
    def test_it_never_asks_for_fewer_than_any_way_of_being_sure(
        self, drawn: Choices, missed: int, data: st.DataObject
    ) -> None:
        """Of unequal limits one pod may be missed."""
        scenario = data.draw(scenarios(drawn))
        assert scenario.desired() >= max(surest(scenario).values(), default=0) - missed

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
    @pytest.mark.parametrize(
        ("drawn", "missed"),
        [
            pytest.param(ANY, 0, id="of any pod"),
            pytest.param(Choices(lightest=1, converge=(Converge.HIGH, Converge.LOW)), 0, id="where the count drifts"),
            pytest.param(Choices(lightest=1, of=True, limits=(2,)), 0, id="of equal limits"),
            pytest.param(Choices(lightest=1, of=True, limits=(1, 2, 7)), 1, id="of unequal limits, one may be missed"),
        ],
    )
    @given(data=st.data())
    def test_it_never_asks_for_fewer(self, drawn: Choices, missed: int, data: st.DataObject) -> None:
        scenario = data.draw(scenarios(drawn))
        loaded = [index for index, one in enumerate(scenario.pods) if one.load is not None]
        assume(loaded)
        index = data.draw(st.sampled_from(loaded))
        by = data.draw(st.sampled_from([1, 3, 10, 400, 1200]) | st.integers(1, 6000))
        more = scenario.with_pod(index, load=(scenario.pods[index].load or 0) + by)
        assert more.desired() >= scenario.desired() - missed

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
