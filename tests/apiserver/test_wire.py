"""Answers as JSON: metric lists with canonical quantities and timestamps, and errors as Kubernetes Status objects."""

import asyncio
import datetime as dt
import json
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver import status
from adapter.apiserver.status import StatusError
from adapter.apiserver.wire import Row, Value, custom_row, external_row, metric_list
from adapter.load.quantity import nano_text, parse_quantity

DESCRIBED = {"kind": "Pod", "namespace": "d", "name": "p0", "apiVersion": "v1"}


CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
AT = 1_795_224_000.9


def read(group: str, version: str, *rows: Row) -> Any:
    return json.loads(asyncio.run(metric_list(group, version, rows)))


def item(text: str = "1500m", at: float = AT) -> Any:
    """One value as it is read from a list."""
    [found] = read(CUSTOM, "v1beta2", custom_row("v1beta2", DESCRIBED, "eff", Value(text, at)))["items"]
    return found


@pytest.mark.parametrize(
    ("version", "name", "window"),
    [
        ("v1beta2", {"metric": {"name": "eff", "selector": None}}, "windowSeconds"),
        ("v1beta1", {"metricName": "eff", "selector": None}, "window"),
    ],
)
def test_a_list_of_each_version_has_exactly_this_shape_without_a_window_that_is_not_known(
    version: str, name: dict[str, Any], window: str
) -> None:
    one = {"describedObject": DESCRIBED, **name, "timestamp": "2026-11-21T01:20:00Z", "value": "1500m"}
    values = Value("1500m", AT, 60), Value("1500m", AT)
    assert read(CUSTOM, version, *(custom_row(version, DESCRIBED, "eff", value) for value in values)) == {
        "kind": "MetricValueList",
        "apiVersion": f"custom.metrics.k8s.io/{version}",
        "metadata": {},
        "items": [{**one, window: 60}, one],
    }


def test_an_external_list_carries_its_labels() -> None:
    found = read(EXTERNAL, "v1beta1", external_row("m", {"a": "b"}, Value("3", AT, 15.4)))["items"]
    named = {"metricName": "m", "metricLabels": {"a": "b"}}
    assert found == [{**named, "timestamp": "2026-11-21T01:20:00Z", "window": 15, "value": "3"}]


CANONICAL = re.compile(r"0|[1-9][0-9]*[numkMGTPE]?")


@given(st.fractions(0, 10**15))
def test_a_load_loses_less_than_a_nano_unit_on_the_wire(load: Fraction) -> None:
    found = item(text=nano_text(load * 10**9))
    assert CANONICAL.fullmatch(found["value"])
    assert 0 <= load - parse_quantity(found["value"]) < Fraction(1, 10**9)


@given(st.integers(0, 4_000_000_000), st.floats(0, 0.999))
def test_a_timestamp_is_the_samples_own_second_in_utc(second: int, fraction: float) -> None:
    found = item(at=second + fraction)
    assert found["timestamp"].endswith("Z")
    assert dt.datetime.fromisoformat(found["timestamp"]).timestamp() == second


@given(st.text(st.characters(codec="utf-8")))
def test_a_status_has_exactly_this_shape_whatever_its_sentence(message: str) -> None:
    error = status.not_found(message, kind="deployments", group="apps", name="web")
    causes = [{"reason": "NotFound", "message": message}]
    details = {"name": "web", "group": "apps", "kind": "deployments", "causes": causes}
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}
    assert json.loads(status.encode_status(error)) == {
        **head,
        "message": message,
        "reason": "NotFound",
        "details": details,
    }
    other = json.loads(status.encode_status(StatusError(503, message, reason="Conflict")))
    assert (other["reason"], other["details"].keys()) == ("Conflict", {"causes"})
