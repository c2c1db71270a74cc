"""Defects of the WatermarkPodAutoscaler (as of April 2026) that a service which comes from it must not meet again.

That its pod informer ignores the watched namespaces is the subject of `tests/e2e/test_namespaces.py`, where the rights
in those namespaces suffice.
"""

import re

import pytest

from adapter.evaluation.policy_metrics import policy_rows
from adapter.hpa.controller import Controller
from adapter.load.pods import Pod
from adapter.load.samples import Samples
from adapter.load.spec import Bounds
from adapter.policy.behavior import count_metric
from adapter.policy.field_reader import PolicyError
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.snapshot import Snapshot
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY, Leader, context
from tests.load.kit import NOW, assess_and_decide, policy, same, usage


class TestThePolicy:
    @pytest.mark.parametrize("metrics", [[], None])
    def test_a_policy_without_metrics_is_refused_instead_of_shrinking_to_the_minimum(self, metrics: object) -> None:
        with pytest.raises(PolicyError, match="a policy needs a metric"):
            parse_policy({"metadata": {"name": "web"}, "spec": {"metrics": metrics}})

    def test_a_failing_metric_does_not_keep_the_count_out_of_bounds(self) -> None:
        _, decision = assess_and_decide(policy(), *_loaded(9, None), bounds=Bounds(maximum=4))
        assert decision.error is not None
        hpa = {
            "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 4,
                "metrics": [count_metric("web")],
            },
        }  # fmt: skip
        assert Controller(parse_hpa(hpa)).sync(NOW, 9, [decision.error], ()).replicas == 4


class TestWhatItSays:
    async def test_the_series_of_what_holds_the_count_is_1_while_it_does(self) -> None:
        async def held(most: int) -> list[str]:
            case = context("1500m", bounds=Bounds(minimum=1, maximum=most))
            snapshot = Snapshot(policies={KEY: case.view})
            text = (await Metrics(lambda: list(policy_rows(snapshot, NOW))).exposition()).decode()
            return re.findall(r'effective_load_policy_held\{.*held_by="(\w+)".*\} 1', text)

        assert await held(4) == ["Bounds"]
        assert await held(100) == []

    def test_a_condition_keeps_its_transition_time_and_its_status_is_not_written_every_loop(self) -> None:
        leader, case = Leader(), context("800m")
        leader.look(case)
        first = leader.state.written
        for later in range(15, 120, 15):
            leader.look(context("800m", now=NOW + later))
        assert leader.state.written == first
        leader.look(context("800m", now=NOW + 120))
        assert leader.state.written.at == NOW + 120
        assert _transitions(leader.state.written.status) == _transitions(first.status)


def _loaded(count: int, load: str | None) -> tuple[list[Pod], Samples]:
    pods, loads = same(count, load)
    return pods, usage(loads)


def _transitions(written: dict[str, object]) -> list[object]:
    return [one["lastTransitionTime"] for one in written["conditions"]]  # type: ignore[attr-defined]
