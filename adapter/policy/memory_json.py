"""A policy's memory as JSON, for its status and for `decide`.

Times are RFC 3339 with microseconds (UTC), values canonical quantities; pods are keyed by UID. Absent or null
fields are not remembered. The last valid roster has the form in which `decide` reads rosters.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sized
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from adapter.load.assessment import Verdict
from adapter.load.memory import (
    AheadSample,
    Beyond,
    Departed,
    Kept,
    LastSample,
    Listed,
    Memory,
    PodMemory,
    Replacement,
    SampleMemory,
    kept,
)
from adapter.load.quantity import NANO, QuantityError, nano_text, parse_quantity
from adapter.load.roster import Instance, Roster
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of, shorten
from adapter.runtime.times import format_micro_time, parse_time

T = TypeVar("T", LastSample, AheadSample, Beyond, Departed)
MOST_ITEMS = 5000
"""The pods, samples or instances that are read: as many as fit into two seconds."""
_TYPES: dict[str, Any] = {"bool": (bool,), "int": (int,), "str": (str,), "float": (float, int)}
_LARGEST = 2**63
_LATEST = 221_845_392_000.0
"""The year 9000, so that later times derived from it can still be written."""
_NO_TIMES = {"weight"}
"""The only float that is no time."""
_OF_METRICS = ("lastSample", "ahead")
"""Fields that JSON keeps by pod and metric, and the memory by metric and pod."""
_EMPTY = PodMemory()
_SIDES = {Verdict.ABOVE.value: True, Verdict.BELOW.value: False}


class MemoryDecodeError(FaultyDocument):
    """The data is not a memory; `faults` lists every fault."""


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data; empty fields are left out."""
    known = memory_without_pods(memory)
    known["pods"] = dict(remembered_pods(memory))
    if memory.departed:
        known["departed"] = dict(departed_pods(memory))
    if memory.last_valid is not None:
        known["lastValid"] = roster_to_json(memory.last_valid)
    return known


