"""Absence from a registry, its guards, and registries that are not trusted."""

from dataclasses import replace

import pytest

from adapter.load.pods import PodState
from adapter.load.samples import time_text
from adapter.load.spec import PulledOut
from adapter.load.states import is_set_aside
from tests.load.kit import REGISTRY, out, pod, policy, roster
from tests.load.registering import (
    REGISTERED,
    Registering,
    names_in_state,
    registry_problem_after,
    service,
)

S = PodState


class TestAbsenceThatDoesNotCount:
    """A registry that does not promise to list every pod that serves."""

    def test_a_pod_that_is_no_longer_listed_serves(self) -> None:
        shop = service()
        found = [shop.answer("p0", "p1", after=30, absence_counts=False) for _ in range(10)]
        assert {state for answer in found for state in answer.values()} == {S.SERVING}

    def test_a_pod_that_was_never_listed_serves_from_the_start(self) -> None:
        shop = Registering(REGISTERED, [pod("new", ip="10.0.0.9", age=5, ready_for=1), pod("old", ip="10.0.0.8")])
        assert shop.answer("new", after=10, absence_counts=False) == {"new": S.SERVING, "old": S.SERVING}
        assert shop.answer("new", after=10)["new"] is not S.SERVING, "with any other registry it would have to register"

    def test_an_empty_answer_pulls_no_pod_out_and_does_not_set_the_registry_aside(self) -> None:
        pods = [pod("p0", ip="10.0.0.1"), pod("p1", ip="10.0.0.2")]
        shop = Registering(REGISTERED, pods)
        for _ in range(20):
            assert set(shop.answer("p0", "p1", after=30, absence_counts=False, alive=True).values()) == {S.SERVING}
        assert not is_set_aside(shop.memory, REGISTRY)

    def test_explicit_evidence_counts(self) -> None:
        shop = service(3)
        said = roster("10.0.0.0", at=shop.now + 10)
        one = replace(said.instances[0], ip=shop.pods[1].ips[0], isolated=True)
        shop.now += 10
        found = shop.hear(replace(said, instances=(one,), absence_counts=False))
        assert found == {"p0": S.SERVING, "p1": S.PULLED_OUT, "p2": S.SERVING}


class TestAbsence:
    @pytest.mark.parametrize(("after", "doubted"), [(22.5, 2), (10, 5), (100, 2)])
    def test_it_needs_three_rosters_in_a_row_over_45_s(self, after: float, doubted: int) -> None:
        shop = service()
        found = [shop.answer("p0", after=after)["p0"] for _ in range(doubted + 1)]
        assert found == [S.DOUBTFUL] * doubted + [S.PULLED_OUT]

    def test_absence_is_evidence_for_5_min_and_doubt_after_that(self) -> None:
        shop = service()
        assert shop.absent("p0")["p0"] is S.PULLED_OUT
        assert shop.wait(300)["p0"] is S.PULLED_OUT
        assert shop.wait(1)["p0"] is S.DOUBTFUL

    def test_an_invalid_answer_neither_confirms_nor_denies(self) -> None:
        shop = service()
        shop.absent("p0", rounds=2, after=30)
        assert shop.answer("p0", after=30, valid=False, error="503")["p0"] is S.DOUBTFUL
        assert shop.answer(after=30, valid=False)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=30)["p0"] is S.PULLED_OUT

    @pytest.mark.parametrize(("after", "doubted"), [(22, 3), (60, 2)])
    def test_absence_begins_anew_where_the_pod_was_not_ready_between_two_answers(
        self, after: float, doubted: int
    ) -> None:
        shop = service(4)
        shop.absent("p0", rounds=3, after=20)
        shop.pods[0] = pod("p0", ip="10.0.0.0", now=shop.now + 10, ready_for=1)
        assert shop.absent("p0", rounds=doubted, after=after)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=after)["p0"] is S.PULLED_OUT

    def test_being_listed_once_begins_the_count_anew(self) -> None:
        shop = service()
        shop.absent("p0", rounds=2, after=20)
        assert shop.answer()["p0"] is S.SERVING
        assert shop.absent("p0", rounds=2, after=30)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=30)["p0"] is S.PULLED_OUT

    def test_only_absence_while_it_is_ready_counts(self) -> None:
        shop = service(4)
        shop.pods[0] = pod("p0", ip="10.0.0.0", ready=False, now=shop.now, ready_for=1)
        shop.absent("p0", rounds=10)
        shop.pods[0] = pod("p0", ip="10.0.0.0", now=shop.now + 5, ready_for=1)
        found = [shop.answer("p0", after=22.5)["p0"] for _ in range(3)]
        assert found == [S.DOUBTFUL, S.DOUBTFUL, S.PULLED_OUT]


