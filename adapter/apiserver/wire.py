"""Encodes metric lists as JSON: custom.metrics.k8s.io v1beta1 and v1beta2, and external.metrics.k8s.io v1beta1.

Values are canonical quantities, exact to nano-units: the HPA itself rounds up to milli-units, per item. `selector` is
always present (null); a window is in whole seconds and absent if unknown; a timestamp is that of the sample.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.apiserver.discovery import LIST_KINDS
from adapter.kube.selectors import LabelSelector
from adapter.runtime.concurrency import Slices
from adapter.runtime.times import format_time

Item = TypeVar("Item")
Row = dict[str, Any]
"""One item of a list."""
_encode = msgspec.json.Encoder().encode
_timestamp = functools.lru_cache(4096)(format_time)


class Value(NamedTuple):
    """One value: canonical quantity, sample time (epoch seconds), window in seconds (None: unknown)."""

    text: str
    at: float
    window: float | None = None


def described(kind: str, namespace: str, name: str, api_version: str) -> Row:
    """The object that a custom metric describes."""
    return {"kind": kind, "namespace": namespace, "name": name, "apiVersion": api_version}


def custom_row(version: str, about: Row, metric: str, value: Value) -> Row:
    """A MetricValue of custom.metrics.k8s.io."""
    if version == "v1beta1":
        return {"describedObject": about, "metricName": metric, **_fields(value, "window"), "selector": None}
    return {"describedObject": about, "metric": {"name": metric, "selector": None}, **_fields(value, "windowSeconds")}


def external_row(metric: str, labels: Mapping[str, str], value: Value) -> Row:
    """An ExternalMetricValue."""
    return {"metricName": metric, "metricLabels": labels, **_fields(value, "window")}


def _fields(value: Value, window: str) -> Row:
    fields: Row = {"timestamp": _timestamp(int(value.at)), "value": value.text}
    return fields if value.window is None else {**fields, window: max(0, round(value.window))}


def selected_by(*selectors: LabelSelector | None) -> str:
    """The selectors of a request in the sentence of an error; empty without any."""
    texts = " and ".join(repr(str(each)) for each in selectors if each)
    return f" that {texts} selects" if texts else ""


async def metric_list(group: str, version: str, rows: Iterable[Row]) -> bytes:
    """The list of these rows, encoded in slices."""
    head = {"kind": LIST_KINDS[group], "apiVersion": f"{group}/{version}", "metadata": {}}
    items = b",".join(await in_slices(map(_encode, rows)))
    return b'%b,"items":[%b]}' % (_encode(head)[:-1], items)


async def in_slices(items: Iterable[Item | None]) -> list[Item]:
    """The items that are not None. Between two of them others are answered, where making them takes over 2 ms."""
    found, slices = list[Item](), Slices()
    for item in items:
        if item is not None:
            found.append(item)
        await slices.breathe()
    return found
