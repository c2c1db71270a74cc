"""The JSON edge: what an object may come as (bytes, a decoded mapping, a msgspec Struct), made one plain mapping."""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapter.runtime.decoding import decode
from adapter.runtime.faults import Fault, FaultyDocument

Source = Mapping[str, Any] | bytes | msgspec.Raw | msgspec.Struct
"""An object as it comes: from a file, off the wire, or decoded narrowly by another room."""


class PolicyError(FaultyDocument):
    """A WatermarkPolicy, or the HPA it hangs on, cannot be used; `faults` has all there is to mend."""


class PolicyMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Who a policy is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    created: str | None = msgspec.field(name="creationTimestamp", default=None)
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PolicyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A WatermarkPolicy as watched: managed fields and status are skipped, the spec stays plain for `parse_policy`."""

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
        raise PolicyError([Fault("", None, f"is no JSON object: {error}")]) from None


def _plain(source: msgspec.Struct) -> Mapping[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.to_builtins(source)
    except RecursionError:
        raise PolicyError([Fault("", None, "is nested too deep")]) from None
    return plain
