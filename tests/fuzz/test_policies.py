"""Faulty policies, HPAs and status memories: decoded, or every fault is named."""

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
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import spoilt
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


def judged(read: Callable[[], Any]) -> bool:
    """Whether the document is valid; otherwise each fault is one short line with its place."""
    try:
        found = read()
    except FaultyDocument as error:
        faults = first_faults(error.faults)
    except (msgspec.MsgspecError, status_memory.MemoryDecodeError) as error:
        faults = [Fault("", None, str(error))]
    else:
        repr(found)
        return True
    assert [fault for fault in faults if fault.advice] == faults != []
    assert all(len(str(fault)) < 2_000 for fault in faults)
    return False


def policy(body: bytes) -> bool:
    return judged(lambda: parse_policy(body))


def hpa(body: bytes) -> bool:
    return judged(lambda: parse_hpa(body))


def memory(body: bytes) -> bool:
    return judged(lambda: status_memory.to_status(status_memory.from_status(decode(body, dict[str, Any]))))


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


@fuzz(150, kind=st.sampled_from(sorted(DOCUMENTS)), data=st.data())
def test_a_document_with_several_faults_is_read_or_they_are_named(kind: str, data: st.DataObject) -> None:
    read, document = DOCUMENTS[kind]
    read(data.draw(spoilt(document)))


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
def test_any_cron_expression_is_a_fault_or_tells_its_windows(cron: str, zone: str, minute: int) -> None:
    one = {"name": "a", "cron": cron, "timeZone": zone, "durationSeconds": 60, "minReplicas": 1}
    document = {"metadata": {"name": "a"}, "spec": {**VALID, "schedules": [one]}}
    try:
        found = parse_policy(document).schedules[0]
    except FaultyDocument:
        return
    schedule.starts(found.cron, found.zone, minute)
