"""Holds policies in files to the CRD's own schema: types, bounds, defaults, required fields and messages of rules.

`schema.json` is the schema of a policy's spec as the CRD has it; `python -m tools.checks --write` renews it. Reading it
takes 1 ms, parsing the CRD's YAML 70 ms.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adapter.runtime.faults import Fault, closest

Schema = Mapping[str, Any]
Rules = Mapping[str, Callable[[Any], Sequence[bool]]]
"""Whether a part of a schema keeps each of its rules, by its path (`spec.metrics[].query`), in the CRD's order."""

SPEC: Schema = msgspec.json.decode((Path(__file__).parent / "schema.json").read_bytes())
_INDEX = re.compile(r"\[\d+\]")


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
    fields, found = schema["properties"], {}
    for key, item in value.items():
        if key in fields:
            found[key] = item
            continue
        known = sorted(name for name, field in fields.items() if not is_former(field))
        advice = f"unknown field{closest(str(key), known)}; known are {', '.join(known)}"
        faults.append(Fault(f"{path}.{key}", item, advice))
    for key in schema.get("required", ()):
        if found.get(key) is None:
            needed = fields[key]["description"].partition(". ")[0]
            faults.append(Fault(f"{path}.{key}", None, f"Required value: {needed}"))
    given = {key: field["default"] for key, field in fields.items() if "default" in field}
    given |= {key: item for key, item in found.items() if item is not None}
    read = {key: conform(fields[key], item, f"{path}.{key}", rules, faults) for key, item in given.items()}
    return {key: item for key, item in read.items() if item is not None}


def _list(schema: Schema, value: Any, path: str, rules: Rules, faults: list[Fault]) -> list[Any] | None:
    if not isinstance(value, list | tuple):
        faults.append(Fault(path, value, "write a list"))
        return None
    least, most = schema.get("minItems", 0), schema["maxItems"]
    if len(value) < least:
        faults.append(Fault(path, None, f"should have at least {least} items"))
    if len(value) > most:
        faults.append(Fault(path, None, f"must have at most {most} items; has {len(value)}"))
    items, seen = [], set()
    for index, item in enumerate(value[:most]):
        place = f"{path}[{index}]"
        found = conform(schema["items"], {} if item is None else item, place, rules, faults)
        name = found
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            name, place = (found or {}).get(key), f"{place}.{key}"
        if isinstance(name, str) and name in seen:
            faults.append(Fault(place, name, "Duplicate value; name each once"))
        seen.add(name if isinstance(name, str) else None)
        items.append(found)
    return items


def _scalar_fault(schema: Schema, value: Any) -> str:
    """What is wrong with a text, number, flag or quantity by its own schema; empty where nothing is."""
    if schema.get("x-kubernetes-int-or-string"):
        wanted = "write an integer, or a quantity in quotes"
        if isinstance(value, float):
            wanted = f'the API server takes a number with a fraction only in quotes: "{value}"; or write an integer'
        is_right = type(value) is int or (isinstance(value, str) and 0 < len(value) <= schema["maxLength"])
    elif schema["type"] == "boolean":
        is_right, wanted = isinstance(value, bool), "write true or false, a boolean"
    elif schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        is_right = type(value) is int and low <= value <= high
        wanted = f"write an integer, greater than or equal to {low} and less than or equal to {high}"
    elif "enum" in schema:
        is_right = isinstance(value, str) and value in schema["enum"]
        wanted = f"is not supported; write one of {', '.join(schema['enum'])}"
    else:
        least, most = schema.get("minLength", 0), schema["maxLength"]
        is_right = isinstance(value, str) and least <= len(value) <= most
        wanted = f"write a text of {least} to {most} characters"
    return "" if is_right else wanted
