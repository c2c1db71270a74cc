"""A part of a run as a JSON file: what was run, which shard it is, and a row for each of its services."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from adapter.commands.replay.comparison import SUBJECT
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, first_names, shorten

MOST_SHARDS = 10_000
_TITLE = "the parts cannot be merged"


class PolicyName(msgspec.Struct, frozen=True):
    """The policy of a row; a file that could not be read has its name, and no namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}".removeprefix("/")


class RunRow(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of one autoscaler, as those of `replay -o json` without its changes and its chart."""

    name: str
    seconds: float
    unknown_seconds: float
    replicas: Mapping[str, float]
    over_high_seconds: float
    longest_over_high_seconds: float
    shortfall_ratio: float | None
    lost_load_seconds: str | None
    change_count: int
    flaps: int
    overshoot: int
    pod_hours: float
    cost: float | None


class ServiceRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A service: its runs (the stock HPA on the raw average, on the effective one, the policy), or its error.

    `recommendation`: what a search recommends (`--annotate`); None where it was not asked for.
    """

    policy: PolicyName
    error: str | None = None
    ticks: int = 0
    runs: tuple[RunRow, ...] = ()
    recommendation: str | None = None


class Shard(msgspec.Struct, frozen=True):
    """Part `index` (from 0) of `count`: each service is in one of them, by its name alone."""

    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)] = 1

    def has(self, namespace: str, name: str) -> bool:
        """Whether the service is in this part."""
        digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index


class FleetPart(msgspec.Struct, frozen=True):
    """`run` is all that the figures depend on beside the services: parts with another one are of another run."""

    shard: Shard
    run: Mapping[str, Any]
    services: tuple[ServiceRow, ...]


_PART = Decoder(FleetPart)


def to_json(part: FleetPart) -> str:
    """The part on one line."""
    return msgspec.json.encode(part).decode()


def read_part(content: bytes, name: str) -> FleetPart:
    """The part in a file. Raises FaultyDocument that names the file."""
    try:
        part = _PART.decode(content)
    except msgspec.MsgspecError as error:
        raise _no_part(name, str(error)) from error
    if part.shard.index >= part.shard.count:
        raise _no_part(name, f"it is part {part.shard.index} of {part.shard.count}, counted from 0")
    for service in part.services:
        if service.error is None and len(service.runs) <= SUBJECT:
            raise _no_part(name, f"{service.policy} has no run of its policy")
    return part


def _no_part(name: str, why: str) -> FaultyDocument:
    advice = f"is no part of a run ({why}); a part is what `replay --all --shard I/N` writes"
    return FaultyDocument([Fault(name, None, advice)], _TITLE)


def merge(parts: Mapping[str, FleetPart]) -> FleetPart:
    """All parts of one run (by the names of their files) as one. Raises FaultyDocument for all that does not fit."""
    faults = list(_faults(parts))
    if faults:
        raise FaultyDocument(first_faults(faults), _TITLE)
    first = next(iter(parts.values()))
    services = sorted(
        (service for part in parts.values() for service in part.services),
        key=lambda service: (service.policy.namespace, service.policy.name),
    )
    return FleetPart(Shard(), first.run, tuple(services))


def _faults(parts: Mapping[str, FleetPart]) -> Iterator[Fault]:
    (first_name, first), *others = parts.items()
    for name, part in others:
        if part.shard.count != first.shard.count:
            yield Fault(name, part.shard.count, f"parts in its run, and {first.shard.count} in that of {first_name}")
        for key in sorted({*part.run, *first.run}):
            mine, theirs = part.run.get(key), first.run.get(key)
            if mine != theirs:
                yield Fault(f"{name}, run.{key}", mine, f"is of another run: {first_name} has {shorten(theirs)}")
    names: dict[int, list[str]] = {}
    for name, part in parts.items():
        names.setdefault(part.shard.index, []).append(name)
    for index, files in sorted(names.items()):
        if len(files) > 1:
            yield Fault(f"part {index}", None, f"is there {len(files)} times ({', '.join(files)}); keep one")
    missing = [str(index) for index in range(first.shard.count) if index not in names]
    if missing:
        which = f"{first_names(missing, 20)} {'is' if len(missing) == 1 else 'are'}"
        yield Fault("", None, f"of {first.shard.count} parts {which} missing; give all, or run them again")
    counts = Counter(service.policy for part in parts.values() for service in part.services)
    for policy in sorted((policy for policy, count in counts.items() if count > 1), key=str):
        yield Fault(str(policy), None, "is in several parts; run all parts with the same N")


def row_of(data: Mapping[str, Any]) -> ServiceRow:
    """The row of a service from the JSON data of its replay."""
    return msgspec.convert(json.loads(json.dumps(data)), ServiceRow)
