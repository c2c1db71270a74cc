"""Kubernetes objects as they are written or sent, before they are read as policies and HPAs.

Policies are held to the CRD's own schema: types, bounds, defaults, required fields and messages of rules. `schema.json`
is the schema of a policy's spec as the CRD has it; `python -m tools.checks --write` renews it. Reading it takes 1 ms,
parsing the CRD's YAML 70 ms.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from adapter.runtime.faults import Fault, FaultyDocument, closest

MAX_NAME_LENGTH = 253
_DEEPEST = 100

Schema = Mapping[str, Any]
Rules = Mapping[str, Callable[[Any], Sequence[bool]]]
"""Whether a part of a schema keeps each of its rules, by its path (`spec.metrics[].query`), in the CRD's order."""

SPEC: Schema = msgspec.json.decode((Path(__file__).parent / "schema.json").read_bytes())
_INDEX = re.compile(r"\[\d+\]")


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


def conform(schema: Schema, value: Any, path: str, rules: Rules, faults: list[Fault]) -> Any:
    """The value with the schema's defaults, without its null and unusable parts. Every fault is added to `faults`.

    None stands for a value that cannot be used at all. The rules of a part are tried once it has no other fault.
    """
    before = len(faults)
    if schema.get("type") == "object":
        value = _mapping(schema, value, path, rules, faults)
    elif schema.get("type") == "array":
        value = _list(schema, value, path, rules, faults)
    elif advice := _scalar_fault(schema, value):
        faults.append(Fault(path, value, advice))
        return None
    if value is not None and len(faults) == before:
        written = schema.get("x-kubernetes-validations", ())
        kept = [False] if is_former(schema) else rules.get(_INDEX.sub("[]", path), lambda _: ())(value)
        shown = None if isinstance(value, dict | list) else value
        faults += [
            Fault(f"{path}{rule.get('fieldPath', '')}", shown, rule["message"])
            for rule, is_kept in zip(written, kept, strict=True)
            if not is_kept
        ]
    return value


def is_former(schema: Schema) -> bool:
    """Whether a field has another name now: its only rule refuses any value, and says the new name."""
    return [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())] == ["false"]


def _mapping(schema: Schema, value: Any, path: str, rules: Rules, faults: list[Fault]) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        faults.append(Fault(path, value, "write a mapping of keys"))
        return None
    fields = schema["properties"]
    given = {key: field["default"] for key, field in fields.items() if "default" in field}
    for key, item in value.items():
        if key not in fields:
            known = sorted(name for name, field in fields.items() if not is_former(field))
            advice = f"unknown field{closest(str(key), known)}; known are {', '.join(known)}"
            faults.append(Fault(f"{path}.{key}", item, advice))
        elif item is not None:
            given[key] = item
    for key in schema.get("required", ()):
        if key not in given:
            needed = fields[key]["description"].partition(". ")[0]
            faults.append(Fault(f"{path}.{key}", None, f"Required value: {needed}"))
    read = {key: conform(fields[key], item, f"{path}.{key}", rules, faults) for key, item in given.items()}
    return {key: item for key, item in read.items() if item is not None}


def _list(schema: Schema, value: Any, path: str, rules: Rules, faults: list[Fault]) -> list[Any] | None:
    if not isinstance(value, list | tuple):
        faults.append(Fault(path, value, "write a list"))
        return None
    least, most = schema.get("minItems", 0), schema["maxItems"]
    if not least <= len(value) <= most:
        bound = f"should have at least {least}" if len(value) < least else f"must have at most {most}"
        faults.append(Fault(path, None, f"{bound} items; has {len(value)}"))
    items, seen = [], set()
    for index, item in enumerate(value[:most]):
        place = f"{path}[{index}]"
        found = conform(schema["items"], {} if item is None else item, place, rules, faults)
        name = found
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            name, place = (found or {}).get(key), f"{place}.{key}"
        if isinstance(name, str):
            faults += [Fault(place, name, "Duplicate value; name each once")] if name in seen else []
            seen.add(name)
        items.append(found)
    return items


def _scalar_fault(schema: Schema, value: Any) -> str:
    """What is wrong with a text, number, flag or quantity by its own schema; empty where nothing is."""
    text = value if isinstance(value, str) else None
    if schema.get("x-kubernetes-int-or-string"):
        wanted = "write an integer, or a quantity in quotes"
        if isinstance(value, float):
            wanted = f'the API server takes a number with a fraction only in quotes: "{value}"; or write an integer'
        is_right = type(value) is int or (text is not None and 0 < len(text) <= schema["maxLength"])
    elif schema["type"] == "boolean":
        is_right, wanted = isinstance(value, bool), "write true or false, a boolean"
    elif schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        is_right = type(value) is int and low <= value <= high
        wanted = f"write an integer, greater than or equal to {low} and less than or equal to {high}"
    elif "enum" in schema:
        is_right, wanted = text in schema["enum"], f"is not supported; write one of {', '.join(schema['enum'])}"
    else:
        least, most = schema.get("minLength", 0), schema["maxLength"]
        is_right = text is not None and least <= len(text) <= most
        wanted = f"write a text of {least} to {most} characters"
    return "" if is_right else wanted
