"""A policy's memory as JSON, for its status and for `decide`.

The type of a field says how it is written: seconds as RFC 3339 with microseconds (UTC), nano-units as a canonical
quantity, a dataclass or a named tuple as an object with camelCase keys. Pods are keyed by UID. Absent or null fields
are not remembered. The last valid roster has the form in which `decide` reads rosters.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from inspect import Parameter, signature
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from adapter.load.memory import (
    KEPT,
    AheadSample,
    Beyond,
    Departed,
    Kept,
    LastSample,
    Memory,
    PodMemory,
    Replacement,
    SampleMemory,
)
from adapter.load.quantity import QuantityError, nano_text, parse_nano
from adapter.load.roster import Instance, Roster
from adapter.runtime.faults import Fault, FaultyDocument, path_of, shorten
from adapter.runtime.times import format_micro_time, parse_time

MOST_ITEMS = 5000
"""The pods, samples or instances that are read: as many as fit into two seconds."""
_LARGEST = 2**63
_LATEST = 221_845_392_000.0
"""The year 9000, so that later times derived from it can still be written."""
_QUANTITY, _NUMBER = "value", "weight"
"""The only integer that is a quantity, and the only float that is no time."""
_NOTHING: tuple[Any, ...] = None, "", {}, (), Replacement()

Path = tuple[str | int, ...]


class MemoryDecodeError(FaultyDocument):
    """The data is not a memory; `faults` lists every fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenPod(PodMemory):
    """A pod's memory as it is written: with its samples by metric, which the memory has by metric and pod."""

    last_sample: Mapping[str, LastSample] = field(default_factory=dict)
    ahead: Mapping[str, AheadSample] = field(default_factory=dict)


def _fields_of(kind: type) -> Mapping[str, tuple[str, Any, bool, Kept | None]]:
    """By key, the fields of a type that are written: name, type without None, whether it is required, and `KEPT`."""
    hints, places = get_type_hints(kind) | {"pods": Mapping[str, _WrittenPod]}, KEPT.get(kind, {})
    types = {name: get_args(hint)[0] if isinstance(hint, UnionType) else hint for name, hint in hints.items()}
    camel_case = partial(re.sub, "_(.)", lambda match: match[1].upper())
    return {
        camel_case(name): (name, types[name], parameter.default is Parameter.empty, places.get(name))
        for name, parameter in signature(kind).parameters.items()
        if places.get(name) is not Kept.IN_PROCESS and types[name] != Mapping[str, SampleMemory]
    }


_FIELDS: Mapping[type, Mapping[str, tuple[str, Any, bool, Kept | None]]] = {
    kind: _fields_of(kind)
    for kind in (
        Memory, PodMemory, _WrittenPod, Departed, LastSample, AheadSample, Beyond, Replacement, Roster, Instance,
    )
}  # fmt: skip


def lazy_keys(kind: type) -> set[str]:
    """The keys of a type's fields that are written lazily."""
    return {key for key, (_, _, _, place) in _FIELDS[kind].items() if place is Kept.LAZILY}


def memory_to_json(memory: Memory, *dropped: Kept) -> dict[str, Any]:
    """The memory as JSON data, without empty fields and those that are kept there."""
    return to_json(replace(memory, pods={}), *dropped) | {"pods": dict(remembered_pods(memory))}


