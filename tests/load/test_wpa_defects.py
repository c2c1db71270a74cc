"""Defects of the WatermarkPodAutoscaler (as of April 2026) that a service which comes from it must not meet again.

That its pod informer ignores the watched namespaces is the subject of `tests/e2e/test_namespaces.py`, where the rights
in those namespaces suffice.
"""

import re
from dataclasses import replace

import pytest

from adapter.evaluation.policy_metrics import policy_rows
from adapter.hpa.controller import Controller
from adapter.load.assessment import HeldBy, Verdict
from adapter.load.conditions import ConditionType, Reason
from adapter.load.explanation import explain
from adapter.load.pods import Pod
from adapter.load.samples import Samples
from adapter.load.spec import Bounds, Converge, Cooldown, Delay, Mode, Velocity
from adapter.policy.field_reader import PolicyError
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.snapshot import Snapshot
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY, Leader, context
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, pod, policy, queue, same, total, usage


class TestArithmetic:
    """Floats: 11 pods and 20 · 85000 at 85000 gave 21; 21 pods and 11 · 75000 at 75000 gave 10."""

    def test_so_much_load_as_whole_pods_carry_needs_exactly_these_pods(self) -> None:
        for n in range(1, 100):
            pods, _ = same(n, None)
            for k in (1, n // 3 + 1, n - 1, n + 1, 2 * n - 1, 3 * n):
                if k == n or k < 1:
                    continue
                high, low = f"{75_000}", f"{75_000}"
                rule = policy(queue(high) if k > n else queue(None, low), tolerance=0)
                _, decision = assess_and_decide(rule, pods, total(str(k * 75_000)))
                assert decision.desired == k, (n, k)

    def test_the_tolerance_around_a_small_watermark_is_exact(self) -> None:
        # Thousandths that are cut off made it 20m instead of 19.8m.
        assert assess_and_decide(policy(cpu(None, "20m")), *_loaded(5, "19800u"))[1].desired == 5
        assert assess_and_decide(policy(cpu(None, "20m")), *_loaded(5, "19799u"))[1].desired == 4


class TestWhoCounts:
    def test_a_service_whose_pods_are_all_unready_gets_a_sentence_and_keeps_its_count(self) -> None:
        ill = [pod(f"web-{index}", ready=False, ready_for=900) for index in range(3)]
        _, decision = assess_and_decide(policy(), ill, usage({}))
        assert decision.desired is None
        assert decision.error is not None
        assert "no pod serves" in decision.error

    @pytest.mark.parametrize("took", [0, 1, 5, 10, 120])
    def test_a_pod_that_became_ready_quickly_is_counted_like_any_other(self, took: float) -> None:
        pods = [pod(f"web-{index}", age=400, ready_for=400 - took) for index in range(2)]
        assessment, decision = assess_and_decide(policy(), pods, usage({"web-0": "1500m", "web-1": "1500m"}))
        assert (assessment.metrics[0].n, decision.desired) == (2, 3)

    def test_a_sum_of_zero_that_is_not_believed_keeps_the_count_not_the_number_of_serving_pods(self) -> None:
        pods, loads = same(9, "0")
        ill = pod("ill", ready=False, ready_for=900)
        rule = policy(cpu("1200m", "400m", delay=Delay(down=60)), converge_towards=Converge.HIGH)
        _, decision = assess_and_decide(rule, [*pods, ill], usage(loads), current=10)
        assert (decision.desired, decision.verdict) == (10, Verdict.INSIDE)


class TestThePolicy:
    @pytest.mark.parametrize("metrics", [[], None])
    def test_a_policy_without_metrics_is_refused_instead_of_shrinking_to_the_minimum(self, metrics: object) -> None:
        with pytest.raises(PolicyError, match="a policy needs a metric"):
            parse_policy({"metadata": {"name": "web"}, "spec": {"metrics": metrics}})

    def test_a_new_policy_inside_the_band_has_scaled_nothing_and_begins_no_cooldown(self) -> None:
        pods, loads = same(5, "800m")
        rule = policy(cpu("1200m", "400m"), cooldown=Cooldown(up=300, down=300))
        assessment, decision = assess_and_decide(rule, pods, usage(loads))
        assert (decision.desired, decision.held_by) == (5, None)
        assert assessment.memory.last_scale is None
        calm = usage(dict.fromkeys(loads, "300m"), at=NOW + 5)
        _, decision = assess_and_decide(rule, pods, calm, memory=assessment.memory, now=NOW + 15)
        assert decision.desired == 3

    def test_a_failing_metric_does_not_keep_the_count_out_of_bounds(self) -> None:
        _, decision = assess_and_decide(policy(), *_loaded(9, None), bounds=Bounds(maximum=4))
        assert decision.error is not None
        hpa = {
            "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 4,
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "desired_replicas"},
                            "target": {"type": "AverageValue", "averageValue": "1"},
                        },
                    }
                ],
            },
        }  # fmt: skip
        assert Controller(parse_hpa(hpa)).sync(NOW, 9, [decision.error], ()).replicas == 4

    def test_converging_does_not_pass_the_watermark_whatever_the_hpas_maximum(self) -> None:
        # 3 · 80/2 = 120 is beyond 90.
        rule = policy(cpu("90", "10"), converge_towards=Converge.HIGH)
        for most in (1, 3, 1000):
            _, decision = assess_and_decide(rule, *_loaded(3, "80"), bounds=Bounds(maximum=most))
            assert decision.desired == min(3, most)

    def test_a_policy_that_only_observes_does_not_pass_for_one_that_scaled(self) -> None:
        rule = policy(cpu("1200m", "400m"), mode=Mode.OBSERVE, uid="policy-uid", generation=1)
        case = context("1500m", rule=rule)
        assert case.decision is not None
        assert (case.decision.desired, case.decision.verdict) == (4, Verdict.ABOVE)
        assert case.view.assessment is not None
        assert case.view.assessment.memory.last_scale is None
        then = context("1500m", rule=replace(rule, mode=Mode.ACTIVE, cooldown=Cooldown(up=300)), now=NOW + 15)
        assert then.decision is not None
        assert then.decision.desired == 5


