"""What a right policy is read as, and that the API server agrees about what is right and about every default."""

from dataclasses import replace
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.load.quantity import NANO
from adapter.load.spec import (
    Capacity,
    Fallback,
    Limits,
    Metric,
    Policy,
    Query,
    Registry,
    Schedule,
    Seconds,
    Velocity,
)  # fmt: skip
from adapter.policy.documents import PolicyError
from adapter.policy.watermark_policy import parse_policy
from tests.policy.conftest import PolicyApi
from tests.policy.strategies import specs
from tests.policy.wrong import CPU, EVERYTHING, LUNCH, MEMORY, PLAN, RPS, metric, policy


def test_absent_fields_have_the_defaults_of_the_specification() -> None:
    read = parse_policy(policy("checkout", "shop"))
    (metric,) = read.metrics
    assert metric == Metric(name="cpu", resource="cpu", high=milli(1200), low=milli(400))
    assert read == Policy(namespace="shop", name="checkout", hpa="checkout", metrics=(metric,))


def milli(value: int) -> Fraction:
    return Fraction(value * NANO, 1000)


def test_a_policy_with_every_field_is_read_as_what_it_says() -> None:
    """All but the defaults, which the API server's are compared with."""
    read = parse_policy(policy(**EVERYTHING))
    cpu, memory, share, named, plan = read.metrics
    assert cpu == Metric(
        name="cpu",
        resource="cpu",
        containers=("app",),
        high=milli(1200),
        low=milli(400),
        delay=Seconds(up=30, down=600),
    )
    assert (memory.resource, memory.containers, memory.relative_to) == ("memory", ("app",), Capacity.LIMIT)
    assert (memory.high, memory.low) == (milli(800), milli(500))
    assert share.query == Query(prom_ql="up", server="main")
    assert (share.resource, share.containers, share.relative_to) == ("memory", ("app",), Capacity.LIMIT)
    assert (named.query, named.delay) == (Query(name="http_requests_per_second"), Seconds(up=60, down=300))
    assert (plan.floor, plan.delay) == (True, Seconds())
    assert read.registry == Registry(
        name="prod-nacos", service="com.shop.checkout", namespace="public", group="DEFAULT_GROUP", port=8080,
        pod_name_key="pod",
    )  # fmt: skip
    assert (read.hpa, read.converge_towards, read.notify) == ("web", "High", ("oncall",))
    assert (read.velocity, read.cooldown) == (Velocity(up=100, down=20), Seconds(up=60, down=300))
    lunch, night = read.schedules
    assert lunch == Schedule(
        name="lunch", cron=LUNCH["cron"], zone=ZoneInfo("Asia/Shanghai"), duration=7200, minimum=20
    )
    assert (night.zone, night.minimum, night.maximum) == (ZoneInfo("UTC"), None, 5)
    assert (read.fallback, read.accept_zero_usage) == (Fallback(after=300, replicas=10), False)


@pytest.mark.parametrize(
    ("written", "value"),
    [(3, 3), ("3k", 3000), ("3Mi", 3 << 20), ("3e2", 300), ("1n", Fraction(1, NANO)), ("0.1n", Fraction(1, NANO))],
)
def test_an_amount_is_read_exactly_and_rounded_up_to_nano_units(written: str | int, value: Fraction) -> None:
    (read,) = parse_policy(policy(**metric(RPS, highWatermark=written))).metrics
    assert read.high == value * NANO


def test_a_metrics_own_delay_takes_precedence_over_the_policys_in_each_direction() -> None:
    read = parse_policy(
        policy(
            delay={"scaleUpSeconds": 30, "scaleDownSeconds": 600},
            metrics=[CPU, {**RPS, "delay": {"scaleUpSeconds": 0}}, {**MEMORY, "delay": {"scaleDownSeconds": 60}}, PLAN],
        )
    )
    delays = [(metric.delay.up, metric.delay.down) for metric in read.metrics]
    assert delays == [(30, 600), (0, 600), (30, 60), (0, 0)]


def test_the_load_of_one_pod_in_a_floor_may_be_less_than_the_tolerance() -> None:
    plan = {**PLAN, "highWatermark": None, "target": "10"}
    read = parse_policy(policy(strategy="Step", metrics=[{**MEMORY, "highWatermark": None, "target": "60%"}, plan]))
    assert read.limits_of(read.metrics[1]) == Limits(Fraction(10 * NANO), None)


def held(until: str) -> dict[str, Any]:
    document = policy()
    document["metadata"]["annotations"] = {"effective-load.io/hold-until": until, "other": "x"}
    return document


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00"])
def test_a_policy_is_held_until_the_time_of_its_annotation(text: str) -> None:
    read = parse_policy(held(text))
    assert read.hold_until == 1767268800
    assert (read.mode_at(1767268799), read.mode_at(1767268800)) == ("Held", "Active")


HOLD = "metadata.annotations[effective-load.io/hold-until]"
ONLY_OURS = [
    *(
        (held(text), HOLD, "2026-01-01T12:00:00Z")
        for text in ("tomorrow", "2026-01-01T12:00:00", "9999-12-31T23:59:59-01:00")
    ),
    (policy(schedules=[{**LUNCH, "cron": "0 0 */10 2 MON#5"}]), "spec.schedules[0].cron", "no date matches"),
    (policy(schedules=[{**LUNCH, "timeZone": "Asia/Peking"}]), "spec.schedules[0].timeZone", "IANA"),
    (policy(schedules=[{**LUNCH, "timeZone": "../../etc/passwd"}]), "spec.schedules[0].timeZone", "IANA"),
]


@pytest.mark.parametrize(("document", "path", "words"), ONLY_OURS)
def test_what_only_the_adapter_can_judge_is_a_fault_with_its_path(document: Any, path: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words) as caught:
        parse_policy(document)
    assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.integration
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(specs())
def test_the_api_server_takes_what_we_take_and_adds_the_defaults_we_add(
    policy_api: PolicyApi, spec: dict[str, Any]
) -> None:
    document = policy("made-up", "default", **spec)
    answer = policy_api.offer(document)
    assert answer.status == 201, answer.text
    assert replace(parse_policy(answer.json()), uid="", generation=0) == parse_policy(document)


ODD = st.sampled_from([
    "1", "0", "-1", "1.", ".5", "+3", "80%", "+8%", "1e3", "1E3", "1E", "5e-1", "2Gi", "9Ei", "1k", "1K", "0.5%",
    "10", "11", 3,
])  # fmt: skip


@pytest.mark.integration
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(high=ODD, low=ODD | st.none(), of=st.booleans(), tolerance=ODD)
def test_the_api_server_and_we_refuse_the_same_numbers(
    policy_api: PolicyApi, high: str | int, low: str | int | None, of: bool, tolerance: str | int
) -> None:
    made = metric(MEMORY if of else CPU, highWatermark=high, lowWatermark=low)
    document = policy("odd", "default", tolerance=tolerance, **made)
    answer = policy_api.offer(document)
    try:
        parse_policy(document)
        expected, faults = 201, ""
    except PolicyError as error:
        expected, faults = 422, str(error)
    assert answer.status == expected, f"we say {faults}, the API server {answer.text}"
