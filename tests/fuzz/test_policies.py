"""Faulty policies, HPAs and status memories: decoded, or every fault is named, without a long step."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from adapter.load import schedule
from adapter.policy import status_memory
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import decode
from adapter.runtime.faults import Fault, FaultyDocument, first_faults
from tests.fuzz.kit import STEP_CALLS, at_each_place, fuzz, in_a_step, uncached
from tests.fuzz.spoil import EVERY, STRANGE, TEXTS, places, spoilt
from tests.fuzz.test_kubernetes import HPA
from tests.policy.test_schema import EVERYTHING, STEPS

TIME = "2026-01-01T12:00:00Z"
METADATA = {
    "name": "web",
    "namespace": "shop",
    "uid": "u",
    "generation": 2,
    "annotations": {"effective-load.io/hold-until": TIME},
}
HEAD = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "metadata": METADATA}
MEMORY = {
    "away": {"u-1": {"since": TIME, "state": "pulledOut"}, "u-2": {"since": TIME, "state": "doubtful"}},
    "errorSince": TIME,
}
MEMORY_CALLS = 50_000
"""Read once, when a policy is first assessed: 200 pods."""


def judged(read: Callable[[], Any], most: int = STEP_CALLS) -> bool:
    """Whether the document is valid; otherwise each fault is one short line with its place."""
    try:
        found = in_a_step(read, most)
    except FaultyDocument as error:
        faults = first_faults(error.faults)
    except (msgspec.MsgspecError, status_memory.MemoryDecodeError) as error:
        faults = [Fault("", None, str(error))]
    else:
        repr(found)
        return True
    assert [fault for fault in faults if fault.advice] == faults != []
    assert all(len(in_a_step(fault.__str__)) < 2_000 for fault in faults)
    return False


def policy(body: bytes) -> bool:
    return judged(lambda: parse_policy(body))


def hpa(body: bytes) -> bool:
    return judged(lambda: parse_hpa(body))


def memory(body: bytes) -> bool:
    return judged(
        lambda: status_memory.to_status(status_memory.from_status(decode(body, dict[str, Any]))), MEMORY_CALLS
    )


DOCUMENTS = {
    "policy": (policy, {**HEAD, "spec": EVERYTHING}),
    "policy of steps": (policy, {**HEAD, "spec": STEPS}),
    "hpa": (hpa, HPA),
    "memory": (memory, MEMORY),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_good_document_is_read(kind: str) -> None:
    read, document = DOCUMENTS[kind]
    assert read(json.dumps(document).encode())


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_with_anything_anywhere_is_read_or_its_faults_are_named(kind: str) -> None:
    read, document = DOCUMENTS[kind]
    at_each_place(document, read)


@fuzz(150, kind=st.sampled_from(sorted(DOCUMENTS)), data=st.data())
def test_a_document_with_several_faults_is_read_or_they_are_named(kind: str, data: st.DataObject) -> None:
    read, document = DOCUMENTS[kind]
    read(data.draw(spoilt(document)))


def nested(depth: int, *, mapping: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if mapping else [value]
    return value


@pytest.mark.parametrize("mapping", [True, False])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_values_nested_as_deep_as_python_holds_them_are_faults(kind: str, mapping: bool) -> None:
    read, document = DOCUMENTS[kind]
    parse: Callable[[Any], Any] = {policy: parse_policy, hpa: parse_hpa, memory: status_memory.from_status}[read]
    for number, depth in enumerate((70, 400, 900, 950, 990, 5_000, 100_000)):
        value = nested(depth, mapping=mapping)
        for path in [*places(document)][number % EVERY :: EVERY]:
            data = json.loads(json.dumps(document))
            inner = data
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = value
            judged(lambda data=data: parse(data))


@pytest.mark.parametrize("text", [text for text in [*TEXTS, *STRANGE] if isinstance(text, str)])
def test_every_text_is_a_quantity_a_cron_expression_a_zone_and_a_time_or_a_fault(text: str) -> None:
    for spec in (
        {"metrics": [{"name": "a", "resource": {"name": "cpu"}, "highWatermark": text, "lowWatermark": text[:32]}]},
        {"tolerance": text[:32], "schedules": [{"name": "a", "cron": text[:253], "timeZone": text[:253]}]},
    ):
        metadata = {"name": text, "annotations": {"effective-load.io/hold-until": text}}
        policy(json.dumps({"metadata": metadata, "spec": spec}).encode())


LABELS = [f"{n:02}" + "x" * 61 for n in range(20)]
VALID = {"metrics": [{"name": "a", "resource": {"name": "cpu"}, "highWatermark": 1}]}
FIELDS = [
    "*", "*/7", "0", "59", "31", "29", "2", "L", "LW", "1-5", "0#5", "5L", "1,2,3", "*/1,*/2,*/3", "0-59", "7", "FEB",
    "SUN",
]  # fmt: skip
FIELD = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=30).map(",".join)


@fuzz(
    150,
    cron=st.one_of(
        st.lists(st.sampled_from(FIELDS), min_size=5, max_size=5).map(" ".join),
        st.lists(FIELD, min_size=5, max_size=5).map(" ".join).map(lambda text: text[:253]),
    ),
    zone=st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Africa/Casablanca", "Asia/Gaza"]),
    minute=st.integers(0, 60_000_000),
)
def test_any_cron_expression_is_a_fault_or_tells_its_windows_at_once(cron: str, zone: str, minute: int) -> None:
    one = {"name": "a", "cron": cron, "timeZone": zone, "durationSeconds": 60, "minReplicas": 1}
    document = {"metadata": {"name": "a"}, "spec": {**VALID, "schedules": [one]}}
    try:
        found = in_a_step(lambda: parse_policy(document).schedules[0])
    except FaultyDocument:
        return
    in_a_step(lambda: uncached(schedule.starts)(found.cron, found.zone, minute))


def test_a_policy_of_the_largest_size_in_every_respect_is_no_long_step() -> None:
    metrics = [
        {
            "name": f"m{n}",
            "query": {"promQL": "x" * 4096, "server": "s" * 253, "of": "Limit", "resource": "x", "containers": LABELS},
            "highWatermark": "9" * 20,
        }
        for n in range(10)
    ]  # fmt: skip
    crons = ["0 0 * 2 0#5", "0 0 29 2 *", ",".join(["*/2"] * 60) + " * * * *", "* * * * *"]
    schedules = [
        {"name": f"s{n}", "cron": crons[n % 4], "timeZone": "Asia/Gaza", "durationSeconds": 60, "minReplicas": 1}
        for n in range(20)
    ]
    spec = {"metrics": metrics, "schedules": schedules, "notify": [f"{n}" + "x" * 60 for n in range(20)]}
    body = json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode()
    policy(body)


def test_a_policy_of_nothing_but_unknown_keys_is_no_long_step() -> None:
    for key in ("x" * 200, "mod", "highWaterMark"):
        spec = {f"{key}{n}": {"a": [n]} for n in range(1_000)}
        policy(json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode())