class TestWhatItSays:
    async def test_the_series_of_what_holds_the_count_is_1_while_it_does(self) -> None:
        async def held(most: int) -> list[str]:
            case = context("1500m", bounds=Bounds(minimum=1, maximum=most))
            snapshot = Snapshot(policies={KEY: case.view})
            text = (await Metrics(lambda: list(policy_rows(snapshot, NOW))).exposition()).decode()
            return re.findall(r'effective_load_policy_held\{.*held_by="(\w+)".*\} 1', text)

        assert await held(4) == ["Bounds"]
        assert await held(100) == []

    async def test_the_series_of_a_policy_end_with_it_and_a_changed_mode_leaves_none_behind(self) -> None:
        views = {KEY: context(rule=policy(cpu(), mode=Mode.OBSERVE)).view}
        metrics = Metrics(lambda: list(policy_rows(Snapshot(policies=views), NOW)))
        assert 'mode="Observe"} 1' in (await metrics.exposition()).decode()
        views[KEY] = context(rule=policy(cpu())).view
        assert 'mode="Observe"} 1' not in (await metrics.exposition()).decode()
        del views[KEY]
        assert 'policy="' not in (await metrics.exposition()).decode()

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

    def test_types_and_reasons_are_words_without_spaces(self) -> None:
        for one in (*ConditionType, *Reason, *HeldBy):
            assert re.fullmatch(r"[A-Z][A-Za-z]+", one.value)

    @pytest.mark.parametrize(
        ("load", "words"), [("1500m", "above the high watermark"), ("300m", "below the low watermark")]
    )
    def test_the_sentence_names_the_side_and_the_watermark_that_was_passed(self, load: str, words: str) -> None:
        assessment, decision = assess_and_decide(policy(cpu("1200m", "400m")), *_loaded(5, load))
        assert words in explain(assessment, decision, BOUNDS, NOW)[1]

    def test_a_share_of_serving_pods_is_named_for_what_it_is(self) -> None:
        pods = [pod("web-0"), *(pod(f"ill-{index}", ready=False, ready_for=900) for index in range(5))]
        assessment, decision = assess_and_decide(policy(cpu("1200m", "400m")), pods, usage({"web-0": "100m"}))
        assert "fewer than 50 % of the pods serve: no scale-down" in explain(assessment, decision, BOUNDS, NOW)


class TestADirectionSwitchedOff:
    """Velocity 0: the policy does nothing in that direction, whatever the time since the last scaling."""

    @pytest.mark.parametrize("last_scale", [None, NOW - 10_000])
    def test_up(self, last_scale: float | None) -> None:
        rule = policy(cpu("1200m", "400m"), velocity=Velocity(up=0))
        bounds = Bounds(maximum=100, last_scale=last_scale)
        _, decision = assess_and_decide(rule, *_loaded(5, "5000m"), bounds=bounds)
        assert (decision.desired, decision.held_by, decision.verdict) == (5, HeldBy.VELOCITY, Verdict.ABOVE)
        assert assess_and_decide(rule, *_loaded(5, "300m"), bounds=bounds)[1].desired == 3

    @pytest.mark.parametrize("last_scale", [None, NOW - 10_000])
    def test_down(self, last_scale: float | None) -> None:
        rule = policy(cpu("1200m", "400m"), velocity=Velocity(down=0))
        bounds = Bounds(maximum=100, last_scale=last_scale)
        _, decision = assess_and_decide(rule, *_loaded(5, "300m"), bounds=bounds)
        assert (decision.desired, decision.held_by, decision.verdict) == (5, HeldBy.VELOCITY, Verdict.BELOW)
        assert assess_and_decide(rule, *_loaded(5, "1500m"), bounds=bounds)[1].desired == 7

    def test_one_watermark_alone_never_moves_the_count_the_other_way(self) -> None:
        assert assess_and_decide(policy(cpu("1200m")), *_loaded(5, "1m"))[1].desired == 5
        assert assess_and_decide(policy(cpu(None, "400m")), *_loaded(5, "9000m"))[1].desired == 5


def _loaded(count: int, load: str | None) -> tuple[list[Pod], Samples]:
    pods, loads = same(count, load)
    return pods, usage(loads)


def _transitions(written: dict[str, object]) -> list[object]:
    return [one["lastTransitionTime"] for one in written["conditions"]]  # type: ignore[attr-defined]
