"""Metric lists as JSON: exact shapes, canonical quantities, timestamps."""

import asyncio
import json
import re
from collections.abc import Coroutine
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver import wire
from adapter.apiserver.wire import DescribedObject, ExternalMetricValue, MetricValue, Value
from adapter.load.quantity import milli_text, nano_text, parse_quantity

DESCRIBED = {"kind": "Pod", "namespace": "d", "name": "p0", "apiVersion": "v1"}


def item(text: str = "1500m", at: float = 1_795_224_000.9, window: float | None = 60) -> MetricValue:
    described = DescribedObject("Pod", "d", "p0", "v1")
    return MetricValue(described=described, metric="eff", value=Value(text=text, at=at, window=window))


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
    assert read(wire.metric_value_list(version, [item(), item(window=None)])) == {
        "kind": "MetricValueList",
        "apiVersion": f"custom.metrics.k8s.io/{version}",
        "metadata": {},
        "items": [{**one, window: 60}, one],
    }


def test_an_external_list_carries_its_labels() -> None:
    value = Value(text="3", at=1_795_224_000, window=15.4)
    [found] = read(wire.external_metric_value_list([ExternalMetricValue(metric="m", labels={"a": "b"}, value=value)]))[
        "items"
    ]
    labelled = {"metricName": "m", "metricLabels": {"a": "b"}}
    assert found == {**labelled, "timestamp": "2026-11-21T01:20:00Z", "window": 15, "value": "3"}
    assert read(wire.external_metric_value_list([]))["items"] == []


CANONICAL = re.compile(r"0|[1-9][0-9]*[numkMGTPE]?")


def read(encoded: Coroutine[Any, Any, bytes]) -> Any:
    return json.loads(asyncio.run(encoded))


@given(st.integers(0, 2**63 - 1))
def test_a_whole_number_of_milli_units_is_written_canonically_and_read_back_exactly(milli: int) -> None:
    [found] = read(wire.metric_value_list("v1beta2", [item(text=milli_text(milli))]))["items"]
    assert CANONICAL.fullmatch(found["value"])
    assert parse_quantity(found["value"]) == Fraction(milli, 1000)
    assert not re.search(r"000[num]?$", found["value"])


@given(st.fractions(0, 10**15))
def test_a_load_loses_less_than_a_nano_unit_on_the_wire(load: Fraction) -> None:
    [found] = read(wire.metric_value_list("v1beta2", [item(text=nano_text(load * 10**9))]))["items"]
    assert CANONICAL.fullmatch(found["value"])
    assert 0 <= load - parse_quantity(found["value"]) < Fraction(1, 10**9)


@given(
    st.text(st.characters(codec="utf-8")),
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))),
)
def test_any_text_is_escaped_as_json_wants_it(name: str, labels: dict[str, str]) -> None:
    answer = read(
        wire.external_metric_value_list([ExternalMetricValue(metric=name, labels=labels, value=item().value)])
    )
    assert (answer["items"][0]["metricName"], answer["items"][0]["metricLabels"]) == (name, labels)


@given(st.integers(0, 4_000_000_000), st.floats(0, 0.999))
def test_a_timestamp_is_the_samples_own_second_in_utc(second: int, fraction: float) -> None:
    import datetime as dt

    [found] = read(wire.metric_value_list("v1beta2", [item(at=second + fraction)]))["items"]
    assert found["timestamp"].endswith("Z")
    assert dt.datetime.fromisoformat(found["timestamp"]).timestamp() == second
