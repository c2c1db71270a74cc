"""The whole decision path: from the pods' states to one count, and what held it."""

from dataclasses import replace

import pytest

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.pods import Pod
from adapter.load.roster import Roster
from adapter.load.samples import ResourceSamples, Samples, time_text
from adapter.load.spec import Bounds, Mode
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
    nano,
    pod,
    policy,
    roster,
    same,
    scale,
    usage,
)

BAND = policy(cpu("1200m", "400m"))


class TestBoundsAndModes:
    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_resting_policy_holds_and_still_publishes_its_outcome(self, mode: Mode) -> None:
        pods, loads = same(4, "1500m")
        bounds = Bounds(minimum=6, maximum=9)
        _, decision = assess_and_decide(replace(BAND, mode=mode), pods, usage(loads), bounds=bounds)
        assert (decision.desired, decision.held_by, decision.verdict) == (4, HeldBy.MODE, Verdict.ABOVE)
        assert decision.outcome is not None
        assert decision.outcome.proposal == 5

    def test_each_request_decides_on_the_count_of_its_moment(self) -> None:
        pods, loads = same(4, "1500m")
        assessment, _ = assess_and_decide(BAND, pods, usage(loads))
        assert [decide(assessment, scale(n), BOUNDS, NOW).desired for n in (1, 4, 5, 6, 9)] == [5, 5, 5, 6, 9]
        assert [decide(assessment, scale(n), BOUNDS, NOW).current for n in (1, 9)] == [1, 9]


class TestConditions:
    def conditions(self, rule: object, pods: list[Pod], samples: Samples, **changes: object) -> dict[str, str]:
        return dict(assess_and_decide(rule, pods, samples, **changes)[0].conditions)  # type: ignore[arg-type]

    def test_missing_samples_and_errors_are_a_condition(self) -> None:
        pods, loads = same(3, "800m")
        gap = {"InputsFresh": "metric cpu: 1 pod without a fresh sample"}
        assert self.conditions(BAND, [*pods, pod("gap")], usage(loads)) == gap
        assert "503" in self.conditions(BAND, pods, Samples(ResourceSamples(error="503")))["InputsFresh"]

    @pytest.mark.parametrize(("limit", "is_fault"), [("1212m", True), ("1213m", False)])
    def test_a_watermark_that_no_pod_can_pass_within_its_limit_is_a_condition(
        self, limit: str, *, is_fault: bool
    ) -> None:
        pods, loads = same(3, "800m")
        limited = [
            replace(one, containers=tuple(replace(part, limits={"cpu": nano(limit)}) for part in one.containers))
            for one in pods
        ]
        assert ("WatermarkAtLimit" in self.conditions(BAND, limited, usage(loads))) is is_fault


def test_a_target_that_is_not_known_is_named_by_its_hpa() -> None:
    _, decision = assess_and_decide(BAND, [], usage({}), current=1, target=None)
    assert decision.error == "no pods of web exist"


class TestDistrust:
    def distrust(self, listed: Roster | None, pods: list[Pod] | None = None) -> str | None:
        """The condition RegistryDataValid of two registered pods, None where there is none."""
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")] if pods is None else pods
        found, _ = assess_and_decide(policy(registry=REGISTRY), pods, usage({"a": "600m", "b": "600m"}), listed=listed)
        return found.conditions.get("RegistryDataValid")

    @pytest.mark.parametrize(("age", "error"), [(1, None), (30, "HTTP 500"), (60, None)])
    def test_an_answer_is_trusted_a_while_and_one_that_fails_for_half_a_minute(
        self, age: float, error: str | None
    ) -> None:
        assert self.distrust(roster("10.0.0.1", "10.0.0.2", at=NOW - age, error=error)) is None

    def test_a_longer_failure_is_named_with_the_registrys_own_error(self) -> None:
        listed = roster("10.0.0.1", "10.0.0.2", at=NOW - 31, error="HTTP 403: ACL not found")
        assert self.distrust(listed) == (
            f"registry nacos gave its last valid answer at {time_text(NOW - 31)}: HTTP 403: ACL not found"
        )

    def test_the_error_of_a_registry_that_never_answered_is_named(self) -> None:
        told = self.distrust(roster(valid=False, error="http://nacos:8848: no answer within 5 s")) or ""
        assert "has not given a valid answer" in told
        assert told.endswith(": http://nacos:8848: no answer within 5 s")