def remembered_pods(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field `pods` of the memory, one at a time: UID and data."""
    for uid, pod in memory.pods.items():
        samples = {"lastSample": memory.last_samples(uid), "ahead": memory.ahead_samples(uid)}
        yield uid, to_json(pod) | {key: _plain(each) for key, each in samples.items() if each}


def to_json(item: Any, *dropped: Kept) -> dict[str, Any]:
    """A dataclass or named tuple of the memory as JSON data, without empty fields and those that are kept there."""
    return {
        key: _plain(value, *dropped, name=name, kind=kind)
        for key, (name, kind, _, place) in _FIELDS[type(item)].items()
        if place not in dropped and (value := getattr(item, name)) not in _NOTHING
    }


def _plain(value: Any, *dropped: Kept, name: str = "", kind: Any = None) -> Any:
    """The value of a field of this name and type as JSON data."""
    if type(value) in _FIELDS:
        return to_json(value, *dropped)
    if isinstance(value, Mapping):
        return {key: _plain(item, *dropped) for key, item in value.items()}
    if isinstance(value, tuple):
        return [to_json(item, *dropped) for item in value]
    if name == _QUANTITY:
        return nano_text(value)
    if kind is float and name != _NUMBER:
        return format_micro_time(value)
    return value.value if isinstance(value, StrEnum) else value


class MemoryReader:
    """Reads memories and rosters, and collects every fault. What is read with a fault is of no use.

    Unless `strict`, unknown keys are ignored: another version may have written them. `most`: how many items the fields
    with these keys have at most.
    """

    def __init__(self, *, strict: bool = True, most: Mapping[str, int] | None = None) -> None:
        self.faults: list[Fault] = []
        self._strict = strict
        self._most = most or {}

    def memory(self, data: object, at: Path) -> Memory:
        """A memory; an empty one for null."""
        memory: Memory = self._item(Memory, data, at)
        pods = cast(Mapping[str, _WrittenPod], memory.pods)
        samples = {
            name: SampleMemory(
                last={uid: pod.last_sample[name] for uid, pod in pods.items() if name in pod.last_sample},
                ahead={uid: pod.ahead[name] for uid, pod in pods.items() if name in pod.ahead},
            )
            for name in sorted({name for pod in pods.values() for name in (*pod.last_sample, *pod.ahead)})
        }
        names = [name for name, *_ in _FIELDS[PodMemory].values()]
        bare = {uid: PodMemory(**{name: getattr(pod, name) for name in names}) for uid, pod in pods.items()}
        return replace(memory, pods=bare, samples=samples)

    def roster(self, data: object, at: Path) -> Roster:
        """A roster. Its time is required."""
        return cast(Roster, self._item(Roster, data, at))

    def _item(self, kind: Any, data: object, at: Path) -> Any:
        given, fields = self.mapping(data, at), _FIELDS[kind]
        for key in given if self._strict else ():
            if key not in fields:
                self.fault((*at, key), given[key], f"is unknown here; known are {', '.join(sorted(fields))}")
        values = {}
        for key, (name, wanted, is_required, _) in fields.items():
            value, most = given.get(key), self._most.get(key)
            if most is not None and isinstance(value, Mapping | list) and len(value) > most:
                self.fault((*at, key), None, f"has {len(value)} items; at most {most} are written")
            elif value is not None:
                values[name] = self._value(wanted, name, value, (*at, key))
            elif is_required:
                self.fault((*at, key), None, "is required")
                values[name] = None
        return kind(**values)

    def _value(self, kind: Any, name: str, data: Any, at: Path) -> Any:
        if kind in _FIELDS:
            return self._item(kind, data, at)
        if get_origin(kind) is tuple:
            inner, sequence = get_args(kind)[0], self.sequence(data, at)
            return tuple([self._item(inner, item, (*at, index)) for index, item in enumerate(sequence)])
        if get_origin(kind) is not None:
            inner, items = get_args(kind)[1], self.mapping(data, at).items()
            return {
                str(k): _text(item) if inner is str else self._item(inner, item, (*at, str(k))) for k, item in items
            }
        return self._scalar(kind, name, data, at)

    def _scalar(self, kind: Any, name: str, data: Any, at: Path) -> Any:
        if kind is float and name != _NUMBER:
            return self.time(data, at)
        if name == _QUANTITY:
            try:
                return parse_nano(_text(data))
            except QuantityError as error:
                self.fault(at, data, str(error))
                return 0
        if issubclass(kind, StrEnum):
            if data not in list(kind):
                self.fault(at, data, f"must be one of {', '.join(kind)}")
                return None
            return kind(data)
        if type(data) not in ((float, int) if kind is float else (kind,)):
            self.fault(at, data, f"must be of type {kind.__name__}")
        elif kind is float and not abs(data) < _LARGEST:
            self.fault(at, data, "must be a finite number below 2^63")
        elif kind is int and not 0 <= data < _LARGEST:
            self.fault(at, data, "must be a whole number that is not negative, and below 2^63")
        return data

    def time(self, data: object, at: Path) -> float:
        """Epoch seconds of an RFC 3339 time."""
        seconds = parse_time(data)
        if seconds is None:
            self.fault(at, data, "must be a time with its offset, such as 2026-01-01T12:00:00Z")
        elif not 0 <= seconds < _LATEST:
            self.fault(at, data, "must be a time from 1970 to the year 9000")
            return 0.0
        return seconds or 0.0

    def mapping(self, data: object, at: Path) -> Mapping[str, Any]:
        """A mapping; empty where it is null or faulty."""
        return cast(Mapping[str, Any], self._collection(data, Mapping, {}, "a mapping", at))

    def sequence(self, data: object, at: Path) -> list[Any]:
        """A list; empty where it is null or faulty."""
        return cast(list[Any], self._collection(data, list, [], "a list", at))

    def _collection(self, data: Any, kind: Any, empty: Any, noun: str, at: Path) -> Any:
        if isinstance(data, kind) and len(data) <= MOST_ITEMS:
            return data
        if isinstance(data, kind):
            advice = f"has {len(data)} items; at most {MOST_ITEMS} are read, so leave out what is not needed"
            self.fault(at, None, advice)
        elif data is not None:
            self.fault(at, data, f"must be {noun}")
        return empty

    def fault(self, at: Path, value: object, advice: str) -> None:
        """Add a fault."""
        self.faults.append(Fault(path_of(at), value, advice))


def _text(value: object) -> str:
    """The value as text, shortened where it is nested: its text may be long."""
    return shorten(value) if isinstance(value, dict | list) else str(value)
