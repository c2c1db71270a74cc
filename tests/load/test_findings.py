"""Conditions that users should know of: zeros that are not believed, long windows, and doubt that lasts."""

from dataclasses import replace

import pytest

from adapter.load.explanation import Finding, decision_reason
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Query
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, nano, pod, policy, roster, same, usage

RPS = replace(cpu("1200m", "400m"), name="rps", resource="", query=Query(name="rps"))


def test_a_usage_of_exactly_0_says_that_it_is_not_believed() -> None:
    pods, loads = same(3, "0")
    assessment, decision = assess_and_decide(policy(), pods, usage(loads))
    assert decision_reason(assessment, decision) == (
        "cpu: 3 pods use 0 on average; a load of exactly 0 is ignored and holds the count (acceptZeroUsage: true)"
    )
    assessment, decision = assess_and_decide(policy(accept_zero_usage=True), pods, usage(loads))
    assert "ignored" not in decision_reason(assessment, decision)


def test_after_10_minutes_a_condition_says_so_until_there_is_load() -> None:
    pods, zeros = same(3, "0")
    memory = Memory()
    found = []
    for later, loads in ((0, zeros), (300, zeros), (600, zeros), (601, zeros), (620, dict.fromkeys(zeros, "1"))):
        samples = usage(loads, at=NOW + later - 5)
        assessment, _ = assess_and_decide(policy(), pods, samples, memory=memory, now=NOW + later)
        memory = assessment.memory
        found.append(Finding.ZERO_USAGE_IGNORED in assessment.conditions)
    assert found == [False, False, False, True, False]
    assert memory.zero_since is None


@pytest.mark.parametrize(("window", "is_slow"), [(300.0, False), (301.0, True)])
def test_a_window_over_5_minutes_is_named_slow(window: float, is_slow: bool) -> None:
    points = {"web-0": Point(NOW - 5, nano("1"))}
    samples = Samples(queries={"rps": QuerySamples(pods=points, window=window, fetched_at=NOW)})
    assessment, _ = assess_and_decide(policy(RPS), [pod()], samples)
    assert (Finding.QUERY_WINDOW_TOO_LONG in assessment.conditions) is is_slow


class TestUndersized:
    def told(self, *others: Pod, load: str = "1800m") -> str | None:
        """Three overloaded pods and these."""
        pods, loads = same(3, load)
        assessment, _ = assess_and_decide(policy(), [*pods, *others], usage(loads))
        return assessment.conditions.get(Finding.UNREADY_PODS_FILL_REPLICAS)

    def pending(self, name: str, age: float, **changes: object) -> Pod:
        return pod(name, age=age, ready=False, ready_for=age, phase="Pending", started_at=None, **changes)

    def test_pods_that_never_start_are_named_with_the_schedulers_reason(self) -> None:
        stuck = [self.pending(f"new-{i}", 7200, waits_for="0/3 nodes are available: insufficient cpu") for i in (1, 2)]
        assert self.told(*stuck) == (
            "5 serving pods are needed, 3 serve, and 2 have not started for more than 5 min: "
            "0/3 nodes are available: insufficient cpu"
        )
        assert self.told(*stuck, load="1200m") is None

    def test_a_pod_starts_for_300_s(self) -> None:
        assert self.told(self.pending("a", 299), self.pending("b", 299)) is None
        assert self.told(self.pending("a", 299), self.pending("b", 301)) == (
            "5 serving pods are needed, 4 serve or start, and 1 has not started for more than 5 min"
        )

    def test_unready_and_stuck_pods_are_told_together(self) -> None:
        ill = pod("ill", ready=False, ready_for=900)
        assert self.told(ill, self.pending("a", 700)) == (
            "5 serving pods are needed, 3 serve, 1 unready pod fills the count, "
            "and 1 has not started for more than 5 min"
        )


class TestDoubt:
    """A service moved to another registry holds a too large count for ever, and the registry answers well."""

    def told(self, memory: Memory, *listed: str, **changes: object) -> str | None:
        """Ten pods of little load, of which the registry lists these addresses."""
        pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(10)]
        rule = policy(cpu("1200m", "400m"), registry=REGISTRY, **changes)
        samples = usage({one.name: "100m" for one in pods})
        assessment, _ = assess_and_decide(rule, pods, samples, memory=memory, listed=roster(*listed))
        return assessment.conditions.get(Finding.REGISTRY_DATA_VALID)

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
