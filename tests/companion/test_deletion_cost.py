"""Pulled-out pods are marked to be deleted first, and only what the companion set itself is taken away again."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion import deletion_cost
from adapter.companion.state import ActionResult, Context, State
from adapter.load.pods import LOWEST_COST, Owner, Pod
from adapter.load.spec import Mode, Policy, PulledOut, Target
from adapter.settings import CompanionFeatures, CompanionSettings
from tests.companion import kit
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, out, pod, policy

FIRST = replace(policy(cpu("1200m", "400m")), pulled_out=PulledOut(delete_first=True))
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(deletion_cost=True))


def marked(name: str, cost: int = LOWEST_COST) -> Pod:
    return out(name, deletion_cost=cost, marked=True)


def left_marked(name: str) -> Pod:
    """A pod that serves, and still bears the mark."""
    return pod(name, deletion_cost=LOWEST_COST, marked=True)


def context(
    pods: list[Pod], rule: Policy = FIRST, target: Target = TARGET, settings: CompanionSettings = SWITCHED_ON
) -> Context:
    return kit.context(pods=pods, rule=rule, target=target, settings=settings)


def planned(case: Context) -> dict[str, bool]:
    """Which pods are written for: True where they are marked, False where unmarked."""
    return {one.body["metadata"]["name"]: one.body["metadata"]["annotations"] != {} for one in deletion_cost.plan(case)}


def shown(case: Context) -> tuple[bool, str] | None:
    """Whether its condition is true, and why; None without a condition."""
    found = deletion_cost.condition(case)
    return (found.is_true, found.reason) if found else None


def test_a_pod_that_was_pulled_out_is_marked_by_name_and_uid() -> None:
    (action,) = deletion_cost.plan(context([pod("web-0"), out("web-1")]))
    assert (action.path, action.body["metadata"]["uid"]) == ("/api/v1/namespaces/shop/pods/web-1", "uid-web-1")
    assert action.body["metadata"]["annotations"] == {
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
        "effective-load.io/deletion-cost-set": "true",
    }


SERVES, IS_OUT, IS_MARKED = pod("web-0"), out("web-1"), marked("web-2")
OTHER_REPLICA_SET = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")
FOREIGN = (False, "ForeignCost")


@pytest.mark.parametrize(
    ("changes", "pods", "writes", "condition"),
    [
        pytest.param({}, [SERVES], {}, None, id="no pod is out: there is nothing to say"),
        pytest.param({}, [SERVES, IS_MARKED], {}, (True, "Marked"), id="all that are out are marked"),
        pytest.param({}, [SERVES, IS_OUT, IS_MARKED], {"web-1": True}, (False, "Marking"), id="some are not yet"),
        pytest.param(
            {}, [left_marked("web-0"), IS_OUT], {"web-0": False, "web-1": True}, (False, "Marking"),
            id="a pod that serves again is unmarked",
        ),
        pytest.param({"registry": REGISTRY}, [left_marked("web-0")], {}, None, id="a doubtful pod keeps its mark"),
        pytest.param(
            {}, [SERVES, out("web-1", deleting=True), out("web-2", phase="Failed")], {}, None,
            id="pods that are being deleted or have failed are ignored",
        ),
        pytest.param({}, [pod("web-0", deleting=True, marked=True)], {}, None, id="so is a marked one that is deleted"),
        pytest.param(
            {"pulled_out": PulledOut()}, [SERVES, IS_OUT, IS_MARKED], {"web-2": False}, None,
            id="without deleteFirst no pod is marked and marked ones are unmarked",
        ),
        pytest.param(
            {"mode": Mode.OBSERVE}, [SERVES, IS_OUT, IS_MARKED], {"web-2": False}, (False, "Observed"),
            id="a policy that only observes marks nothing",
        ),
        pytest.param(
            {"mode": Mode.PAUSED}, [SERVES, IS_OUT, IS_MARKED], {"web-1": True}, (False, "Marking"),
            id="one that is paused goes on",
        ),
        pytest.param(
            {}, [OTHER_REPLICA_SET, pod("web-1"), IS_MARKED], {}, (False, "SeveralReplicaSets"),
            id="with two ReplicaSets it is not counted on",
        ),
        *(
            pytest.param({}, [SERVES, out("web-1", deletion_cost=cost)], {}, FOREIGN, id=f"a foreign {cost} stays")
            for cost in (5, -1, LOWEST_COST + 1)
        ),
        pytest.param(
            {}, [SERVES, out("web-1", deletion_cost=LOWEST_COST)], {}, (True, "Marked"),
            id="the lowest cost set by another client counts as marked",
        ),
        *(
            pytest.param({}, [SERVES, marked("web-1", cost)], {}, FOREIGN, id=f"a mark that {cost} replaced stays so")
            for cost in (0, 5)
        ),
    ],
)  # fmt: skip
def test_pods_that_are_out_are_marked_and_others_unmarked(
    changes: dict[str, Any], pods: list[Pod], writes: dict[str, bool], condition: tuple[bool, str] | None
) -> None:
    case = context(pods, replace(FIRST, **changes))
    assert planned(case) == writes
    assert shown(case) == condition


def test_at_most_ten_pods_are_written_to_between_two_looks() -> None:
    case = context([pod(f"web-{n}") for n in range(30)] + [out(f"out-{n}") for n in range(25)])
    assert len(planned(case)) == 10


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_pods_of_a_deployment_are_marked(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    case = context([replace(one, owner=owner) for one in (SERVES, IS_OUT)], target=replace(TARGET, kind=kind))
    assert planned(case) == {}
    assert shown(case) == (False, "NoDeployment")


def test_a_policy_that_asks_for_it_while_the_feature_is_off_says_so() -> None:
    assert shown(context([SERVES, IS_OUT], settings=CompanionSettings())) == (False, "SwitchedOff")


# --- what is remembered of the writes


def tried(case: Context, result: ActionResult, seconds: float) -> Context:
    """So long after the first planned write ended so."""
    return replace(case, state=State().tried(deletion_cost.plan(case)[0], result, NOW), now=NOW + seconds)


def test_a_cost_whose_write_conflicts_is_left_alone_for_ten_minutes_and_then_forgotten() -> None:
    case = context([SERVES, IS_OUT, out("web-2")])
    before, after = (tried(case, ActionResult.OVERTAKEN, seconds) for seconds in (599, 600))
    assert (planned(before), shown(before)) == ({"web-2": True}, FOREIGN)
    assert planned(after) == {"web-1": True, "web-2": True}


@pytest.mark.parametrize(
    "pods", [[SERVES, IS_OUT], [SERVES, left_marked("web-1")]], ids=["taken away", "not the companion's"]
)
def test_a_mark_without_effect_is_not_written_again_for_ten_minutes(pods: list[Pod]) -> None:
    case = context(pods)
    assert planned(tried(case, ActionResult.DONE, 599)) == {}
    assert planned(tried(case, ActionResult.DONE, 600)) == planned(case)


def test_a_missing_right_is_shown_until_a_pod_was_marked() -> None:
    case = context([SERVES, IS_OUT])
    assert shown(tried(case, ActionResult.REFUSED, 0)) == (False, "Forbidden")
    assert shown(tried(case, ActionResult.DONE, 0)) == (False, "Marking")
