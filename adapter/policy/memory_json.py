"""A policy's memory as JSON, for its status and for `decide`.

Times are RFC 3339 with microseconds (UTC), values canonical quantities; pods are keyed by UID. Absent or null
fields are not remembered. The last valid roster has the form in which `decide` reads rosters.
"""

from collections.abc import Iterator, Mapping, Sized
from dataclasses import fields
from typing import Any

from adapter.load.assessment import Verdict
from adapter.load.memory import AheadSample, Beyond, Departed, LastSample, Memory, PodMemory, Replacement, SampleMemory
from adapter.load.quantity import NANO, QuantityError, nano_text, parse_quantity
from adapter.load.roster import Instance, Roster
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of, shorten
from adapter.runtime.times import format_micro_time, parse_time

_TIMES = {
    "seen", "absentSince", "outSince", "doubtSince", "rosterAt", "rostersSince", "emptySince", "reconnectedAt",
    "holdUntil", "rolloutSince", "notedAt", "firstStep", "lastScale", "lastRise", "errorSince", "at", "registeredAt",
    "firstSeen", "doubtfulUntil", "since", "until",
}  # fmt: skip


MOST_ITEMS = 5000
"""The pods, samples or instances that are read: as many as fit into two seconds."""
_TYPES: dict[str, Any] = {"bool": (bool,), "int": (int,), "str": (str,), "float": (float, int)}
_LARGEST = 2**63
_LATEST = 221_845_392_000.0
"""The year 9000, so that later times derived from it can still be written."""
_OWN = {"observing_since", "unobserved_change", "census"}
"""Fields that are local to a process."""
_UNWRITTEN = _OWN | {"samples"}
_OF_METRICS = ("lastSample", "ahead")
"""Fields that JSON keeps by pod and metric, and the memory by metric and pod."""
_APART = {"pods", "samples", "departed", "ahead", "beyond", "last_valid", "replacement"} | _OWN


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
        if known := _dump_pod(uid, pod, memory):
            yield uid, known


