"""A migrated pair asks for the counts of its original, sync by sync, where all pods serve."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from adapter.load.memory import Memory
from adapter.load.samples import Samples
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.load.kit import NOW, assess_and_decide, pod, total, usage
from tests.migrate.kit import Object, hpa, pair, prometheus, resource, scaled, wpa

STEP = 600
"""Seconds between two syncs: longer than every cooldown here, so that only the rule decides."""
LOADS = {
    "a rise and a fall": [900, 1500, 3200, 3200, 5000, 5000, 3000, 1500, 800, 800, 800],
    "around the tolerance": [1000, 1099, 1101, 1320, 1322, 1100, 1079, 990, 989, 2000],
    "a spike": [1000, 15000, 15000, 15000, 1000, 1000, 1000, 100, 100],
}
"""The load of the whole service, in thousandths."""
Rule = Callable[[int, int], int]


def by_target(target: int) -> Rule:
    """The HPA's rule, for a target in thousandths: the tolerance is 10 %, and the count is rounded up."""

    def rule(count: int, load: int) -> int:
        ratio = Fraction(load, count * target)
        return count if abs(ratio - 1) <= Fraction(1, 10) else math.ceil(count * ratio)

    return rule


def by_watermarks(count: int, load: int) -> int:
    """The WatermarkPodAutoscaler's, from 400m to 800m with 1 %: at most half more, and a fifth less."""
    average = Fraction(load, count)
    if average > 808:
        return min(math.ceil(Fraction(load, 800)), count + max(1, count // 2))
    if average < 396:
        return max(load // 400, count - max(1, count // 5))
    return count


CASES: dict[str, tuple[Object, Rule]] = {
    "hpa on requests": (hpa(resource(averageUtilization=50)), by_target(100)),
    "hpa on cores": (hpa(resource(averageValue="100m")), by_target(100)),
    "keda by prometheus": (scaled(prometheus(threshold="0.1")), by_target(100)),
    "keda on cpu": (scaled({"type": "cpu", "metadata": {"value": "50"}}), by_target(100)),
    "wpa": (wpa(), by_watermarks),
}


def migrated_counts(original: Object, loads: Sequence[int]) -> list[int]:
    """The counts of the pair, by the functions of the server."""
    written, new = pair(original).objects
    policy, bounds = parse_policy(written), parse_hpa(new).bounds
    memory, current, counts = Memory(), 2, list[int]()
    born = dict.fromkeys(("web-0", "web-1"), NOW - 3600)
    for number, load in enumerate(loads):
        # The server sees a change of the count soon after it was made.
        for now in (NOW + number * STEP, NOW + (number + 1) * STEP - 30):
            for name in list(born)[current:]:
                del born[name]
            born |= {f"web-{number}-{index}": now + 5 for index in range(current - len(born))}
            share = math.floor(Fraction(load * 10**6, current))
            samples: Samples = usage(dict.fromkeys(born, f"{share}n"), at=now - 10)
            if policy.metrics[0].query:
                samples = total(f"{load}m", policy.metrics[0].name, now - 10)
            pods = [
                pod(name, age=now - since, ready_for=now - since, now=now, requests={"cpu": "200m"})
                for name, since in born.items()
            ]
            assessment, decision = assess_and_decide(policy, pods, samples, memory=memory, bounds=bounds, now=now)
            memory = assessment.memory
        assert decision.desired is not None, decision.error
        current = decision.desired
        counts.append(current)
    return counts


@pytest.mark.parametrize("scenario", LOADS)
@pytest.mark.parametrize("source", CASES)
def test_a_pair_and_its_original_ask_for_equal_counts(source: str, scenario: str) -> None:
    original, rule = CASES[source]
    current, expected = 2, []
    for load in LOADS[scenario]:
        current = min(20, max(2, rule(current, load)))
        expected.append(current)
    assert len(set(expected)) > 1
    assert migrated_counts(original, LOADS[scenario]) == expected