class TestGuards:
    def test_three_of_ten_may_vanish_at_once_the_others_stay_doubtful_for_a_minute(self) -> None:
        shop = service()
        gone = [f"p{i}" for i in range(5)]
        found = shop.absent(*gone)
        assert names_in_state(found, S.PULLED_OUT) == gone[:3]
        assert names_in_state(found, S.DOUBTFUL) == gone[3:]
        assert names_in_state(shop.answer(*gone, after=59), S.PULLED_OUT) == gone[:3]
        assert names_in_state(shop.answer(*gone, after=1), S.PULLED_OUT) == gone

    @pytest.mark.parametrize(("percent", "expected"), [(0, 0), (10, 1), (39, 3), (50, 5), (100, 9)])
    def test_a_share_may_be_out_by_absence(self, percent: int, expected: int) -> None:
        shop = service(rule=policy(registry=REGISTRY, pulled_out=PulledOut(max_percent=percent)))
        gone = [f"p{i}" for i in range(9)]
        found = shop.absent(*gone, rounds=24, after=30)
        assert names_in_state(found, S.PULLED_OUT) == gone[:expected]
        assert names_in_state(found, S.DOUBTFUL) == gone[expected:]

    def test_pods_that_have_not_registered_yet_add_nothing_to_that_share(self) -> None:
        shop = service(4, rule=policy(registry=REGISTRY, pulled_out=PulledOut(max_percent=50)))
        shop.pods += [pod(f"new{i}", ip=f"10.0.1.{i}", now=shop.now, age=5, ready_for=1) for i in range(4)]
        found = shop.absent("p0", "p1", "p2", *(f"new{i}" for i in range(4)), rounds=8)
        assert names_in_state(found, S.STARTING) == ["new0", "new1", "new2", "new3"]
        assert names_in_state(found, S.PULLED_OUT) == ["p0", "p1"]

    def test_a_pod_that_was_out_by_hand_keeps_its_place_once_its_absence_counts(self) -> None:
        shop = service()
        for index in (8, 9):
            shop.pods[index] = out(f"p{index}", ip=f"10.0.0.{index}", ready_for=3000)
        gone = ["p0", "p1", "p2", "p8", "p9"]
        found = shop.absent(*gone, rounds=8)
        assert names_in_state(found, S.PULLED_OUT) == gone
        for index in (8, 9):
            shop.pods[index] = pod(f"p{index}", ip=f"10.0.0.{index}", ready_for=3000)
        assert shop.wait(1) == found
        assert shop.wait(1) == found

    def test_an_empty_answer_needs_120_s_and_an_independent_sign_of_life(self) -> None:
        everyone = [f"p{i}" for i in range(10)]
        for alive, expected in ((False, 0), (True, 3)):
            shop = service()
            found = shop.absent(*everyone, rounds=8, after=15)
            assert names_in_state(found, S.PULLED_OUT) == []
            found = shop.answer(*everyone, after=15, alive=alive)
            assert len(names_in_state(found, S.PULLED_OUT)) == expected

    def test_an_answer_that_is_not_empty_begins_the_120_s_anew(self) -> None:
        everyone = [f"p{i}" for i in range(10)]
        shop = service()
        shop.absent(*everyone, rounds=8, after=15)
        shop.answer(*everyone[:-1])
        shop.answer(*everyone)
        assert names_in_state(shop.answer(*everyone, after=119, alive=True), S.PULLED_OUT) == []
        assert names_in_state(shop.answer(*everyone, after=1, alive=True), S.PULLED_OUT) == ["p0", "p1", "p2"]

    def test_only_ready_pods_that_are_not_starting_count_for_the_share(self) -> None:
        shop = service(4)
        for index in range(4, 12):
            shop.pods.append(pod(f"p{index}", ip=f"10.0.0.{index}", ready=False, ready_for=100))
        gone = ["p0", "p1", "p2", *(f"p{index}" for index in range(4, 12))]
        shop.absent(*gone)
        assert names_in_state(shop.answer(*gone, after=90), S.PULLED_OUT) == ["p0", "p1"]

    def test_pods_that_are_out_keep_their_place_then_the_longest_absent_then_the_name(self) -> None:
        shop = service()
        assert names_in_state(shop.absent("p9"), S.PULLED_OUT) == ["p9"]
        shop.wait(60)
        shop.answer("p9", "p8")
        gone = [f"p{i}" for i in range(10) if i != 4]
        found = shop.absent(*gone)
        assert names_in_state(found, S.PULLED_OUT) == ["p0", "p1", "p8", "p9"]
        found = shop.absent(*gone, rounds=10, after=30)
        assert names_in_state(found, S.PULLED_OUT) == ["p0", "p1", "p2", "p8", "p9"]


