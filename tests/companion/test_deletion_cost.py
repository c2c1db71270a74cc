"""Pulled-out pods are marked to be deleted first, and only what the companion set itself is taken away again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.companion import plan
from adapter.companion.actions import ActionResult, MarkPod
from adapter.companion.features import deletion_cost
from adapter.companion.state import Context, PolicyCondition, State
from adapter.load.pods import LOWEST_COST, Owner, Pod
from adapter.load.spec import Mode, Policy, PulledOut, Scale, Target
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Key, PolicyView
from tests.load.kit import NOW, REGISTRY, TARGET, assess_and_decide, cpu, out, pod, policy, usage

KEY = Key("shop", "web")
FIRST = replace(policy(cpu("1200m", "400m")), pulled_out=PulledOut(delete_first=True))
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(deletion_cost=True))


def marked(name: str, cost: int = LOWEST_COST) -> Pod:
    return out(name, deletion_cost=cost, marked=True)


def left_marked(name: str) -> Pod:
    """A pod that serves, and still bears the mark."""
    return pod(name, deletion_cost=LOWEST_COST, marked=True)


def context(pods: Sequence[Pod], rule: Policy = FIRST, target: Target | None = TARGET) -> Context:
    assessment, decision = assess_and_decide(
        rule, list(pods), usage(dict.fromkeys([one.name for one in pods], "800m")), target=target
    )
    at = Scale(replicas=len(pods), status_replicas=len(pods), selector="app=web")
    view = PolicyView(policy=rule, target=target, scale=at, assessment=assessment)
    return Context(key=KEY, now=NOW, view=view, decision=decision, hpa=None, settings=SWITCHED_ON, state=State())


def planned(case: Context) -> dict[str, bool]:
    """Which pods are written for: True where they are marked, False where unmarked."""
    return {one.pod: one.first for one in deletion_cost.plan(case)}


def finding(case: Context) -> PolicyCondition | None:
    return next(deletion_cost.conditions(case), None)


def test_pods_that_were_pulled_out_are_marked() -> None:
    case = context([pod("web-0"), pod("web-1"), out("web-2"), out("web-3")])
    assert planned(case) == {"web-2": True, "web-3": True}
    assert deletion_cost.plan(case)[0] == MarkPod(key=KEY, namespace="shop", pod="web-2", uid="uid-web-2", first=True)


def test_marked_ones_are_left_as_they_are() -> None:
    assert planned(context([pod("web-0"), marked("web-1")])) == {}


def test_a_pod_that_serves_again_is_unmarked() -> None:
    assert planned(context([left_marked("web-0"), out("web-1")])) == {
        "web-0": False,
        "web-1": True,
    }


def test_a_doubtful_pod_keeps_its_mark() -> None:
    rule = replace(FIRST, registry=REGISTRY)
    assert planned(context([left_marked("web-0")], rule)) == {}


def test_pods_that_are_being_deleted_are_ignored() -> None:
    assert planned(context([pod("web-0"), out("web-1", deleting=True), out("web-2", phase="Failed")])) == {}
    assert planned(context([pod("web-0", deleting=True, marked=True)])) == {}


def test_at_most_ten_pods_are_written_to_between_two_looks() -> None:
    case = context([pod(f"web-{n}") for n in range(30)] + [out(f"out-{n}") for n in range(25)])
    assert len(planned(case)) == 10


def test_without_delete_first_no_pod_is_marked_and_marked_ones_are_unmarked() -> None:
    rule = replace(FIRST, pulled_out=PulledOut())
    assert planned(context([pod("web-0"), out("web-1"), marked("web-2")], rule)) == {"web-2": False}


def test_a_policy_that_only_observes_marks_nothing_and_one_that_is_paused_goes_on() -> None:
    pods = [pod("web-0"), out("web-1"), marked("web-2")]
    observing = context(pods, replace(FIRST, mode=Mode.OBSERVE))
    assert planned(observing) == {"web-2": False}
    found = finding(observing)
    assert found is not None
    assert (found.is_true, found.reason) == (False, "Observed")
    assert planned(context(pods, replace(FIRST, mode=Mode.PAUSED))) == {"web-1": True}


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_pods_of_a_deployment_are_marked(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    pods = [replace(one, owner=owner) for one in (pod("web-0"), out("web-1"))]
    case = context(pods, target=replace(TARGET, kind=kind))
    assert planned(case) == {}
    assert finding(case) == PolicyCondition(
        "DeletedFirst",
        False,
        "NoDeployment",
        f"deletion costs decide among the pods of a Deployment; a {kind} shrinks by other rules",
    )


def test_switched_off_nothing_is_written() -> None:
    case = replace(context([pod("web-0"), out("web-1"), marked("web-2")]), settings=CompanionSettings())
    assert not [one for one in (*plan.urgent(case), *plan.steady(case)) if isinstance(one, MarkPod)]
    found = finding(replace(context([pod("web-0"), out("web-1")]), settings=CompanionSettings()))
    assert found is not None
    assert (found.is_true, found.reason) == (False, "SwitchedOff")


def test_marks_left_while_the_feature_is_off_are_a_condition() -> None:
    pods = [left_marked("web-0"), *(marked(f"web-{n}") for n in range(1, 5))]
    for rule in (FIRST, replace(FIRST, pulled_out=PulledOut())):
        found = finding(replace(context(pods, rule), settings=CompanionSettings()))
        assert found is not None
        assert (found.is_true, found.reason) == (False, "MarksLeft")
        assert "web-0, web-1, web-2 and 2 more bear its marks: they are deleted first" in found.message


def test_switched_on_marking_waits_its_turn() -> None:
    case = context([pod("web-0"), out("web-1")])
    assert [type(one) for one in plan.steady(case)][:1] == [MarkPod]
    assert not list(plan.urgent(case))


def test_it_is_off_by_default() -> None:
    assert not CompanionFeatures().deletion_cost


# --- another writer


@pytest.mark.parametrize("cost", [5, -1, LOWEST_COST + 1])
def test_a_cost_of_another_client_stays(cost: int) -> None:
    case = context([pod("web-0"), out("web-1", deletion_cost=cost)])
    assert planned(case) == {}
    found = finding(case)
    assert found is not None
    assert (found.is_true, found.reason) == (False, "ForeignCost")
    assert "web-1" in found.message


def test_the_lowest_cost_set_by_another_client_counts_as_marked() -> None:
    case = context([pod("web-0"), out("web-1", deletion_cost=LOWEST_COST)])
    assert planned(case) == {}
    found = finding(case)
    assert found is not None
    assert found.is_true


@pytest.mark.parametrize("cost", [0, 5])
def test_a_mark_that_somebody_wrote_over_is_not_renewed(cost: int) -> None:
    case = context([pod("web-0"), marked("web-1", cost)])
    assert planned(case) == {}
    found = finding(case)
    assert found is not None
    assert found.reason == "ForeignCost"


def test_a_cost_whose_write_conflicts_is_left_alone_for_ten_minutes() -> None:
    case = context([pod("web-0"), out("web-1"), out("web-2")])
    action = deletion_cost.plan(case)[0]
    state = plan.missed(State(), action, ActionResult.OVERTAKEN, NOW - 599)
    assert planned(replace(case, state=state)) == {"web-2": True}
    found = finding(replace(case, state=state))
    assert found is not None
    assert found.reason == "ForeignCost"
    state = plan.missed(State(), action, ActionResult.OVERTAKEN, NOW - 600)
    assert planned(replace(case, state=state)) == {"web-1": True, "web-2": True}


def test_a_foreign_cost_is_forgotten_after_ten_minutes() -> None:
    case = context([pod("web-0"), out("web-1"), out("web-2")])
    first, second = deletion_cost.plan(case)
    state = plan.missed(
        plan.missed(State(), first, ActionResult.OVERTAKEN, NOW - 600), second, ActionResult.OVERTAKEN, NOW
    )
    assert list(state.marking.foreign) == [second.uid]


@pytest.mark.parametrize(
    "case",
    [context([pod("web-0"), out("web-1")]), context([pod("web-0"), left_marked("web-1")])],
    ids=["a mark that somebody takes away", "a mark that is not the companion's"],
)
def test_a_mark_without_effect_is_not_written_again_for_ten_minutes(case: Context) -> None:
    (action,) = deletion_cost.plan(case)
    state = plan.after(State(), action, NOW)
    assert planned(replace(case, state=state, now=NOW + 599)) == {}
    assert planned(replace(case, state=state, now=NOW + 600)) == {"web-1": action.first}


def test_a_pod_that_comes_and_goes_is_marked_and_unmarked_each_time() -> None:
    gone, back = context([pod("web-0"), out("web-1")]), context([pod("web-0"), left_marked("web-1")])
    state = State()
    for case in (gone, back, gone, back):
        (action,) = deletion_cost.plan(replace(case, state=state))
        assert action.first is (case is gone)
        state = plan.after(state, action, NOW)


def test_what_was_written_long_ago_is_forgotten() -> None:
    case = context([pod("web-0"), out("web-1"), out("web-2")])
    first, second = deletion_cost.plan(case)
    state = plan.after(plan.after(State(), first, NOW - 600), second, NOW)
    assert list(state.marking.done) == [second.uid]


# --- its condition


def test_while_all_that_are_out_are_marked_a_condition_says_so() -> None:
    found = finding(context([pod("web-0"), marked("web-1")]))
    assert found is not None
    assert (found.is_true, found.reason) == (True, "Marked")


def test_a_condition_says_that_some_pods_are_not_marked_yet() -> None:
    found = finding(context([pod("web-0"), out("web-1")]))
    assert found is not None
    assert (found.is_true, found.reason) == (False, "Marking")


def test_with_two_replica_sets_it_is_not_counted_on() -> None:
    other = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")
    found = finding(context([other, pod("web-1"), marked("web-2")]))
    assert found is not None
    assert (found.is_true, found.reason) == (False, "SeveralReplicaSets")


def test_while_no_pod_is_out_there_is_nothing_to_say() -> None:
    assert finding(context([pod("web-0")])) is None
    assert finding(context([pod("web-0"), out("web-1")], replace(FIRST, pulled_out=PulledOut()))) is None


def test_where_the_right_for_it_lacks_it_says_so_until_a_pod_was_marked() -> None:
    case = context([pod("web-0"), out("web-1")])
    action = deletion_cost.plan(case)[0]
    state = plan.missed(State(), action, ActionResult.REFUSED, NOW)
    found = finding(replace(case, state=state))
    assert found is not None
    assert (found.is_true, found.reason) == (False, "Forbidden")
    found = finding(replace(case, state=plan.after(state, action, NOW)))
    assert found is not None
    assert found.reason == "Marking"
