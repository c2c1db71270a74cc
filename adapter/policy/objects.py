"""The forms in which an object arrives (bytes, a mapping, a msgspec Struct), and their conversion to a mapping."""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapter.runtime.decoding import decode
from adapter.runtime.faults import Fault, FaultyDocument

Source = Mapping[str, Any] | bytes | msgspec.Raw | msgspec.Struct
"""An object from a file, from the wire, or already decoded in part."""


class PolicyError(FaultyDocument):
    """A WatermarkPolicy or an HPA cannot be used; `faults` lists every fault."""


class PolicyMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
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
        return _plain(source)
    try:
        return decode(source, dict[str, Any])
    except msgspec.MsgspecError as error:
        raise PolicyError([Fault("", None, f"is not a JSON object: {error}")]) from None


def _plain(source: msgspec.Struct) -> Mapping[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.to_builtins(source)
    except RecursionError:
        raise PolicyError([Fault("", None, "is nested too deeply")]) from None
    return plain
