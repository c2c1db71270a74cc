"""The table of states: the first rule that matches decides."""

from dataclasses import replace

import pytest

from adapter.load.matching import canonical_ip
from adapter.load.membership import Membership, Standing, classify, uses_registry
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Condition, Container, Pod, PodState
from adapter.load.recollection import after_roster, after_states
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy, PulledOut, Registry
from tests.load.world import NOW, REGISTRY, out, pod, policy, roster

POLICY = policy()
REGISTERED = policy(registry=REGISTRY)
S = PodState


def state(one: Pod, rule: Policy = POLICY, listed: Roster | None = None, memory: Memory | None = None) -> Standing:
    """The standing of one pod among a serving one, so that believing is never the question."""
    other = pod("other", ip="10.0.0.99")
    return see(rule, [one, other], listed, memory).standings[one.uid]


def see(
    rule: Policy, pods: list[Pod], listed: Roster | None = None, memory: Memory | None = None, now: float = NOW
) -> Membership:
    """The states once this roster counted."""
    return classify(rule, pods, after_roster(memory or Memory(), rule, pods, listed, now), now)


def states(membership: Membership) -> dict[str, PodState]:
    return {uid.removeprefix("uid-"): standing.state for uid, standing in membership.standings.items()}


class Registering:
    """A target and its registry over time: each answer is one roster, remembered as `assess` would."""

    def __init__(self, rule: Policy, pods: list[Pod], now: float = NOW) -> None:
        self.rule, self.pods, self.now, self.memory = rule, pods, now, Memory()

    def answer(self, *absent: str, after: float = 10.0, **changes: object) -> dict[str, PodState]:
        """The states after the next roster, which lists all pods but the absent."""
        self.now += after
        ips = [canonical_ip(p.ips[0]) for p in self.pods if p.name not in absent]
        return self.hear(replace(roster(*ips, at=self.now), **changes))  # type: ignore[arg-type]

    def hear(self, listed: Roster | None) -> dict[str, PodState]:
        self.memory = after_roster(self.memory, self.rule, self.pods, listed, self.now)
        membership = classify(self.rule, self.pods, self.memory, self.now)
        self.memory = after_states(self.memory, membership, self.now)
        return states(membership)

    def wait(self, seconds: float) -> dict[str, PodState]:
        """The states after some silence."""
        self.now += seconds
        return self.hear(None)

    def absent(self, *names: str, rounds: int = 4, after: float = 15.0) -> dict[str, PodState]:
        """The states after so many rosters without these pods."""
        found: dict[str, PodState] = {}
        for _ in range(rounds):
            found = self.answer(*names, after=after)
        return found


def service(count: int = 10, rule: Policy = REGISTERED) -> Registering:
    """So many pods that are registered."""
    made = Registering(rule, [pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(count)])
    made.answer()
    return made


def those(found: dict[str, PodState], wanted: PodState) -> list[str]:
    return sorted(name for name, standing in found.items() if standing is wanted)


class TestGone:
    def test_a_pod_being_deleted_is_terminating_whatever_else_it_is(self) -> None:
        for one in (pod(deleting=True), out("web-0", deleting=True), pod(deleting=True, phase="Failed", ready=False)):
            assert state(one).state is S.TERMINATING

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
    def test_a_pod_that_ended_is_finished(self, phase: str) -> None:
        assert state(pod(phase=phase, ready=False)).state is S.FINISHED
        assert state(out("web-0", phase=phase)).state is S.FINISHED


