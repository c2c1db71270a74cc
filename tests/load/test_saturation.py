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


def test_a_pod_without_a_sample_dilutes_it() -> None:
    loads: dict[str, str | int | None] = dict.fromkeys((one.name for one in PODS), "1500m")
    _, decision = assess_and_decide(policy(cpu("2", "400m")), PODS, usage(loads | {"web-9": None}))
    assert (decision.desired, decision.verdict) == (10, Verdict.INSIDE)
