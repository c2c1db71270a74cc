"""The real HPA's own pace: the model of its scale-up budget holds, and it removes one pod at a time."""

from itertools import pairwise

from adapter.policy.behavior import ReplicaChange, highest_allowed
from adapter.policy.hpa import ScalingPolicy, ScalingRules
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.course import Course, Numbers
from tests.e2e.kit import query_watermarks

UP_SECONDS, DOWN_SECONDS, WINDOW = 6, 3, 4
UP = ScalingRules(policies=(ScalingPolicy("Percent", 900, UP_SECONDS),))
SEEN = 1.0
"""The delay of an observation on a busy machine, in seconds."""
BEHAVIOR = {
    "scaleUp": {
        "tolerance": "0",
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 900, "periodSeconds": UP_SECONDS}],
    },
    "scaleDown": {
        "tolerance": "0",
        "stabilizationWindowSeconds": WINDOW,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": DOWN_SECONDS}],
    },
}


def test_one_to_thirteen_is_ten_at_once_as_the_model_says_and_back_goes_a_pod_at_a_time(
    make_adapter: MakeAdapter, workloads: Workloads
) -> None:
    with Numbers() as numbers:
        make_adapter(numbers.settings())
        numbers.set("web", 50)
        workloads.deployment("web", 1)
        workloads.policy("web", [query_watermarks("queue", "100", "60")])
        workloads.hpa("web", behavior=BEHAVIOR)
        workloads.wait_condition("web", "ScalingActive")
        with Course(workloads) as course:
            numbers.set("web", 1250)
            until(lambda: course.counts("web")[-1] == 13, 120, lambda: str(course.counts("web")))
            (_, one), (first, ten), (second, thirteen) = course.steps["web"]
            assert ten == highest_allowed(one, UP, [], first) == 10
            made = [ReplicaChange(first, ten - one)]
            assert highest_allowed(ten, UP, made, first + UP_SECONDS - SEEN) == ten
            assert min(thirteen, highest_allowed(ten, UP, made, second + SEEN)) == thirteen
            assert UP_SECONDS - SEEN <= second - first < 2 * UP_SECONDS
            changed = numbers.set("web", 660)  # 13 are too many, 11 are right
            until(lambda: course.counts("web")[-1] == 11, 120, lambda: str(course.counts("web")))
            falls = course.steps["web"][3:]
    assert [count for _, count in falls] == [12, 11]
    # The window counts from the last sync with a recommendation of 13.
    assert falls[0][0] - changed >= WINDOW - workloads.cluster.hpa_sync - SEEN
    assert all(after - before >= DOWN_SECONDS - SEEN for (before, _), (after, _) in pairwise(falls))
