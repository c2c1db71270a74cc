"""A decision in sentences, what was decided and why; and conditions that users should know of."""

from dataclasses import replace
from datetime import UTC
from fractions import Fraction

import pytest

from adapter.load.assessment import Decision, HeldBy
from adapter.load.explanation import decision_reason, explain, headline
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.samples import ResourceSamples, Samples, time_text
from adapter.load.spec import Algorithm, Bounds, Fallback, Mode, Policy, Query, Schedule, Seconds, Velocity
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
    out,
    pod,
    policy,
    queue,
    roster,
    same,
    total,
    usage,
)

BAND = policy(cpu("1200m", "400m"))


def told(
    rule: Policy, pods: list[Pod], samples: Samples, bounds: Bounds = BOUNDS, **changes: object
) -> tuple[str, str, Decision]:
    """The sentences in one text, the headline, and the decision."""
    assessment, decision = assess_and_decide(rule, pods, samples, bounds=bounds, **changes)  # type: ignore[arg-type]
    return "\n".join(explain(assessment, decision, bounds, NOW)), headline(assessment, decision), decision


def service(count: int, load: str, *others: Pod, rule: Policy = BAND, **changes: object) -> tuple[str, str, Decision]:
    pods, loads = same(count, load)
    return told(rule, [*pods, *others], usage(loads), **changes)  # type: ignore[arg-type]


def test_a_rise_names_usage_watermark_need_and_replaced_pods() -> None:
    text, head, _ = service(7, "1440m", *(out(f"out-{i}") for i in range(3)))
    assert text.splitlines()[0] == "Deployment web has 10 pods: 3 pulledOut, 7 serving"
    assert "out-0 is pulledOut: pulled out by hand (annotation effective-load.io/pulled-out)" in text
    assert "7 pods use 1440m on average, above the high watermark 1200m (acts beyond 1212m)" in text
    assert "9 serving pods carry the known load at the high watermark; 3 more replace pulled-out ones" in text
    assert text.splitlines()[-1] == "asks for 12 (now 10), served as 12"
    assert head.startswith("asks for 12, now 10: cpu: 7 pods use 1440m on average")
    assert service(1, "1440m")[0].startswith("Deployment web has 1 pod: 1 serving\n")


def test_a_fall_names_those_that_are_kept() -> None:
    text, _, _ = service(6, "300m", *(out(f"out-{i}") for i in range(4)))
    assert "below the low watermark 400m (acts under 396m)" in text
    assert "cpu allows at most 8: proposes 8 (now 10)" in text
    assert text.endswith("asks for 8 (now 10), served as 7001m")


def test_a_hold_names_its_reason() -> None:
    text, head, _ = service(4, "1500m", pod("gap"))
    assert "cpu allows any count (kept by 1 pod without a fresh sample): proposes 5 (now 5)" in text
    assert head.startswith("holds 5: ")
    assert head.endswith("(held by Missing)")


def test_usage_over_all_running_pods_is_named_where_it_differs() -> None:
    pods = [pod("a"), out("b")]
    text, _, _ = told(BAND, pods, usage({"a": "900m", "b": "100m"}))
    assert "1 pod uses 900m on average" in text
    assert "over all running pods it would be 500m" in text
    assert "over all running pods" not in service(2, "800m")[0]


def test_a_service_total_is_named_with_its_share() -> None:
    text, _, _ = told(policy(queue("85", "40")), [pod("a"), pod("b")], total("240"))
    assert "queue: 2 pods share 240, 120 each, above the high watermark 85" in text


def test_throttled_pods_are_named() -> None:
    pods = [pod(f"web-{index}", limits={"cpu": "1500m"}) for index in range(10)]
    text, _, decision = told(BAND, pods, usage(dict.fromkeys((one.name for one in pods), "1455m")))
    assert "97% of their limit: the load is more than it shows" in text
    assert decision.desired == 16


