"""Conditions that users should know of: zeros that are not believed, long windows, and doubt that lasts."""

from dataclasses import replace

import pytest

from adapter.load.explanation import decision_reason
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import PodState
from adapter.load.spec import Query
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, pod, policy, roster, same, usage

RPS = replace(cpu("1200m", "400m"), name="rps", resource="", query=Query(name="rps"))


@pytest.mark.parametrize("is_accepted", [None, True])
def test_a_usage_of_exactly_0_that_is_ignored_is_named(is_accepted: bool | None) -> None:
    pods, loads = same(3, "0")
    assessment, decision = assess_and_decide(policy(accept_zero_usage=is_accepted), pods, usage(loads))
    is_named = "a load of exactly 0 is ignored and holds the count" in decision_reason(assessment, decision)
    assert is_named is ("ZeroUsageIgnored" in assessment.conditions) is (is_accepted is None)


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