class TestLosses:
    """A registry that may have lost its data: what was registered before is no evidence after it."""

    def test_a_pod_that_was_out_by_absence_and_does_not_come_back_after_a_reconnect_is_doubtful_for_good(self) -> None:
        shop = service()
        assert shop.absent("p0")["p0"] is S.PULLED_OUT
        assert shop.answer("p0", reconnected_at=shop.now + 5)["p0"] is S.DOUBTFUL
        assert shop.absent("p0", rounds=20)["p0"] is S.DOUBTFUL
        assert "lost its data" in shop.reason("p0")

    def test_a_pod_that_came_back_and_vanished_later_is_out(self) -> None:
        shop = service()
        shop.answer("p0", reconnected_at=shop.now + 5)
        shop.answer(after=95)
        assert shop.absent("p0")["p0"] is S.PULLED_OUT

    @pytest.mark.parametrize(("later", "state"), [(84, S.DOUBTFUL), (85, S.PULLED_OUT)])
    def test_what_vanishes_within_90_s_was_lost_as_well(self, later: float, state: PodState) -> None:
        """ZooKeeper's nodes of expired sessions go after the reconnect, and caches of a registry are emptied late."""
        shop = service()
        shop.answer(reconnected_at=shop.now + 5)
        shop.answer("p0", after=later)
        assert shop.absent("p0", rounds=20)["p0"] is state

    @pytest.mark.parametrize(
        ("count", "gone", "total", "later", "unfollowed", "state"),
        [
            pytest.param(10, 1, 1000, 700, 0, S.PULLED_OUT, id="30 percent less"),
            pytest.param(10, 1, 1000, 699, 0, S.DOUBTFUL, id="more than 30 percent less"),
            pytest.param(3, 1, 3, 2, 0, S.PULLED_OUT, id="one less of few"),
            pytest.param(4, 2, 4, 2, 0, S.PULLED_OUT, id="two less of few"),
            pytest.param(4, 3, 4, 1, 0, S.DOUBTFUL, id="three less of few"),
            pytest.param(10, 1, 100, 10, 90, S.PULLED_OUT, id="a service that no policy follows any more"),
            pytest.param(10, 1, 100, 6, 90, S.DOUBTFUL, id="a fall while another service is no longer followed"),
        ],
    )
    def test_a_total_that_fell_by_more_than_30_percent_and_two_is_one(
        self, count: int, gone: int, total: int, later: int, unfollowed: int, state: PodState
    ) -> None:
        shop = service(count)
        shop.answer(registry_total=total)
        lost = [f"p{index}" for index in range(gone)]
        shop.answer(*lost, registry_total=later, registry_unfollowed=unfollowed)
        assert shop.absent(*lost, rounds=20)["p0"] is state

    def test_a_reconnect_in_the_future_is_one_of_now(self) -> None:
        shop = service()
        shop.answer("p0", reconnected_at=shop.now + 10**9)
        assert shop.answer(after=91)["p0"] is S.SERVING
        assert shop.absent("p0")["p0"] is S.PULLED_OUT


class TestTrust:
    def test_all_pods_are_doubtful_before_the_first_valid_roster(self) -> None:
        invalid = roster("10.0.0.1", valid=False, error="500")
        for listed in (None, invalid):
            shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1")])
            assert shop.hear(listed) == {"a": S.DOUBTFUL}
            assert "has not given a valid answer" in registry_problem_after(shop)

    def test_a_registry_that_never_listed_the_target_is_set_aside_after_three_rosters_over_the_grace_period(
        self,
    ) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
        for _ in range(4):
            assert set(shop.hear(roster("10.9.9.9", at=shop.now)).values()) == {S.DOUBTFUL}
            shop.now += 50
        shop.pods.append(pod("new", ip="10.0.0.3", age=30, ready_for=20, now=shop.now))
        assert set(shop.hear(roster("10.9.9.9", at=shop.now)).values()) == {S.SERVING}
        assert "'com.shop.web'" in registry_problem_after(shop)

    @pytest.mark.parametrize("behind", [31.0, 3600.0])
    def test_a_registry_whose_clock_is_behind_is_not_blamed_on_the_service_name(self, behind: float) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1")])
        listed = roster("10.0.0.1", at=shop.now)
        started = shop.pods[0].started_at
        assert started is not None
        record = replace(listed.instances[0], registered_at=started - behind)
        for _ in range(5):
            shop.hear(replace(listed, at=shop.now, instances=(record,)))
            shop.now += 50
        assert is_set_aside(shop.memory, REGISTRY)
        assert "its clock is behind" in registry_problem_after(shop)
        assert "'com.shop.web'" not in registry_problem_after(shop)

    def test_a_registry_that_fell_silent_is_trouble_after_5_min(self) -> None:
        shop = service(2)
        assert registry_problem_after(shop, after=300) == ""
        answered = f"gave its last valid answer at {time_text(shop.now)}"
        assert registry_problem_after(shop, after=301).endswith(answered)
