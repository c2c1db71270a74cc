"""Pulled-out pods need no place in the count where they are certainly deleted first."""

from dataclasses import replace

import pytest

from adapter.load.pods import Owner, Pod
from adapter.load.spec import Policy, PulledOut, Target
from tests.load.kit import TARGET, assess_and_decide, cpu, out, pod, policy, usage

LOWEST = -(2**31)
FIRST = replace(policy(cpu("1200m", "400m")), pulled_out=PulledOut(replace_after=0, delete_first=True))


def desired(*changed: Pod, rule: Policy = FIRST, target: Target | None = TARGET, cost: int = LOWEST) -> int | None:
    """The count asked for of 10 pods at 300m, four of them out and marked; the changed stand in for those they name."""
    pods = {f"web-{n}": pod(f"web-{n}") for n in range(6)}
    pods |= {f"out-{n}": out(f"out-{n}", deletion_cost=cost) for n in range(4)}
    pods |= {one.name: one for one in changed}
    _, decision = assess_and_decide(rule, list(pods.values()), usage(dict.fromkeys(pods, "300m")), target=target)
    return decision.desired


def test_marked_pods_leave_the_count() -> None:
    assert desired() == 4


def test_without_the_switch_they_are_kept() -> None:
    assert desired(rule=policy(cpu("1200m", "400m"))) == 8


@pytest.mark.parametrize("cost", [0, 5])
def test_pods_that_are_not_marked_are_kept(cost: int) -> None:
    assert desired(cost=cost) == 8


def test_one_unmarked_pod_keeps_all() -> None:
    assert desired(out("out-0")) == 8


def test_a_serving_pod_as_cheap_keeps_all() -> None:
    assert desired(pod("web-0", deletion_cost=LOWEST)) == 8


def test_a_cheaper_pod_that_is_on_its_way_out_does_not_matter() -> None:
    assert desired(pod("web-6", deletion_cost=LOWEST, deleting=True)) == 4


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_a_deployments_pods_are_counted_on_to_go_first(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    names = [*(f"web-{n}" for n in range(6)), *(f"out-{n}" for n in range(4))]
    made = [replace(out(n, deletion_cost=LOWEST) if n.startswith("out") else pod(n), owner=owner) for n in names]
    assert desired(*made, target=replace(TARGET, kind=kind)) == 8


def test_a_second_replica_set_that_has_a_pod_keeps_all() -> None:
    other = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")
    assert desired(other) == 8


def test_an_unknown_target_keeps_all() -> None:
    assert desired(target=None) == 8