class TestStartingAndUnready:
    def test_a_pending_pod_is_starting(self) -> None:
        assert state(pod(phase="Pending", ready=False, ready_for=10.0, age=600)).state is S.STARTING

    def test_a_pod_without_a_start_time_is_starting(self) -> None:
        assert state(pod(ready=False, started_at=None)).state is S.STARTING

    def test_a_pod_without_a_ready_condition_is_starting(self) -> None:
        assert state(replace(pod(), ready=None)).state is S.STARTING

    def test_a_pod_that_did_not_change_since_its_creation_is_starting(self) -> None:
        assert state(pod(ready=False, age=3600, ready_for=3600)).state is S.STARTING

    def test_a_pod_whose_condition_says_not_since_when_is_starting(self) -> None:
        assert state(replace(pod(), ready=Condition(False, None))).state is S.STARTING

    def test_a_pod_that_turned_not_ready_within_30_s_of_its_start_never_was_ready(self) -> None:
        assert state(pod(ready=False, age=3600, ready_for=3570)).state is S.STARTING
        assert state(pod(ready=False, age=3600, ready_for=3569)).state is S.UNREADY

    def test_a_pod_that_was_ready_and_is_not_is_unready(self) -> None:
        assert state(pod(ready=False, ready_for=10)).state is S.UNREADY

    def test_a_crash_looping_pod_is_unready_though_it_never_was_ready(self) -> None:
        crashing = (Container("app", running=False, crash_looping=True),)
        assert state(pod(ready=False, age=100, ready_for=100, containers=crashing)).state is S.UNREADY

    def test_a_registered_pod_that_is_not_ready_is_unready_all_the_same(self) -> None:
        ill = pod(ready=False, ready_for=10, ip="10.0.0.1")
        assert state(ill, REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.UNREADY

    def test_an_unready_pod_is_not_pulled_out_by_its_registry_or_its_annotation(self) -> None:
        ill = pod(ready=False, ready_for=10, ip="10.0.0.1")
        assert state(ill, REGISTERED, roster("10.0.0.99", disabled=("10.0.0.1",))).state is S.UNREADY
        assert state(out("web-0", ready=False, ready_for=10)).state is S.UNREADY

    def test_a_ready_pod_that_is_yet_to_register_is_starting_for_the_grace_period(self) -> None:
        for ready_for, expected in ((179, S.STARTING), (180, S.DOUBTFUL), (10, S.STARTING)):
            fresh = pod(age=ready_for + 5, ready_for=ready_for, ip="10.0.0.1")
            assert state(fresh, REGISTERED, roster("10.0.0.99")).state is expected, ready_for

    def test_the_grace_period_is_the_policys(self) -> None:
        rule = policy(registry=replace(REGISTRY, grace=60.0))
        fresh = pod(age=65, ready_for=60, ip="10.0.0.1")
        assert state(fresh, rule, roster("10.0.0.99")).state is S.DOUBTFUL

    def test_a_registered_pod_serves_within_the_grace_period(self) -> None:
        fresh = pod(age=15, ready_for=10, ip="10.0.0.1")
        assert state(fresh, REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.SERVING

    def test_a_pod_once_registered_gets_no_second_grace_period(self) -> None:
        known = Memory(pods={"uid-web-0": PodMemory(seen=NOW - 100)}, ever_in_roster=True)
        again = pod(ready_for=10, ip="10.0.0.1")
        assert state(again, REGISTERED, roster("10.0.0.99"), known).state is S.DOUBTFUL

    def test_an_answer_older_than_readiness_cannot_know_the_pod(self) -> None:
        fresh = pod(age=15, ready_for=10, ip="10.0.0.1")
        assert state(fresh, REGISTERED, roster("10.0.0.99", at=NOW - 11)).state is S.DOUBTFUL


class TestPulledOutWithoutARegistry:
    @pytest.mark.parametrize("rule", [POLICY, policy(registry=Registry(name="kubernetes"))])
    def test_an_endpoint_that_does_not_serve_is_evidence(self, rule: Policy) -> None:
        assert state(pod(endpoint_serving=False), rule).state is S.PULLED_OUT
        assert state(pod(endpoint_serving=True), rule).state is S.SERVING
        assert state(pod(endpoint_serving=None), rule).state is S.SERVING

    def test_endpoints_are_no_evidence_where_a_registry_is_named(self) -> None:
        assert state(pod(endpoint_serving=False, ip="10.0.0.1"), REGISTERED, roster("10.0.0.1")).state is S.SERVING

    def test_a_shut_readiness_gate_is_evidence_with_any_registry_or_none(self) -> None:
        gated = pod(ready=False, ready_for=60, containers_ready=True, gates={"a": True, "b": False}, ip="10.0.0.1")
        for rule in (POLICY, REGISTERED):
            found = state(gated, rule, roster("10.0.0.1", "10.0.0.99"))
            assert found.state is S.PULLED_OUT
            assert found.evidence == "readiness gate b"

    def test_a_gate_says_nothing_while_containers_are_not_ready(self) -> None:
        assert state(pod(ready=False, ready_for=60, gates={"b": False})).state is S.UNREADY

    def test_a_gate_that_never_opened_is_a_pod_that_starts(self) -> None:
        gated = pod(ready=False, age=60, ready_for=60, containers_ready=True, gates={"b": False})
        assert state(gated).state is S.STARTING

    def test_the_annotation_is_honoured_with_any_registry(self) -> None:
        assert state(out("web-0")).state is S.PULLED_OUT
        assert state(out("web-0", ip="10.0.0.1"), REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.PULLED_OUT
        assert state(out("web-0"), REGISTERED, None).state is S.PULLED_OUT

    def test_the_rest_serves(self) -> None:
        assert state(pod()).state is S.SERVING
        assert uses_registry(POLICY) is None


class TestExplicitEvidence:
    @pytest.mark.parametrize(
        "word",
        [
            {"enabled": False},
            {"isolated": True},
            {"weight": 0.0},
            {"weight": -1.0},
            {"status": "OUT_OF_SERVICE"},
            {"status": "DOWN"},
            {"status": "maintenance"},
            {"status": "Critical"},
            {"healthy": False},
        ],
        ids=str,
    )
    def test_the_registrys_own_word_counts_at_once(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word), Instance(ip="10.0.0.99")))  # type: ignore[arg-type]
        found = state(pod(ip="10.0.0.1"), REGISTERED, listed)
        assert found.state is S.PULLED_OUT
        assert found.evidence.startswith("registry nacos: ")
        assert not found.by_absence

    @pytest.mark.parametrize(
        "word", [{}, {"weight": 0.01}, {"weight": None}, {"status": "UP"}, {"status": "warning"}, {"status": "passing"}]
    )
    def test_any_other_word_is_a_pod_that_serves(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word),))  # type: ignore[arg-type]
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.SERVING

    def test_health_says_nothing_while_the_registry_protects_itself(self) -> None:
        ill = roster("10.0.0.99", protected=True)
        ill = replace(ill, instances=(*ill.instances, Instance(ip="10.0.0.1", healthy=False)))
        assert state(pod(ip="10.0.0.1"), REGISTERED, ill).state is S.SERVING

    def test_health_says_nothing_where_the_policy_says_so(self) -> None:
        rule = policy(registry=replace(REGISTRY, unhealthy_is_out=False))
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", healthy=False),))
        assert state(pod(ip="10.0.0.1"), rule, listed).state is S.SERVING

    def test_a_disabled_pod_is_out_while_the_registry_protects_itself(self) -> None:
        listed = roster("10.0.0.99", disabled=("10.0.0.1",), protected=True)
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.PULLED_OUT

    def test_a_pod_with_several_records_is_out_only_if_all_are(self) -> None:
        both = roster("10.0.0.1", "10.0.0.99", disabled=("10.0.0.1",))
        assert state(pod(ip="10.0.0.1"), REGISTERED, both).state is S.SERVING
        all_out = roster("10.0.0.99", disabled=("10.0.0.1", "10.0.0.1"))
        assert state(pod(ip="10.0.0.1"), REGISTERED, all_out).state is S.PULLED_OUT

    def test_any_record_will_do_where_the_policy_says_so(self) -> None:
        rule = policy(registry=replace(REGISTRY, any_out=True))
        both = roster("10.0.0.1", "10.0.0.99", disabled=("10.0.0.1",))
        assert state(pod(ip="10.0.0.1"), rule, both).state is S.PULLED_OUT

    def test_a_leftover_record_is_no_evidence(self) -> None:
        listed = roster("10.0.0.99")
        leftover = Instance(ip="10.0.0.1", enabled=False, registered_at=NOW - 7200)
        listed = replace(listed, instances=(*listed.instances, leftover))
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.DOUBTFUL

    def test_it_is_believed_for_30_min(self) -> None:
        one = pod(ip="10.0.0.1")
        for age, expected in ((1800, S.PULLED_OUT), (1801, S.DOUBTFUL)):
            listed = roster("10.0.0.99", disabled=("10.0.0.1",), at=NOW - age)
            assert state(one, REGISTERED, listed).state is expected

    def test_it_may_turn_out_all_but_one(self) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(10)]
        listed = roster("10.0.0.0", disabled=tuple(f"10.0.0.{i}" for i in range(1, 10)))
        assert those(states(see(REGISTERED, pods, listed)), S.PULLED_OUT) == [f"p{i}" for i in range(1, 10)]

    @pytest.mark.parametrize(
        "others", [[], [pod("s", phase="Pending", ready=False)], [pod("u", ready=False, ready_for=9)]]
    )
    def test_all_of_it_is_doubtful_where_it_would_leave_nobody(self, others: list[Pod]) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        listed = roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"))
        found = see(REGISTERED, [*pods, *others], listed)
        assert those(states(found), S.DOUBTFUL) == ["p0", "p1", "p2"]
        assert "every pod would be out" in found.standings["uid-p0"].reason

    def test_a_doubtful_pod_is_somebody(self) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        found = see(REGISTERED, pods, roster(disabled=("10.0.0.0", "10.0.0.1")))
        assert states(found) == {"p0": S.PULLED_OUT, "p1": S.PULLED_OUT, "p2": S.DOUBTFUL}

    def test_annotations_and_gates_are_doubted_alike(self) -> None:
        gated = pod("g", ready=False, ready_for=60, containers_ready=True, gates={"b": False})
        assert set(states(see(POLICY, [out("a"), gated])).values()) == {S.DOUBTFUL}

    def test_confirmed_absence_stays_evidence_where_explicit_evidence_is_doubted(self) -> None:
        shop = service(4)
        assert those(shop.absent("p3"), S.PULLED_OUT) == ["p3"]
        shop.now += 10
        found = shop.hear(roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"), at=shop.now))
        assert found == {"p0": S.DOUBTFUL, "p1": S.DOUBTFUL, "p2": S.DOUBTFUL, "p3": S.PULLED_OUT}


class TestAbsence:
    def test_it_needs_three_rosters_in_a_row_over_45_s(self) -> None:
        shop = service()
        assert [shop.answer("p0", after=22.5)["p0"] for _ in range(3)] == [S.DOUBTFUL, S.DOUBTFUL, S.PULLED_OUT]

    def test_three_rosters_in_no_time_are_not_enough(self) -> None:
        shop = service()
        found = [shop.answer("p0", after=10)["p0"] for _ in range(6)]
        assert found == [S.DOUBTFUL] * 5 + [S.PULLED_OUT]

    def test_a_long_time_without_three_rosters_is_not_enough(self) -> None:
        shop = service()
        assert shop.answer("p0", after=100)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=100)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=100)["p0"] is S.PULLED_OUT

    def test_being_listed_once_begins_the_count_anew(self) -> None:
        shop = service()
        shop.absent("p0", rounds=2, after=20)
        assert shop.answer()["p0"] is S.SERVING
        assert shop.absent("p0", rounds=2, after=30)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=30)["p0"] is S.PULLED_OUT

    def test_the_patience_is_the_policys(self) -> None:
        shop = service(rule=policy(registry=replace(REGISTRY, absent=120.0)))
        assert shop.absent("p0", rounds=4, after=39)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=3)["p0"] is S.PULLED_OUT

    def test_it_is_believed_for_5_min_and_doubt_after_that(self) -> None:
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

    def test_a_pod_that_never_registered_is_doubtful_not_out(self) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
        assert shop.absent("b", rounds=20)["b"] is S.DOUBTFUL

    def test_a_pod_that_never_registered_is_doubtful_also_where_others_only_once_were(self) -> None:
        known = Memory(ever_in_roster=True, rosters=50, rosters_since=NOW - 5000)
        found = see(REGISTERED, [pod("b", ip="10.0.0.2")], roster("10.0.0.77"), known)
        assert found.standings["uid-b"].state is S.DOUBTFUL
        assert not found.set_aside

    def test_absence_from_an_answer_older_than_readiness_is_no_evidence(self) -> None:
        shop = service(4)
        shop.pods[0] = pod("p0", ip="10.0.0.0", ready=False, now=shop.now, ready_for=1)
        assert shop.absent("p0")["p0"] is S.UNREADY
        shop.pods[0] = pod("p0", ip="10.0.0.0", now=shop.now + 5, ready_for=1)
        assert shop.wait(5)["p0"] is S.DOUBTFUL
        assert shop.answer(after=5)["p0"] is S.SERVING

    def test_a_pod_unregistered_while_it_was_unready_is_out_by_the_next_answer(self) -> None:
        shop = service(4)
        shop.pods[0] = pod("p0", ip="10.0.0.0", ready=False, now=shop.now, ready_for=1)
        shop.absent("p0")
        shop.pods[0] = pod("p0", ip="10.0.0.0", now=shop.now + 5, ready_for=1)
        assert shop.answer("p0")["p0"] is S.PULLED_OUT


