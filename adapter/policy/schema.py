"""The CRD's own schema, for policies in files: types, bounds, defaults, required and former names, read as it has them.

Its rules in CEL are no part of this; `adapter.policy.watermark_policy` has them.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.runtime.faults import Fault, closest

Schema = Mapping[str, Any]

_MOST_GUESSES = 20
_CRD = Path("manifests/crd/watermarkpolicies.yaml")
_PACKAGE = Path(__file__).parents[1]
"""Wheels have the manifests in the package, checkouts beside it."""


@functools.cache
def spec_schema() -> Schema:
    """The schema of a policy's spec."""
    path = next(path for parent in (_PACKAGE, _PACKAGE.parent) if (path := parent / _CRD).exists())
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    definition = yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506  both loaders are safe
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def conform(schema: Schema, value: Any, path: str, faults: list[Fault]) -> Any:
    """The value with the schema's defaults, without its null and unusable parts. Every fault is added to `faults`.

    None stands for a value that cannot be used at all.
    """
    kind = "quantity" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    if kind == "object":
        return _mapping(schema, value, path, faults)
    if kind == "array":
        return _list(schema, value, path, faults)
    advice = _CHECKS[kind](schema, value)
    if advice:
        faults.append(Fault(path, value, advice))
        return None
    return value


def _mapping(schema: Schema, value: Any, path: str, faults: list[Fault]) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        faults.append(Fault(path, value, "write a mapping of keys"))
        return None
    fields, found, guesses = schema["properties"], {}, 0
    for key, item in value.items():
        place = f"{path}.{key}"
        if key not in fields:
            known = [name for name, field in fields.items() if not _former(field)]
            # A suggestion takes time to find; further ones would not be read.
            guesses += 1
            meant = closest(str(key), known) if guesses <= _MOST_GUESSES else ""
            faults.append(Fault(place, item, f"unknown field{meant}; known are {', '.join(sorted(known))}"))
        elif _former(fields[key]):
            faults.append(Fault(place, item, _former(fields[key])))
        elif item is not None:
            found[key] = conform(fields[key], item, place, faults)
    for key in schema.get("required", ()):
        if value.get(key) is None:
            needed = fields[key]["description"].partition(". ")[0]
            faults.append(Fault(f"{path}.{key}", None, f"Required value: {needed}"))
    defaults = {key: field["default"] for key, field in fields.items() if "default" in field}
    nested = {key: conform(fields[key], default, "", []) for key, default in defaults.items() if key not in found}
    return nested | {key: item for key, item in found.items() if item is not None}


def _former(field: Schema) -> str:
    """The sentence of a field that has another name now; empty for others."""
    rules = field.get("x-kubernetes-validations", ())
    return next((rule["message"] for rule in rules if rule["rule"] == "false"), "")


def _list(schema: Schema, value: Any, path: str, faults: list[Fault]) -> list[Any] | None:
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
        found = conform(schema["items"], {} if item is None else item, place, faults)
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            found, place = found or {}, f"{place}.{key}"
        name = found.get(key) if isinstance(found, dict) else found
        if name is not None and name in seen:
            faults.append(Fault(place, name, "Duplicate value; name each once"))
        seen.add(name)
        items.append(found)
    return items


def _text_fault(schema: Schema, value: Any) -> str:
    if "enum" in schema:
        allowed = schema["enum"]
        return (
            ""
            if isinstance(value, str) and value in allowed
            else f"is not supported; write one of {', '.join(allowed)}"
        )
    if value == "":
        return "is empty; write a value, or remove the key"
    most = schema["maxLength"]
    return "" if isinstance(value, str) and len(value) <= most else f"write a text of at most {most} characters"


def _integer_fault(schema: Schema, value: Any) -> str:
    low, high = schema["minimum"], schema["maximum"]
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return ""
    return f"write an integer, greater than or equal to {low} and less than or equal to {high}"


def _flag_fault(_: Schema, value: Any) -> str:
    return "" if isinstance(value, bool) else "write true or false, a boolean"


def _quantity_fault(schema: Schema, value: Any) -> str:
    if isinstance(value, float):
        return f'the API server takes a number with a fraction only in quotes: "{value}"; or write an integer'
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and 0 < len(value) <= schema["maxLength"]):
        return ""
    return "write an integer, or a quantity in quotes"


_CHECKS: dict[str, Callable[[Schema, Any], str]] = {
    "string": _text_fault,
    "integer": _integer_fault,
    "boolean": _flag_fault,
    "quantity": _quantity_fault,
}