def departed_pods(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field `departed` of the memory, one at a time: UID and data."""
    return ((uid, _dump_departed(pod)) for uid, pod in memory.departed.items())


def memory_without_pods(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data without its fields that have an item for each pod: pods, departed, lastValid."""
    known: dict[str, Any] = _plain(memory, skip=_APART)
    if memory.ahead:
        known["ahead"] = _dump_ahead(memory.ahead)
    if memory.beyond:
        known["beyond"] = {name: _dump_beyond(one) for name, one in memory.beyond.items()}
    if memory.replacement != Replacement():
        known["replacement"] = _plain(memory.replacement)
    return known


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


def _plain(item: Any, skip: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    """A dataclass as JSON data: camelCase keys, times as text, empty fields left out."""
    data = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if field.name in skip or value is None or (not value and isinstance(value, str | Mapping)):
            continue
        key = _camel(field.name)
        data[key] = format_micro_time(value) if key in _TIMES else dict(value) if isinstance(value, Mapping) else value
    return data


def _dump_pod(uid: str, pod: PodMemory, memory: Memory) -> dict[str, Any]:
    known = _plain(pod) if pod != PodMemory() else {}
    last = memory.last_samples(uid)
    if last:
        known["lastSample"] = _dump_samples(last)
    ahead = {name: seen.ahead[uid] for name, seen in memory.samples.items() if uid in seen.ahead}
    if ahead:
        known["ahead"] = _dump_ahead(ahead)
    return known


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


def _dump_departed(pod: Departed) -> dict[str, Any]:
    last = {"lastSample": _dump_samples(pod.last_sample)} if pod.last_sample else {}
    return {"at": format_micro_time(pod.at)} | last


def _dump_samples(samples: Mapping[str, LastSample]) -> dict[str, Any]:
    return {name: {"at": format_micro_time(one.at), "value": nano_text(one.value)} for name, one in samples.items()}


def _dump_ahead(samples: Mapping[str, AheadSample]) -> dict[str, Any]:
    return {
        name: {
            "at": format_micro_time(one.at),
            "value": nano_text(one.value),
            "firstSeen": format_micro_time(one.first_seen),
        }
        for name, one in samples.items()
    }


def _dump_beyond(one: Beyond) -> dict[str, Any]:
    verdict = Verdict.ABOVE if one.is_above else Verdict.BELOW
    return {
        "verdict": verdict.value,
        "since": format_micro_time(one.since),
        "until": format_micro_time(one.until),
    }


def _text(value: object) -> str:
    """The value as text, shortened where it is nested: its text may be long."""
    return shorten(value) if isinstance(value, dict | list) else str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


class MemoryReader:
    """Reads memories and rosters, and collects every fault."""

    def __init__(self, *, strict: bool = True) -> None:
        self.faults: list[Fault] = []
        self._strict = strict

    def memory(self, data: object, at: tuple[str | int, ...]) -> Memory:
        """A memory; an empty one for null."""
        known = self._fields(data, Memory, at)
        pods = self.mapping(known.pop("pods", None), (*at, "pods"))
        departed = self.mapping(known.pop("departed", None), (*at, "departed"))
        ahead = self._ahead(known.pop("ahead", None), (*at, "ahead"))
        beyond = self.mapping(known.pop("beyond", None), (*at, "beyond"))
        last_valid = known.pop("last_valid", None)
        replacement = self._fields(known.pop("replacement", None), Replacement, (*at, "replacement"))
        read = {str(uid): self._pod(pod, (*at, "pods", str(uid))) for uid, pod in pods.items()}
        return Memory(
            pods={uid: pod for uid, (pod, _, _) in read.items()},
            samples=_by_metric({uid: (last, early) for uid, (_, last, early) in read.items()}),
            departed={str(uid): self._departed(pod, (*at, "departed", str(uid))) for uid, pod in departed.items()},
            ahead=ahead,
            beyond={str(name): self._beyond(one, (*at, "beyond", str(name))) for name, one in beyond.items()},
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
        samples = self._samples(known.pop("lastSample", None), (*at, "lastSample"))
        ahead = self._ahead(known.pop("ahead", None), (*at, "ahead"))
        return PodMemory(**known), samples, ahead

    def _departed(self, data: object, at: tuple[str | int, ...]) -> Departed:
        known = self.mapping(data, at)
        samples = self._samples(known.get("lastSample"), (*at, "lastSample"))
        return Departed(self.time(known.get("at"), (*at, "at")), samples)

    def _samples(self, data: object, at: tuple[str | int, ...]) -> dict[str, LastSample]:
        return {str(name): self._sample(one, (*at, str(name))) for name, one in self.mapping(data, at).items()}

    def _ahead(self, data: object, at: tuple[str | int, ...]) -> dict[str, AheadSample]:
        samples = {}
        for name, one in self.mapping(data, at).items():
            sample = self._sample(one, (*at, str(name)))
            seen = self.time(self.mapping(one, (*at, str(name))).get("firstSeen"), (*at, str(name), "firstSeen"))
            samples[str(name)] = AheadSample(sample.at, sample.value, seen)
        return samples

    def _beyond(self, data: object, at: tuple[str | int, ...]) -> Beyond:
        known = self.mapping(data, at)
        sides = {Verdict.ABOVE.value: True, Verdict.BELOW.value: False}
        verdict = known.get("verdict")
        if not isinstance(verdict, str) or verdict not in sides:
            self.fault((*at, "verdict"), verdict, f"must be one of {', '.join(sides)}")
        return Beyond(
            is_above=verdict == Verdict.ABOVE.value,
            since=self.time(known.get("since"), (*at, "since")),
            until=self.time(known.get("until"), (*at, "until")),
        )

    def _sample(self, data: object, at: tuple[str | int, ...]) -> LastSample:
        known = self.mapping(data, at)
        return LastSample(
            at=self.time(known.get("at"), (*at, "at")), value=self.nano(known.get("value"), (*at, "value"))
        )

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
        known = {_camel(field.name): field for field in fields(kind) if field.name not in _UNWRITTEN}
        values = {}
        for key, value in self.mapping(data, at).items():
            field = known.get(key)
            if key in also:
                values[key] = value
            elif field is None and self._strict:
                self.fault((*at, key), value, f"is unknown here; known are {', '.join(sorted([*known, *also]))}")
            elif field is not None and value is not None:
                values[field.name] = (
                    self.time(value, (*at, key)) if key in _TIMES else self._typed(value, field.type, (*at, key))
                )
        return values

    def _typed(self, value: Any, kind: object, at: tuple[str | int, ...]) -> Any:
        wanted = (kind.__name__ if isinstance(kind, type) else str(kind)).removesuffix(" | None")
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