class TestGuards:
    def test_three_of_ten_may_vanish_at_once_the_others_stay_doubtful_for_a_minute(self) -> None:
        shop = service()
        gone = [f"p{i}" for i in range(5)]
        found = shop.absent(*gone)
        assert those(found, S.PULLED_OUT) == gone[:3]
        assert those(found, S.DOUBTFUL) == gone[3:]
        assert those(shop.answer(*gone, after=59), S.PULLED_OUT) == gone[:3]
        assert those(shop.answer(*gone, after=1), S.PULLED_OUT) == gone

    def test_two_may_vanish_at_once_in_a_small_service(self) -> None:
        shop = service(4)
        assert those(shop.absent("p0", "p1"), S.PULLED_OUT) == ["p0", "p1"]

    def test_at_most_half_may_be_out_by_absence(self) -> None:
        shop = service()
        gone = [f"p{i}" for i in range(8)]
        shop.absent(*gone)
        found = shop.absent(*gone, rounds=20, after=30)
        assert those(found, S.PULLED_OUT) == gone[:5]
        assert those(found, S.DOUBTFUL) == gone[5:]

    @pytest.mark.parametrize(("percent", "expected"), [(0, 0), (10, 1), (30, 3), (39, 3), (100, 10)])
    def test_the_share_is_the_policys(self, percent: int, expected: int) -> None:
        shop = service(rule=policy(registry=REGISTRY, pulled_out=PulledOut(max_percent=percent)))
        gone = [f"p{i}" for i in range(10)]
        shop.absent(*gone[:-1])
        found = shop.absent(*gone[:-1], rounds=20, after=30)
        assert len(those(found, S.PULLED_OUT)) == min(expected, 9)

    def test_pods_that_are_out_keep_their_place_then_the_longest_absent_then_the_name(self) -> None:
        shop = service()
        assert those(shop.absent("p9"), S.PULLED_OUT) == ["p9"]
        shop.wait(60)
        shop.answer("p9", "p8")
        gone = [f"p{i}" for i in range(10) if i != 4]
        found = shop.absent(*gone)
        assert those(found, S.PULLED_OUT) == ["p0", "p1", "p8", "p9"]
        found = shop.absent(*gone, rounds=10, after=30)
        assert those(found, S.PULLED_OUT) == ["p0", "p1", "p2", "p8", "p9"]

    def test_a_place_that_comes_free_goes_to_the_next(self) -> None:
        shop = service(4)
        shop.absent("p0", "p1", "p2")
        assert those(shop.answer("p0", "p1", "p2", after=90), S.PULLED_OUT) == ["p0", "p1"]
        assert those(shop.answer("p1", "p2"), S.PULLED_OUT) == ["p1", "p2"]

    def test_explicit_evidence_takes_no_place_of_absence(self) -> None:
        shop = service(4)
        shop.absent("p0", "p1")
        shop.now += 10
        found = shop.hear(roster("10.0.0.3", disabled=("10.0.0.2",), at=shop.now))
        assert those(found, S.PULLED_OUT) == ["p0", "p1", "p2"]

    def test_only_ready_pods_that_are_not_starting_count_for_the_share(self) -> None:
        shop = service(4)
        for index in range(4, 12):
            shop.pods.append(pod(f"p{index}", ip=f"10.0.0.{index}", ready=False, ready_for=100))
        gone = ["p0", "p1", "p2", *(f"p{index}" for index in range(4, 12))]
        shop.absent(*gone)
        assert those(shop.answer(*gone, after=90), S.PULLED_OUT) == ["p0", "p1"]

    def test_absence_is_doubt_for_90_s_after_a_reconnect(self) -> None:
        shop = service()
        assert shop.absent("p0")["p0"] is S.PULLED_OUT
        assert shop.answer("p0", reconnected_at=shop.now + 5)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=84)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=1)["p0"] is S.PULLED_OUT

    def test_absence_is_doubt_for_90_s_after_the_whole_registry_lost_a_third(self) -> None:
        shop = service()
        shop.answer(registry_total=1000)
        assert shop.answer("p0", registry_total=700)["p0"] is S.DOUBTFUL
        assert shop.memory.hold_until is None
        shop.answer(registry_total=1000)
        shop.answer("p0", registry_total=699)
        assert shop.absent("p0", rounds=4, after=22)["p0"] is S.DOUBTFUL
        assert shop.answer("p0", after=2)["p0"] is S.PULLED_OUT

    def test_explicit_evidence_is_believed_while_the_registry_recovers(self) -> None:
        shop = service()
        shop.now += 10
        listed = roster(*(f"10.0.0.{i}" for i in range(1, 10)), disabled=("10.0.0.0",), at=shop.now)
        assert shop.hear(replace(listed, reconnected_at=shop.now))["p0"] is S.PULLED_OUT

    def test_an_empty_answer_needs_120_s_and_an_independent_sign_of_life(self) -> None:
        everyone = [f"p{i}" for i in range(10)]
        for alive, expected in ((False, 0), (True, 3)):
            shop = service()
            found = shop.absent(*everyone, rounds=8, after=15)
            assert those(found, S.PULLED_OUT) == []
            found = shop.answer(*everyone, after=15, alive=alive)
            assert len(those(found, S.PULLED_OUT)) == expected

    def test_an_answer_that_is_not_empty_begins_the_120_s_anew(self) -> None:
        everyone = [f"p{i}" for i in range(10)]
        shop = service()
        shop.absent(*everyone, rounds=8, after=15)
        shop.answer(*everyone[:-1])
        assert those(shop.absent(*everyone[:-1], "p9", rounds=8, after=15), S.PULLED_OUT) == []


