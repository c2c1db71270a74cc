"""Kubernetes objects as they are written or sent, before they are read as policies and HPAs."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from adapter.runtime.faults import Fault, FaultyDocument

MAX_NAME_LENGTH = 253
_DEEPEST = 100


def mapping_at(data: object, *keys: str) -> Mapping[str, Any]:
    """The mapping below these keys; empty without one."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


class PolicyError(FaultyDocument):
    """A WatermarkPolicy or an HPA cannot be used; `faults` lists every fault."""


_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a policy or an HPA that no write of its status changes."""

    name: _Name = ""
    namespace: _Name = ""
    uid: _Name = ""
    generation: int = 0
    creation_timestamp: str = ""
    annotations: dict[str, str] = {}


def without_nulls(value: Any, depth: int = 0) -> Any:
    """The value as the API server stores it: null is absent. Raises msgspec.ValidationError for one nested too deeply.

    No object of Kubernetes has 100 levels; a file with 1,000 would end the interpreter's stack.
    """
    if depth > _DEEPEST:
        raise msgspec.ValidationError("is nested too deeply")
    if isinstance(value, dict):
        return {key: without_nulls(item, depth + 1) for key, item in value.items() if item is not None}
    return [without_nulls(item, depth + 1) for item in value] if isinstance(value, list) else value


def type_fault(error: msgspec.ValidationError) -> Fault:
    """The fault of a value of a wrong type: msgspec's message ends with its path, and names a field that is missing."""
    advice, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`")
    _, missing, key = advice.rstrip("`").partition("missing required field `")
    return Fault(f"{place}.{key}".strip(".") if missing else place.lstrip("."), None, advice)
