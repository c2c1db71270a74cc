"""Kubernetes objects as they are written or sent, before they are read as policies and HPAs."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument

MAX_NAME_LENGTH = 253

Source = Mapping[str, Any] | bytes | msgspec.Raw | msgspec.Struct
"""An object from a file, from the wire, or already decoded in part."""


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


class PolicyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A WatermarkPolicy without managed fields and status; the spec stays a plain mapping for `parse_policy`."""

    metadata: PolicyMetadata = PolicyMetadata()
    spec: dict[str, Any] | None = None


def as_mapping(source: Source) -> Mapping[str, Any]:
    """The object as plain data. Raises PolicyError for bytes that are no JSON object."""
    if isinstance(source, Mapping):
        return source
    if isinstance(source, msgspec.Struct):
        try:
            plain: dict[str, Any] = msgspec.to_builtins(source)
        except RecursionError:
            raise PolicyError([Fault("", None, "is nested too deeply")]) from None
        return plain
    try:
        return Decoder(dict[str, Any]).decode(source)
    except msgspec.MsgspecError as error:
        raise PolicyError([Fault("", None, f"is not a JSON object: {error}")]) from None


def type_fault(error: msgspec.ValidationError) -> Fault:
    """The fault of a value of a wrong type: msgspec's message ends with its path, and names a field that is missing."""
    advice, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`")
    _, missing, key = advice.rstrip("`").partition("missing required field `")
    return Fault(f"{place}.{key}".strip(".") if missing else place.lstrip("."), None, advice)
