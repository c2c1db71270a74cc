"""Conditions that users should know of: zeros that are not believed, long windows, and doubt that lasts."""

from dataclasses import replace

import pytest

from adapter.load.explanation import decision_reason
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.spec import Query
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, pod, policy, roster, same, usage

RPS = replace(cpu("1200m", "400m"), name="rps", resource="", query=Query(name="rps"))


@pytest.mark.parametrize("is_accepted", [None, True])
def test_a_usage_of_exactly_0_that_is_ignored_is_named(is_accepted: bool | None) -> None:
    pods, loads = same(3, "0")
    assessment, decision = assess_and_decide(policy(accept_zero_usage=is_accepted), pods, usage(loads))
    is_named = "a load of exactly 0 is ignored and holds the count" in decision_reason(assessment, decision)
    assert is_named is ("ZeroUsageIgnored" in assessment.conditions) is (is_accepted is None)


class TestUndersized:
    """A Deployment without room for its pods does not grow, whatever count is asked for."""

    def told(self, *others: Pod, load: str = "1800m") -> str | None:
        """Three overloaded pods and these."""
        pods, loads = same(3, load)
        assessment, _ = assess_and_decide(policy(), [*pods, *others], usage(loads))
        return assessment.conditions.get("UnreadyPodsFillReplicas")

    def pending(self, name: str, age: float, waits_for: str = "") -> Pod:
        return pod(name, age=age, ready=False, ready_for=age, phase="Pending", started_at=None, waits_for=waits_for)

    def test_pods_that_never_start_are_named_with_the_schedulers_reason(self) -> None:
        stuck = [self.pending(name, 7200, "0/3 nodes are available: insufficient cpu") for name in ("a", "b")]
        assert self.told(*stuck) == (
            "5 serving pods are needed, 3 serve, and 2 pods in the count did not start or turn Ready within 5 min "
            "(0/3 nodes are available: insufficient cpu)"
        )
        assert self.told(*stuck, load="1200m") is None

    def test_pods_may_start_for_300_s(self) -> None:
        assert self.told(self.pending("a", 299), self.pending("b", 299)) is None
        one = "5 serving pods are needed, 3 serve, and 1 pod in the count did not start or turn Ready within 5 min"
        assert self.told(self.pending("a", 299), self.pending("b", 301)) == one
        assert self.told(self.pending("a", 299), pod("ill", ready=False, ready_for=301)) == one


class TestDoubt:
    """A service moved to another registry holds a too large count for ever, and the registry answers well."""

    def told(self, memory: Memory, *listed: str, **changes: object) -> str | None:
        """Ten pods of little load, of which the registry lists these addresses."""
        pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(10)]
        rule = policy(cpu("1200m", "400m"), registry=REGISTRY, **changes)
        samples = usage({one.name: "100m" for one in pods})
        assessment, _ = assess_and_decide(rule, pods, samples, memory=memory, listed=roster(*listed))
        return assessment.conditions.get("RegistryDataValid")

    def doubtful(self, seconds: float, *names: str) -> Memory:
        """So many seconds in doubt."""
        return Memory(pods={f"uid-{name}": PodMemory(PodState.DOUBTFUL, NOW - seconds) for name in names})

    def test_after_15_minutes_a_condition_names_the_pods_and_the_field(self) -> None:
        others = [f"10.0.0.{index}" for index in range(2, 10)]
        assert self.told(self.doubtful(899, "web-0", "web-1"), *others) is None
        assert self.told(self.doubtful(900, "web-0", "web-1"), *others) == (
            "web-0, web-1 are kept in the count, in doubt for over 15 min: never registered; "
            "check registry.service, register these pods again or replace them"
        )