def remembered_pods(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field `pods` of the memory, one at a time: UID and data."""
    for uid, pod in memory.pods.items():
        known = _plain(pod) if pod != _EMPTY else {}
        for key, samples in (("lastSample", memory.last_samples(uid)), ("ahead", memory.ahead_samples(uid))):
            if samples:
                known[key] = {name: _plain(one) for name, one in samples.items()}
        yield uid, known


def departed_pods(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field `departed` of the memory, one at a time: UID and data."""
    return ((uid, _plain(pod)) for uid, pod in memory.departed.items())


def memory_without_pods(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data without its fields that have an item for each pod: pods, departed, lastValid."""
    return _plain(memory, skip={"pods", "samples", "departed", "last_valid"})


def roster_to_json(roster: Roster) -> dict[str, Any]:
    """A roster as JSON data."""
    return roster_without_instances(roster) | {"instances": [instance_to_json(one) for one in roster.instances]}


def roster_without_instances(roster: Roster) -> dict[str, Any]:
    """A roster as JSON data without its instances."""
    return _plain(roster, skip={"instances"})


def instance_to_json(instance: Instance) -> dict[str, Any]:
    """An instance of a roster as JSON data."""
    return _plain(instance)


def memory_from_json(data: object, at: tuple[str | int, ...] = ("memory",), *, strict: bool = True) -> Memory:
    """The memory from JSON data. Raises MemoryDecodeError with the foremost faults; `at` is the path they start with.

    Unless `strict`, unknown keys are ignored: another version may have written them.
    """
    reader = MemoryReader(strict=strict)
    memory = reader.memory(data, at)
    if reader.faults:
        raise MemoryDecodeError(first_faults(reader.faults))
    return memory


def _plain(item: Any, skip: Container[str] = ()) -> dict[str, Any]:
    """A dataclass or a named tuple as JSON data: camelCase keys, times as text, empty fields left out."""
    data: dict[str, Any] = {}
    for name, (key, is_time) in _KEYS[type(item)].items():
        value = getattr(item, name)
        if name in skip or value is None or value in ("", {}, Replacement()):
            continue
        if is_time:
            data[key] = format_micro_time(value)
        elif name == "value":
            data[key] = nano_text(value)
        elif name == "is_above":
            data["verdict"] = (Verdict.ABOVE if value else Verdict.BELOW).value
        elif isinstance(value, StrEnum):
            data[key] = value.value
        elif isinstance(value, Mapping):
            data[key] = {inner: each if isinstance(each, str) else _plain(each) for inner, each in value.items()}
        else:
            data[key] = _plain(value) if isinstance(value, Replacement) else value
    return data


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _keys(kind: Any) -> Mapping[str, tuple[str, bool]]:
    """The fields of a type that are part of its JSON: their keys, and whether they are times."""
    types = kind.__annotations__ if issubclass(kind, tuple) else {each.name: each.type for each in fields(kind)}
    return {
        name: (_camel(name), name not in _NO_TIMES and "float" in (one.__name__ if isinstance(one, type) else str(one)))
        for name, one in types.items()
        if name not in kept(kind, Kept.IN_PROCESS)
    }


def keys_of(kind: type, *where: Kept) -> set[str]:
    """The keys of a type's fields that are kept there."""
    return {_camel(name) for name in kept(kind, *where)}


_KEYS: Mapping[type, Mapping[str, tuple[str, bool]]] = {
    kind: _keys(kind)
    for kind in (Memory, PodMemory, Replacement, Roster, Instance, LastSample, AheadSample, Beyond, Departed)
}


def _by_metric(
    pods: Mapping[str, tuple[Mapping[str, LastSample], Mapping[str, AheadSample]]],
) -> dict[str, SampleMemory]:
    """The samples of pods, by metric and UID."""
    names = {name for last, ahead in pods.values() for name in (*last, *ahead)}
    return {
        name: SampleMemory(
            last={uid: last[name] for uid, (last, _) in pods.items() if name in last},
            ahead={uid: ahead[name] for uid, (_, ahead) in pods.items() if name in ahead},
        )
        for name in sorted(names)
    }


def _text(value: object) -> str:
    """The value as text, shortened where it is nested: its text may be long."""
    return shorten(value) if isinstance(value, dict | list) else str(value)


class MemoryReader:
    """Reads memories and rosters, and collects every fault."""

    def __init__(self, *, strict: bool = True) -> None:
        self.faults: list[Fault] = []
        self._strict = strict

    def memory(self, data: object, at: tuple[str | int, ...]) -> Memory:
        """A memory; an empty one for null."""
        known = self._fields(data, Memory, at)
        pods = self.mapping(known.pop("pods", None), (*at, "pods"))
        last_valid = known.pop("last_valid", None)
        replacement = self._fields(known.pop("replacement", None), Replacement, (*at, "replacement"))
        read = {str(uid): self._pod(pod, (*at, "pods", str(uid))) for uid, pod in pods.items()}
        return Memory(
            pods={uid: pod for uid, (pod, _, _) in read.items()},
            samples=_by_metric({uid: (last, early) for uid, (_, last, early) in read.items()}),
            departed=self._tuples(Departed, known.pop("departed", None), (*at, "departed")),
            ahead=self._tuples(AheadSample, known.pop("ahead", None), (*at, "ahead")),
            beyond=self._tuples(Beyond, known.pop("beyond", None), (*at, "beyond")),
            last_valid=None if last_valid is None else self.roster(last_valid, (*at, "lastValid")),
            replacement=Replacement(**replacement),
            **known,
        )

    def roster(self, data: object, at: tuple[str | int, ...]) -> Roster:
        """A roster. Its time is required."""
        known = self._fields(data, Roster, at)
        instances = self.sequence(known.pop("instances", None), (*at, "instances"))
        if known.get("at") is None:
            self.fault((*at, "at"), None, "is required: when the registry answered, such as 2026-01-01T12:00:00Z")
            known["at"] = 0.0
        read = [self._instance(one, (*at, "instances", index)) for index, one in enumerate(instances)]
        return Roster(instances=tuple(read), **known)

    def _instance(self, data: object, at: tuple[str | int, ...]) -> Instance:
        known = self._fields(data, Instance, at)
        metadata = self.mapping(known.pop("metadata", None), (*at, "metadata"))
        return Instance(metadata={str(key): _text(value) for key, value in metadata.items()}, **known)

    def _pod(
        self, data: object, at: tuple[str | int, ...]
    ) -> tuple[PodMemory, dict[str, LastSample], dict[str, AheadSample]]:
        """A pod's memory, and its samples by metric."""
        known = self._fields(data, PodMemory, at, also=_OF_METRICS)
        samples = self._tuples(LastSample, known.pop("lastSample", None), (*at, "lastSample"))
        ahead = self._tuples(AheadSample, known.pop("ahead", None), (*at, "ahead"))
        return PodMemory(**known), samples, ahead

    def _tuples(self, kind: type[T], data: object, at: tuple[str | int, ...]) -> dict[str, T]:
        return {str(key): self._tuple(kind, one, (*at, str(key))) for key, one in self.mapping(data, at).items()}

    def _tuple(self, kind: type[T], data: object, at: tuple[str | int, ...]) -> T:
        """A named tuple. All of its times and values are required."""
        known, values = self.mapping(data, at), list[Any]()
        for name, (key, is_time) in _KEYS[kind].items():
            if is_time:
                values.append(self.time(known.get(key), (*at, key)))
            elif name == "value":
                values.append(self.nano(known.get(key), (*at, key)))
            elif name == "is_above":
                values.append(_SIDES[self._one_of(_SIDES, known.get("verdict"), (*at, "verdict"))])
            else:
                values.append(self._tuples(LastSample, known.get(key), (*at, key)))
        return kind(*values)

    def _one_of(self, names: Iterable[str], value: object, at: tuple[str | int, ...]) -> str:
        """The value if it is one of these names; else the first one, and a fault."""
        first, *_ = every = [*map(str, names)]
        if isinstance(value, str) and value in every:
            return value
        self.fault(at, value, f"must be one of {', '.join(every)}")
        return first

    def mapping(self, data: object, at: tuple[str | int, ...]) -> Mapping[str, Any]:
        """A mapping; empty where it is null or faulty."""
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            self.fault(at, data, "must be a mapping")
            return {}
        return data if self._not_too_many(data, at) else {}

    def sequence(self, data: object, at: tuple[str | int, ...]) -> list[Any]:
        """A list; empty where it is null or faulty."""
        if data is None:
            return []
        if not isinstance(data, list):
            self.fault(at, data, "must be a list")
            return []
        return data if self._not_too_many(data, at) else []

    def _not_too_many(self, data: Sized, at: tuple[str | int, ...]) -> bool:
        if len(data) > MOST_ITEMS:
            self.fault(
                at, None, f"has {len(data)} items; at most {MOST_ITEMS} are read, so leave out what is not needed"
            )
        return len(data) <= MOST_ITEMS

    def time(self, data: object, at: tuple[str | int, ...]) -> float:
        """Epoch seconds of an RFC 3339 time."""
        seconds = parse_time(data)
        if seconds is None:
            self.fault(at, data, "must be a time with its offset, such as 2026-01-01T12:00:00Z")
        elif not 0 <= seconds < _LATEST:
            self.fault(at, data, "must be a time from 1970 to the year 9000")
            return 0.0
        return seconds or 0.0

    def nano(self, data: object, at: tuple[str | int, ...]) -> int:
        """A non-negative quantity in nano-units."""
        try:
            value = parse_quantity(_text(data))
        except QuantityError as error:
            self.fault(at, data, str(error))
            return 0
        if value < 0:
            self.fault(at, data, "must not be negative")
        return int(-(-value * NANO // 1))

    def fault(self, at: tuple[str | int, ...], value: object, advice: str) -> None:
        """Add a fault."""
        self.faults.append(Fault(path_of(at), value, advice))

    def _fields(
        self, data: object, kind: type, at: tuple[str | int, ...], also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The fields of a dataclass from camelCase data; the values of the keys in `also` as they are.

        Unknown keys and wrong types are faults.
        """
        keys = _KEYS[kind]
        known = {keys[field.name][0]: field for field in fields(kind) if field.name in keys and field.name != "samples"}
        values = {}
        for key, value in self.mapping(data, at).items():
            field = known.get(key)
            if key in also:
                values[key] = value
            elif field is None and self._strict:
                self.fault((*at, key), value, f"is unknown here; known are {', '.join(sorted([*known, *also]))}")
            elif field is not None and value is not None:
                is_time = keys[field.name][1]
                read = self.time(value, (*at, key)) if is_time else self._typed(value, field.type, (*at, key))
                values[field.name] = read
        return values

    def _typed(self, value: Any, kind: object, at: tuple[str | int, ...]) -> Any:
        wanted = (kind.__name__ if isinstance(kind, type) else str(kind)).removesuffix(" | None")
        if kind == Listed | None:
            return Listed(self._one_of(Listed, value, at))
        expected = _TYPES.get(wanted)
        if expected is None:
            return value
        if not isinstance(value, expected) or (isinstance(value, bool) and wanted != "bool"):
            self.fault(at, value, f"must be of type {wanted}")
            return expected[0]()
        return self._number(value, wanted, at) if wanted in {"int", "float"} else value

    def _number(self, value: float, wanted: str, at: tuple[str | int, ...]) -> float:
        if wanted == "float" and not abs(value) < _LARGEST:
            self.fault(at, value, "must be a finite number below 2^63")
            return 0.0
        if wanted == "int" and not 0 <= value < _LARGEST:
            self.fault(at, value, "must be a whole number that is not negative, and below 2^63")
            return 0
        return float(value) if wanted == "float" else value