class TestTrust:
    def test_without_a_valid_roster_ever_all_are_doubtful(self) -> None:
        invalid = roster("10.0.0.1", valid=False, error="500")
        for listed in (None, invalid):
            found = see(REGISTERED, [pod("a", ip="10.0.0.1")], listed)
            assert states(found) == {"a": S.DOUBTFUL}
            assert "has not given a valid answer" in found.registry_trouble

    def test_a_registry_that_never_listed_the_target_is_set_aside_after_three_rosters_over_the_grace_period(
        self,
    ) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
        for _ in range(4):
            assert set(shop.hear(roster("10.9.9.9", at=shop.now)).values()) == {S.DOUBTFUL}
            shop.now += 50
        assert set(shop.hear(roster("10.9.9.9", at=shop.now)).values()) == {S.SERVING}
        found = classify(REGISTERED, shop.pods, shop.memory, shop.now)
        assert found.set_aside
        assert "'com.shop.web'" in found.registry_trouble

    def test_two_rosters_do_not_set_a_registry_aside_however_long_it_takes(self) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1")])
        shop.hear(roster("10.9.9.9", at=shop.now))
        shop.now += 1000
        assert shop.hear(roster("10.9.9.9", at=shop.now))["a"] is S.DOUBTFUL

    def test_a_registry_that_is_set_aside_keeps_no_pod_starting(self) -> None:
        shop = Registering(REGISTERED, [pod("a", ip="10.0.0.1")])
        for _ in range(5):
            shop.hear(roster("10.9.9.9", at=shop.now))
            shop.now += 60
        shop.pods.append(pod("b", ip="10.0.0.2", age=30, ready_for=20, now=shop.now))
        assert shop.hear(roster("10.9.9.9", at=shop.now)) == {"a": S.SERVING, "b": S.SERVING}

    def test_a_registry_that_once_listed_a_pod_is_never_set_aside(self) -> None:
        shop = service(1)
        found = shop.absent("p0", rounds=50)
        assert found == {"p0": S.DOUBTFUL}

    def test_pods_by_hand_are_out_though_the_registry_is_set_aside(self) -> None:
        shop = Registering(REGISTERED, [out("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
        for _ in range(5):
            shop.hear(roster("10.9.9.9", at=shop.now))
            shop.now += 60
        assert shop.hear(roster("10.9.9.9", at=shop.now)) == {"a": S.PULLED_OUT, "b": S.SERVING}

    def test_a_registry_that_fell_silent_is_trouble_after_5_min(self) -> None:
        shop = service(2)
        assert classify(REGISTERED, shop.pods, shop.memory, shop.now + 300).registry_trouble == ""
        assert "301 s ago" in classify(REGISTERED, shop.pods, shop.memory, shop.now + 301).registry_trouble

    def test_pods_that_the_last_answer_has_as_serving_serve_however_old_it_is(self) -> None:
        shop = service(2)
        assert set(shop.wait(7200).values()) == {S.SERVING}
