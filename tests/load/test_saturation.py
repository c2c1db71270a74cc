"""Pods that use their CPU limit are throttled: the load is more than their samples show."""

import pytest

from adapter.load.assessment import Verdict
from adapter.load.explanation import decision_reason
from tests.load.kit import assess_and_decide, cpu, pod, policy, usage

PODS = [pod(f"web-{index}", limits={"cpu": "1500m"}) for index in range(10)]


@pytest.mark.parametrize("high", ["2", "1500m"])
@pytest.mark.parametrize(("load", "desired"), [("1455m", 13), ("1454999999n", 10)])  # 97 % of 1500m
def test_pods_at_97_percent_of_their_limit_are_above_whatever_the_watermark(load: str, desired: int, high: str) -> None:
    samples = usage(dict.fromkeys((one.name for one in PODS), load))
    assessment, decision = assess_and_decide(policy(cpu(high, "400m")), PODS, samples)
    assert decision.desired == desired
    told = "of their limit: the load is more than it shows" in decision_reason(assessment, decision)
    assert told is (desired == 13)


@pytest.mark.parametrize("idle", ["100m", None])
def test_a_lost_sample_of_an_idle_pod_saturates_nothing(idle: str | None) -> None:
    """Nine at their limits and one at 100m ask for no more; nor may they once its sample is missing."""
    loads: dict[str, str | int | None] = dict.fromkeys((one.name for one in PODS), "1500m")
    _, decision = assess_and_decide(policy(cpu("1500m", "400m")), PODS, usage(loads | {"web-9": idle}))
    assert (decision.desired, decision.verdict) == (10, Verdict.INSIDE)
