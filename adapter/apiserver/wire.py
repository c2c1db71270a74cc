"""Encodes metric lists as JSON: custom.metrics.k8s.io v1beta1 and v1beta2, and external.metrics.k8s.io v1beta1.

Values are canonical quantities, exact to nano-units: the HPA itself rounds up to milli-units, per item. `selector` is
always present (null); a window is in whole seconds and absent if unknown; a timestamp is that of the sample.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from adapter.apiserver.request_info import CUSTOM, EXTERNAL
from adapter.runtime.concurrency import Slices
from adapter.runtime.times import format_time

Item = TypeVar("Item")
_RUN = 200
"""Items that are encoded in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value: canonical quantity, sample time (epoch seconds), window in seconds (None: unknown)."""

    text: str
    at: float
    window: float | None = None


class DescribedObject(msgspec.Struct, frozen=True, rename="camel"):
    """The object that a custom metric describes."""

    kind: str
    namespace: str
    name: str
    api_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """A custom metric's value."""

    described: DescribedObject
    metric: str
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMetricValue:
    """An external metric's value."""

    metric: str
    labels: Mapping[str, str]
    value: Value


_encode = msgspec.json.Encoder().encode
_timestamp = functools.lru_cache(4096)(format_time)


def _sample(value: Value, window_key: str) -> dict[str, object]:
    sample: dict[str, object] = {"timestamp": _timestamp(int(value.at)), "value": value.text}
    if value.window is not None:
        sample[window_key] = max(0, round(value.window))
    return sample


def _v1beta2(item: MetricValue) -> dict[str, object]:
    identifier = {"name": item.metric, "selector": None}
    return {"describedObject": item.described, "metric": identifier, **_sample(item.value, "windowSeconds")}


def _v1beta1(item: MetricValue) -> dict[str, object]:
    sample = _sample(item.value, "window")
    return {"describedObject": item.described, "metricName": item.metric, **sample, "selector": None}


def _external(item: ExternalMetricValue) -> dict[str, object]:
    return {"metricName": item.metric, "metricLabels": item.labels, **_sample(item.value, "window")}


_CUSTOM = {"v1beta2": _v1beta2, "v1beta1": _v1beta1}


async def metric_value_list(version: str, items: Sequence[MetricValue]) -> bytes:
    """A MetricValueList in the given version as JSON, encoded in slices."""
    return await _list("MetricValueList", f"{CUSTOM}/{version}", _CUSTOM[version], items)


async def external_metric_value_list(items: Sequence[ExternalMetricValue]) -> bytes:
    """An ExternalMetricValueList as JSON, encoded in slices."""
    return await _list("ExternalMetricValueList", f"{EXTERNAL}/v1beta1", _external, items)


async def _list(kind: str, api_version: str, row: Callable[[Item], dict[str, object]], items: Sequence[Item]) -> bytes:
    head = f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{}},"items":'.encode()
    if len(items) <= _RUN:
        return b"%b%b}" % (head, _encode([row(item) for item in items]))
    pieces, slices = [head], Slices()
    for begin in range(0, len(items), _RUN):
        run = _encode([row(item) for item in items[begin : begin + _RUN]])
        pieces.append((b"," if begin else b"[") + run[1:-1])
        await slices.breathe()
    pieces.append(b"]}")
    return b"".join(pieces)