def test_doubt_is_explained() -> None:
    rule = policy(cpu("1200m", "400m"), registry=REGISTRY)
    pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(10)]
    loads: dict[str, str | int | None] = {p.name: "300m" if i < 5 else "0" for i, p in enumerate(pods)}
    listed = roster(*(f"10.0.0.{i}" for i in range(5)))
    text, head, _ = told(rule, pods, usage(loads), listed=listed)
    assert "p9 is doubtful: never registered (absence)" in text
    assert "cpu allows at most 8 (doubtful pods may carry load): proposes 8 (now 10)" in text
    assert head.endswith("(held by Doubt)")


def lunch(low: int, high: int | None = None) -> Schedule:
    return Schedule(name="lunch", cron="* * * * *", zone=UTC, duration=60, minimum=low, maximum=high)


BLIND = Samples(ResourceSamples(error="metrics.k8s.io: 503"))


@pytest.mark.parametrize(
    ("load", "changes", "given", "words"),
    [
        ("1500m", {}, {"bounds": Bounds(minimum=1, maximum=4)}, "the HPA allows 1 to 4"),
        ("1500m", {"mode": Mode.OBSERVE}, {}, "the policy is in mode Observe: the current count is kept"),
        ("100m", {"metrics": (*BAND.metrics, queue("85"))}, {}, "a metric is in error: no scale-down"),
        ("1500m", {"replica_multiple": 4}, {}, "rounded up to a multiple of 4): proposes 8"),
        ("375m", {"algorithm": Algorithm.ABSOLUTE}, {}, "4 pods use 1500m in total"),
        (
            "800m", {"hold_until": NOW + 3600}, {},
            "the policy is held until 2026-01-01T13:00Z: the current count is kept",
        ),
        ("2400m", {"velocity": Velocity(up=20)}, {}, "the policy's velocity allows 20 % of 4 at a time"),
        (
            "2400m", {"cooldown": Seconds(up=60, down=300)}, {"memory": Memory(last_replicas=4, changed_at=NOW - 10)},
            "the policy's cooldown is 60 s up and 300 s down, and the count last changed 10 s ago",
        ),
        ("800m", {"schedules": (lunch(20, 30),)}, {}, "schedule lunch keeps at least 20"),
        (
            None, {"fallback": Fallback(after=300, replicas=10)}, {"memory": Memory(error_since=NOW - 300)},
            "nothing could be decided for 300 s: the fallback is 10",
        ),
    ],
)  # fmt: skip
def test_each_stage_after_the_strategy_is_explained(
    load: str | None, changes: dict[str, object], given: dict[str, object], words: str
) -> None:
    pods, loads = same(4, load)
    samples = BLIND if load is None else usage(loads)
    assert words in told(replace(BAND, **changes), pods, samples, **given)[0]  # type: ignore[arg-type]


def test_an_error_is_the_reason_for_no_decision() -> None:
    text, head, decision = told(BAND, [pod()], Samples())
    assert text.endswith(f"nothing is decided: {decision.error}")
    assert head == f"no decision: {decision.error}"
    assert "no pods of Deployment web exist" in told(BAND, [], usage({}), current=3)[1]


def test_a_crowd_of_strange_pods_is_cut_short() -> None:
    text, _, _ = service(1, "800m", *(out(f"out-{i:02}") for i in range(50)))
    assert text.count(" is pulledOut: ") == 20
    assert "… and 30 more pods that do not plainly serve" in text


def test_usage_inside_the_band_is_told_with_the_tolerance_that_keeps_it_there() -> None:
    text, _, _ = service(5, "1210m")
    inside = "inside the band 400m … 1200m (tolerance 1 %: acts under 396m or beyond 1212m)"
    assert f"cpu: 5 pods use 1210m on average, {inside}" in text
    text, _, _ = service(5, "1200m", rule=replace(BAND, tolerance=Fraction(0)))
    assert "cpu: 5 pods use 1200m on average, inside the band 400m … 1200m\n" in text


