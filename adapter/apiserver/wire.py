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


class _Identifier(msgspec.Struct):
    name: str
    selector: None = None


class _V1beta2(msgspec.Struct, rename="camel"):
    described_object: DescribedObject
    metric: _Identifier
    timestamp: str
    value: str
    window_seconds: int | msgspec.UnsetType = msgspec.UNSET


class _V1beta1(msgspec.Struct, rename="camel"):
    described_object: DescribedObject
    metric_name: str
    timestamp: str
    value: str
    window: int | msgspec.UnsetType = msgspec.UNSET
    selector: None = None


class _External(msgspec.Struct, rename="camel"):
    metric_name: str
    metric_labels: Mapping[str, str]
    timestamp: str
    value: str
    window: int | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode
_timestamp = functools.lru_cache(4096)(format_time)


def _fields(value: Value) -> tuple[str, str, int | msgspec.UnsetType]:
    window = msgspec.UNSET if value.window is None else max(0, round(value.window))
    return _timestamp(int(value.at)), value.text, window


_CUSTOM: Mapping[str, Callable[[MetricValue], msgspec.Struct]] = {
    "v1beta2": lambda item: _V1beta2(item.described, _Identifier(item.metric), *_fields(item.value)),
    "v1beta1": lambda item: _V1beta1(item.described, item.metric, *_fields(item.value)),
}


def _head(kind: str, api_version: str) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{}},"items":'.encode()


_CUSTOM_HEADS = {version: _head("MetricValueList", f"{CUSTOM}/{version}") for version in _CUSTOM}
_EXTERNAL_HEAD = _head("ExternalMetricValueList", f"{EXTERNAL}/v1beta1")


async def metric_value_list(version: str, items: Sequence[MetricValue]) -> bytes:
    """A MetricValueList in the given version as JSON, encoded in slices."""
    return await _list(_CUSTOM_HEADS[version], _CUSTOM[version], items)


async def external_metric_value_list(items: Sequence[ExternalMetricValue]) -> bytes:
    """An ExternalMetricValueList as JSON, encoded in slices."""
    return await _list(_EXTERNAL_HEAD, lambda item: _External(item.metric, item.labels, *_fields(item.value)), items)


async def _list(head: bytes, row: Callable[[Item], msgspec.Struct], items: Sequence[Item]) -> bytes:
    if len(items) <= _RUN:
        return b"%b%b}" % (head, _encode([row(item) for item in items]))
    pieces, slices = [head], Slices()
    for begin in range(0, len(items), _RUN):
        run = _encode([row(item) for item in items[begin : begin + _RUN]])
        pieces.append((b"," if begin else b"[") + run[1:-1])
        await slices.breathe()
    pieces.append(b"]}")
    return b"".join(pieces)
