"""What is done before the HPA and the ReplicaSet controller: counts are raised, and pulled-out pods deleted first."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.companion import companion, deletion_cost, fast_scale_up
from adapter.companion.changes import ReplicaHistory
from adapter.companion.state import ActionResult, Condition, Context, State, Write
from adapter.kube.api import JSON_PATCH
from adapter.load.pods import LOWEST_COST, Owner, Pod
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy, PulledOut, Seconds
from adapter.policy import hpa as hpas
from adapter.settings import CompanionFeatures, CompanionSettings
from tests.companion import kit
from tests.companion.kit import DESIRED, FREE, hpa
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, out, pod, policy

ON = CompanionFeatures(fast_scale_up=True, deletion_cost=True)
SWITCHED_ON, SLOW = CompanionSettings(features=ON), CompanionSettings(features=ON, hpa_sync_seconds=30)


def seen(found: Condition | None) -> tuple[bool, str] | None:
    return (found.is_true, found.reason) if found else None


# --- a count is raised where the HPA's next sync will agree, and no further than it might go itself

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)
EXTERNAL = replace(DESIRED, kind="External", described=None, match_labels={"policy": "web"})
OTHER = hpas.CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "other")
CPU = hpas.HpaMetric(kind="Resource", name="cpu", target="Utilization", aim=70)
LONG_AGO = NOW - 3600.0


def rising(
    load: str = "2400m", *, rule: Policy = FAST, above: hpas.Hpa | None = None, since: float = LONG_AGO, **changes: Any
) -> Context:
    """Four pods that each carry twice what they should: eight are wanted. The count has not risen since then."""
    followed = above or hpa()
    state = State().having(ReplicaHistory(target="target", since=since, replicas=4))
    given = {"hpa": followed, "settings": SWITCHED_ON, "state": state, "scale_path": PATH}
    return kit.context(load, pods=4, rule=rule, bounds=followed.bounds, **(given | changes))


def raised_to(case: Context) -> int | None:
    """The count that it is raised to, None where it is left to the HPA."""
    return next((int(write.body[-1]["value"]) for write in fast_scale_up.plan(case)), None)


def fast(case: Context) -> tuple[bool, str] | None:
    """Whether its condition is true, and why; None without a condition."""
    return seen(fast_scale_up.condition(case))


def bounded(minimum: int, maximum: int, tolerance: str = "0") -> Bounds:
    return Bounds(minimum=minimum, maximum=maximum, tolerance=HpaTolerance(Fraction(tolerance), Fraction(0)))


def test_the_count_is_raised_to_what_is_decided_before_anything_else() -> None:
    first = next(companion.writes(rising(), urgent=True))
    assert (first.kind, first.method, first.path, first.content_type) == ("RaiseScale", "PATCH", PATH, JSON_PATCH)
    assert first.body == [
        {"op": "test", "path": "/metadata/uid", "value": "target"},
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "add", "path": "/spec/replicas", "value": 8},
    ]
    assert fast(rising()) == (True, "Ready")


def test_it_is_off_by_default_and_only_a_policy_that_asks_for_it_says_so() -> None:
    case = rising(settings=CompanionSettings())
    assert (list(companion.writes(case, urgent=True)), fast(case)) == ([], (False, "SwitchedOff"))
    case = rising(rule=replace(FAST, fast_scale_up=False))
    assert (raised_to(case), fast(case)) == (None, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"load": "800m"}, None, id="a count is never kept"),
        pytest.param(
            {"rule": replace(FAST, metrics=(cpu("1200m", "400m", delay=Seconds(up=60)),))}, None,
            id="a metric waits for its delay",
        ),
        pytest.param({"hpa": None}, None, id="there is no HPA"),
        pytest.param({"above": hpa(scaling_active=hpas.ScalingActive("False"))}, None, id="the HPA does not act"),
        pytest.param({"above": hpa(bounds=bounded(1, 6))}, 6, id="the HPA's maximum is not exceeded"),
        pytest.param({"above": hpa(bounds=bounded(5, 100))}, None, id="a count below the HPA's minimum is left to it"),
        pytest.param({"above": hpa(bounds=bounded(1, 3))}, None, id="and one above its maximum"),
        pytest.param({"above": hpa(metrics=(EXTERNAL,))}, 8, id="the HPA may follow by an External metric"),
        pytest.param({"state": State()}, None, id="a count that was never watched is left to the HPA"),
        pytest.param({"since": NOW - 14.9}, None, id="a count that rose, or was first seen, lately"),
        pytest.param({"since": NOW - 15}, 8, id="has risen 15 s ago"),
        pytest.param({"since": NOW - 15, "settings": SLOW}, None, id="or in the sync period of the settings"),
        pytest.param({"since": NOW - 30, "settings": SLOW}, 8, id="which may be 30 s"),
        pytest.param({"since": NOW + 3600}, 8, id="but not for an hour"),
        *(
            pytest.param({"rule": replace(FAST, **rest), "decision": rising().decision}, None, id=f"at rest: {rest}")
            for rest in ({"mode": Mode.OBSERVE}, {"mode": Mode.PAUSED}, {"hold_until": NOW + 60})
        ),
    ],
)  # fmt: skip
def test_a_count_is_raised_where_the_hpa_will_agree(changes: dict[str, Any], expected: int | None) -> None:
    assert raised_to(rising(**changes)) == expected


@pytest.mark.parametrize(
    ("above", "reason"),
    [
        *(
            pytest.param(hpa(metrics=(metric,)), "NotFollowed", id=sentence)
            for sentence, metric in {
                "another policy's count": replace(DESIRED, described=OTHER),
                "another policy's External metric": replace(EXTERNAL, match_labels={"policy": "other"}),
                "another metric of the policy": replace(DESIRED, name="effective_cpu"),
                "the count as a Value": replace(DESIRED, target="Value"),
                "the pods' cpu": CPU,
            }.items()
        ),
        (hpa(msgspec.structs.replace(FREE, stabilization=1)), "ScaleUpStabilized"),
        (hpa(msgspec.structs.replace(FREE, select="Disabled")), "ScaleUpDisabled"),
        *((hpa(bounds=bounded(1, 100, tolerance)), "Tolerance") for tolerance in ("0.1", "0.01")),
        *((hpa(bounds=bounded(1, 100, tolerance)), "Ready") for tolerance in ("0.0099", "0")),
    ],
)
def test_an_hpa_that_would_not_agree_is_left_alone_and_the_condition_says_why(above: hpas.Hpa, reason: str) -> None:
    assert fast(rising(above=above)) == (reason == "Ready", reason)
    assert raised_to(rising(above=above)) == (8 if reason == "Ready" else None)


PODS = (hpas.ScalingPolicy("Pods", 3, 60),)


@pytest.mark.parametrize(
    ("policies", "since", "expected"),
    [
        (PODS, NOW - 61, 7),
        pytest.param(PODS, NOW - 60, None, id="a rise within the period may have used it up"),
        pytest.param((*PODS, hpas.ScalingPolicy("Pods", 1, 15)), NOW - 60, None, id="the longest period counts"),
        pytest.param((), NOW - 15, 8, id="without any behavior it may double"),
    ],
)
def test_the_hpas_policies_limit_it(
    policies: tuple[hpas.ScalingPolicy, ...], since: float, expected: int | None
) -> None:
    assert raised_to(rising(above=hpa(msgspec.structs.replace(FREE, policies=policies)), since=since)) == expected


# --- pulled-out pods are marked to be deleted first, and only what the companion set itself is taken away again

FIRST = replace(policy(cpu("1200m", "400m")), pulled_out=PulledOut(delete_first=True))


def marked(name: str, cost: int = LOWEST_COST) -> Pod:
    return out(name, deletion_cost=cost, marked=True)


def left_marked(name: str) -> Pod:
    """A pod that serves, and still bears the mark."""
    return pod(name, deletion_cost=LOWEST_COST, marked=True)


def pulled(pods: list[Pod], rule: Policy = FIRST, **changes: Any) -> Context:
    return kit.context(pods=pods, rule=rule, **({"settings": SWITCHED_ON} | changes))


def planned(case: Context) -> dict[str, bool]:
    """Which pods are written for: True where they are marked, False where unmarked."""
    return {one.body["metadata"]["name"]: one.body["metadata"]["annotations"] != {} for one in deletion_cost.plan(case)}


def cost(case: Context) -> tuple[bool, str] | None:
    """Whether its condition is true, and why; None without a condition."""
    return seen(deletion_cost.condition(case))


SERVES, IS_OUT, IS_MARKED = pod("web-0"), out("web-1"), marked("web-2")
FOREIGN = (False, "ForeignCost")


def test_a_pod_that_was_pulled_out_is_marked_by_name_and_uid() -> None:
    (write,) = deletion_cost.plan(pulled([SERVES, IS_OUT]))
    assert (write.path, write.body["metadata"]["uid"]) == ("/api/v1/namespaces/shop/pods/web-1", "uid-web-1")
    assert write.body["metadata"]["annotations"] == {
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
        "effective-load.io/deletion-cost-set": "true",
    }


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
        *(
            pytest.param({}, [SERVES, out("web-1", deletion_cost=n)], {}, FOREIGN, id=f"a foreign {n} stays")
            for n in (5, -1, LOWEST_COST + 1)
        ),
        pytest.param(
            {}, [SERVES, out("web-1", deletion_cost=LOWEST_COST)], {}, (True, "Marked"),
            id="the lowest cost set by another client counts as marked",
        ),
        *(
            pytest.param({}, [SERVES, marked("web-1", n)], {}, FOREIGN, id=f"a mark that {n} replaced stays so")
            for n in (0, 5)
        ),
    ],
)  # fmt: skip
def test_pods_that_are_out_are_marked_and_others_unmarked(
    changes: dict[str, Any], pods: list[Pod], writes: dict[str, bool], condition: tuple[bool, str] | None
) -> None:
    case = pulled(pods, replace(FIRST, **changes))
    assert (planned(case), cost(case)) == (writes, condition)


def test_at_most_ten_pods_are_written_to_between_two_looks() -> None:
    assert len(planned(pulled([pod(f"web-{n}") for n in range(30)] + [out(f"out-{n}") for n in range(25)]))) == 10


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_pods_of_a_deployment_are_marked(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    case = pulled([replace(one, owner=owner) for one in (SERVES, IS_OUT)], target=replace(TARGET, kind=kind))
    assert (planned(case), cost(case)) == ({}, (False, "NoDeployment"))


def test_a_policy_that_asks_for_marks_while_the_feature_is_off_says_so() -> None:
    assert cost(pulled([SERVES, IS_OUT], settings=CompanionSettings())) == (False, "SwitchedOff")


def tried(case: Context, result: ActionResult, seconds: float) -> Context:
    """So long after the first planned write ended so."""
    first: Write = deletion_cost.plan(case)[0]
    return replace(case, state=State().tried(first, result, NOW), now=NOW + seconds)


def test_a_cost_whose_write_conflicts_is_left_alone_for_ten_minutes_and_then_forgotten() -> None:
    case = pulled([SERVES, IS_OUT, out("web-2")])
    before, after = (tried(case, ActionResult.OVERTAKEN, seconds) for seconds in (599, 600))
    assert (planned(before), cost(before)) == ({"web-2": True}, FOREIGN)
    assert planned(after) == {"web-1": True, "web-2": True}


@pytest.mark.parametrize(
    "pods", [[SERVES, IS_OUT], [SERVES, left_marked("web-1")]], ids=["taken away", "not the companion's"]
)
def test_a_mark_without_effect_is_not_written_again_for_ten_minutes(pods: list[Pod]) -> None:
    case = pulled(pods)
    assert planned(tried(case, ActionResult.DONE, 599)) == {}
    assert planned(tried(case, ActionResult.DONE, 600)) == planned(case)


def test_a_missing_right_to_patch_pods_is_shown_until_a_pod_was_marked() -> None:
    case = pulled([SERVES, IS_OUT])
    assert cost(tried(case, ActionResult.REFUSED, 0)) == (False, "Forbidden")
    assert cost(tried(case, ActionResult.DONE, 0)) == (False, "Marking")
