"""Kubernetes objects as they are written or sent, before they are read as policies and HPAs."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from adapter.runtime.faults import Fault, FaultyDocument

MAX_NAME_LENGTH = 253


def mapping_at(data: object, *keys: str) -> Mapping[str, Any]:
    """The mapping below these keys; empty without one."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


class PolicyError(FaultyDocument):
    """A WatermarkPolicy or an HPA cannot be used; `faults` lists every fault."""


_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]


class PolicyMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's metadata."""

    name: _Name = ""
    namespace: _Name = ""
    uid: _Name = ""
    generation: int = 0
    created: str | None = msgspec.field(name="creationTimestamp", default=None)
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def type_fault(error: msgspec.ValidationError) -> Fault:
    """The fault of a value of a wrong type: msgspec's message ends with its path, and names a field that is missing."""
    advice, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`")
    _, missing, key = advice.rstrip("`").partition("missing required field `")
    return Fault(f"{place}.{key}".strip(".") if missing else place.lstrip("."), None, advice)
