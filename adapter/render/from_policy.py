"""The HPA that fits a policy: its metric, bounds, behavior, and what is unwise about the pair."""

import math
from collections.abc import Mapping
from typing import Any

from adapter.load.spec import Bounds, Policy, Strategy
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import CrossVersionReference, parse_hpa
from adapter.policy.hpa_manifest import DOWN_WINDOW, following_behavior, hpa_manifest


def fewest_replicas(policy: Policy) -> int:
    """The least minReplicas with which no metric's watermarks flap; of strategy Step its `minPods`, at least 1."""
    least = policy.step.min_pods if policy.strategy is Strategy.STEP else 1
    for metric in policy.metrics:
        if metric.high is not None and metric.low is not None and metric.low < metric.high:
            least = max(least, math.ceil(metric.low / (metric.high - metric.low)))
    return max(1, least)


def most_replicas(policy: Policy) -> int | None:
    """The largest maximum of the policy's schedules; None where it names none."""
    return max((one.maximum for one in policy.schedules if one.maximum is not None), default=None)


def hpa_of(
    policy: Policy, metadata: Mapping[str, Any], target: CrossVersionReference, bounds: Bounds
) -> dict[str, Any]:
    """The manifest of the policy's HPA. On the way down it waits as the stock HPA does, unless strategy Step waits."""
    waits = policy.strategy is Strategy.STEP and policy.cooldown.down
    manifest = hpa_manifest(metadata, policy.name, target, bounds, {})
    behavior = following_behavior(policy, manifest, down_window=0 if waits else DOWN_WINDOW)
    return hpa_manifest(metadata, policy.name, target, bounds, behavior)


def remarks(policy: Policy, manifest: Mapping[str, Any]) -> list[str]:
    """What is unwise about a policy with this HPA, a sentence each."""
    return [one.message for one in flaws(Wiring(policy=policy, hpa=parse_hpa(manifest), has_tolerance=True))]
