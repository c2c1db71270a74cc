"""Pulled-out pods need no place in the count where they are certainly deleted first."""

from dataclasses import replace

import pytest

from adapter.load.pods import Owner, Pod
from adapter.load.spec import Policy, PulledOut, Target
from tests.load.kit import TARGET, assess_and_decide, cpu, out, pod, policy, usage

LOWEST = -(2**31)
FIRST = replace(policy(cpu("1200m", "400m")), pulled_out=PulledOut(replace_after=0, delete_first=True))


OTHER_SET = pod("web-0", owner=Owner("ReplicaSet", "web-xyz"), template_hash="xyz")


def desired(*changed: Pod, rule: Policy = FIRST, target: Target | None = TARGET, cost: int = LOWEST) -> int | None:
    """The count asked for of 10 pods at 300m, four of them out and marked; the changed stand in for those they name."""
    pods = {f"web-{n}": pod(f"web-{n}") for n in range(6)}
    pods |= {f"out-{n}": out(f"out-{n}", deletion_cost=cost) for n in range(4)}
    pods |= {one.name: one for one in changed}
    _, decision = assess_and_decide(
        rule,
        list(pods.values()),
        usage({name: "0" if name.startswith("out") else "300m" for name in pods}),
        target=target,
    )
    return decision.desired


def test_pods_leave_the_count_where_they_are_certainly_deleted_first() -> None:
    assert desired() == desired(rule=policy(cpu("1200m", "400m"))) == 4
    assert desired(pod("web-6", deletion_cost=LOWEST, deleting=True)) == 4
    assert desired(cost=0) == desired(cost=5) == desired(out("out-0")) == desired(target=None) == 8
    assert desired(pod("web-0", deletion_cost=LOWEST)) == desired(OTHER_SET) == 8


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "Rollout"])
def test_only_a_deployments_pods_are_counted_on_to_go_first(kind: str) -> None:
    owner = Owner(kind, "web", "target")
    names = [*(f"web-{n}" for n in range(6)), *(f"out-{n}" for n in range(4))]
    made = [replace(out(n, deletion_cost=LOWEST) if n.startswith("out") else pod(n), owner=owner) for n in names]
    assert desired(*made, target=replace(TARGET, kind=kind)) == 8
