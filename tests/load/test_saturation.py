"""Pods that use their CPU limit are throttled: the load is more than their samples show."""

import pytest

from adapter.load.assessment import Decision
from adapter.load.explanation import decision_reason
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from tests.load.kit import assess_and_decide, cpu, pod, policy, usage

LIMITS = {"cpu": "1500m"}


def limited(count: int, limit: dict[str, str] | None = None) -> list[Pod]:
    return [pod(f"web-{index}", limits=LIMITS if limit is None else limit) for index in range(count)]


def asked(rule: Policy, load: str, pods: list[Pod] | None = None, missing: int = 0) -> Decision:
    pods = pods or limited(10)
    loads: dict[str, str | int | None] = {one.name: load for one in pods}
    loads |= {one.name: None for one in pods[len(pods) - missing :]}
    return assess_and_decide(rule, pods, usage(loads))[1]


@pytest.mark.parametrize(("load", "desired"), [("1455m", 13), ("1454999999n", 10)])  # 97 % of 1500m
def test_pods_at_97_percent_of_their_limit_are_above_whatever_the_watermark(load: str, desired: int) -> None:
    assert asked(policy(cpu("2", "400m")), load).desired == desired
    assert asked(policy(cpu("1500m", "400m")), load).desired == desired


def test_it_says_so() -> None:
    pods = limited(10)
    samples = usage(dict.fromkeys((one.name for one in pods), "1480m"))
    assessment, decision = assess_and_decide(policy(cpu("2", "400m")), pods, samples)
    reason = "cpu: 10 pods use 1480m on average, and 98.6% of their limit: the load is more than it shows"
    assert decision_reason(assessment, decision) == reason