def test_waking_from_zero_is_explained() -> None:
    text, head, _ = told(policy(queue("85")), [], total("3"), bounds=Bounds(minimum=0, maximum=9))
    assert text.endswith("asks for 1 (now 0), served as 1")
    assert head.startswith("asks for 1, now 0")
    assert "queue: 3 for the whole service, and no pod" in text
    assert "queue allows any count: proposes 1 (now 0)" in text


def test_a_count_of_0_by_hand_says_why_it_stays() -> None:
    text, head, decision = told(policy(queue("10", "5")), [], total("35"), current=0)
    assert (decision.desired, decision.held_by) == (0, HeldBy.BOUNDS)
    assert "queue allows any count: proposes 1 (now 0)" in text
    assert "0 by hand: an HPA with minReplicas 1 rests there until somebody scales it to 1" in text
    assert head.endswith("(held by Bounds)")


def test_a_fallback_is_the_reason_and_is_named_once_it_is_reached() -> None:
    rule = replace(BAND, fallback=Fallback(after=300, replicas=8))
    memory = Memory(error_since=NOW - 600)
    text, head, _ = told(rule, same(4, "1")[0], BLIND, memory=memory)
    assert "nothing could be decided for 300 s: the fallback is 8" in text
    assert head == "asks for 8, now 4: nothing could be decided for 300 s: the fallback is 8"
    assert told(rule, same(8, "1")[0], BLIND, memory=memory)[0].endswith("; the fallback after 300 s is 8")


def test_an_inline_query_has_the_name_of_its_metric() -> None:
    inline = replace(queue("10"), query=Query(prom_ql="sum(queue)", server="main"))
    assert "query queue has no fresh sample" in told(policy(inline), [pod()], total("35", at=NOW - 600))[0]


@pytest.mark.parametrize(
    ("load", "high", "shown"),
    [("1142857142n", "1200m", "1143m"), ("999980u", "1", "1"), ("999980n", "1", "1m"), ("57u", "100u", "57u")],
)
def test_a_value_is_shown_in_milli_units_unless_it_is_small(load: str, high: str, shown: str) -> None:
    assert f"use {shown} on average" in service(7, load, rule=policy(cpu(high)))[0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"schedules": (lunch(20),)}, "asks for 20, now 5: no metric has an answer (held by Schedule)"),
        ({"mode": Mode.PAUSED}, "holds 5: no metric has an answer (held by Mode)"),
    ],
)
def test_a_count_without_metrics_is_explained(changes: dict[str, object], line: str) -> None:
    assert told(replace(BAND, **changes), same(5, "1")[0], BLIND)[1] == line  # type: ignore[arg-type]


RPS = replace(cpu("1200m", "400m"), name="rps", resource="", query=Query(name="rps"))


@pytest.mark.parametrize("is_accepted", [None, True])
def test_a_usage_of_exactly_0_that_is_ignored_is_named(is_accepted: bool | None) -> None:
    pods, loads = same(3, "0")
    assessment, decision = assess_and_decide(policy(accept_zero_usage=is_accepted), pods, usage(loads))
    is_named = "a load of exactly 0 is ignored and holds the count" in decision_reason(assessment, decision)
    assert is_named is ("ZeroUsageIgnored" in assessment.conditions) is (is_accepted is None)


class TestUndersized:
    """A Deployment without room for its pods does not grow, whatever count is asked for."""

    def told(self, *others: Pod, load: str = "1800m") -> str | None:
        """Three overloaded pods and these."""
        pods, loads = same(3, load)
        assessment, _ = assess_and_decide(policy(), [*pods, *others], usage(loads))
        return assessment.conditions.get("UnreadyPodsFillReplicas")

    def pending(self, name: str, age: float, waits_for: str = "") -> Pod:
        return pod(name, age=age, ready=False, ready_for=age, phase="Pending", started_at=None, waits_for=waits_for)

    def test_pods_that_never_start_are_named_with_the_schedulers_reason(self) -> None:
        stuck = [self.pending(name, 7200, "0/3 nodes are available: insufficient cpu") for name in ("a", "b")]
        assert self.told(*stuck) == (
            "5 serving pods are needed, 3 serve, and 2 pods in the count did not start or turn Ready within 5 min "
            "(0/3 nodes are available: insufficient cpu)"
        )
        assert self.told(*stuck, load="1200m") is None

    def test_pods_may_start_for_300_s(self) -> None:
        assert self.told(self.pending("a", 299), self.pending("b", 299)) is None
        one = "5 serving pods are needed, 3 serve, and 1 pod in the count did not start or turn Ready within 5 min"
        assert self.told(self.pending("a", 299), self.pending("b", 301)) == one
        assert self.told(self.pending("a", 299), pod("ill", ready=False, ready_for=301)) == one


HERE, THERE = "10.0.0.1", "10.0.0.2"
REFUSED, SILENT = "HTTP 403: ACL not found", "http://nacos:8848: no answer within 5 s"
LAST = f"registry nacos gave its last valid answer at {time_text(NOW - 31)}: {REFUSED}"
NONE_YET = f"registry nacos has not given a valid answer for 'com.shop.web' yet: {SILENT}"
NO_POD = "registry nacos lists no pod of this target: check the service name 'com.shop.web'"
LOST = "registry nacos lists no pod of this target any more"


@pytest.mark.parametrize(
    ("listed", "ready_for", "registered", "said"),
    [
        pytest.param(roster(HERE, THERE, at=NOW - 60), 3600, True, None, id="an answer is valid for a while"),
        pytest.param(roster(HERE, THERE, at=NOW - 30, error=REFUSED), 3600, True, None, id="it fails for 30 s"),
        pytest.param(roster(HERE, THERE, at=NOW - 31, error=REFUSED), 3600, True, LAST, id="it fails for longer"),
        pytest.param(roster(valid=False, error=SILENT), 3600, True, NONE_YET, id="it never answered"),
        pytest.param(roster(), 179, False, None, id="pods may take 180 s to register"),
        pytest.param(roster(), 180, False, NO_POD, id="no pod ever registered"),
        pytest.param(roster(), 3600, True, LOST, id="it lost every pod"),
        pytest.param(roster(HERE), 3600, True, None, id="one is back"),
    ],
)
def test_data_of_a_registry_that_cannot_be_used_are_named(
    listed: Roster, ready_for: float, registered: bool, said: str | None
) -> None:
    pods = [pod("a", ip=HERE), pod("b", ip=THERE, age=ready_for + 5, ready_for=ready_for)]
    known = Memory(pods={one.uid: PodMemory(registered=registered) for one in pods})
    assessment, _ = assess_and_decide(policy(registry=REGISTRY), pods, usage({}), listed=listed, memory=known)
    assert assessment.conditions.get("RegistryDataValid") == said


@pytest.mark.parametrize("seconds", [899, 900])
def test_pods_in_doubt_for_15_minutes_are_named_with_the_field(seconds: float) -> None:
    """A service moved to another registry holds a too large count for ever, and the registry answers well."""
    pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(10)]
    doubtful = {one.uid: PodMemory(PodState.DOUBTFUL, NOW - seconds) for one in pods[:2]}
    listed = roster(*(one.ips[0] for one in pods[2:]))
    assessment, _ = assess_and_decide(
        policy(registry=REGISTRY), pods, usage({}), memory=Memory(pods=doubtful), listed=listed
    )
    said = (
        "web-0, web-1 are kept in the count, in doubt for over 15 min: never registered; "
        "check registry.service, register these pods again or replace them"
    )
    assert assessment.conditions.get("RegistryDataValid") == (said if seconds == 900 else None)
