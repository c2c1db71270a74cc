"""Schemas and JSON documents as sorted lines: a path and what stands there, without any text for people."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_TEXTS = {"title", "description", "message", "externalDocs"}
_NESTED = {"properties", "items", "additionalProperties", "$ref", "$defs", "oneOf", "anyOf", "allOf", "discriminator"}
_NAMED = re.compile(r"(memory\.away|instances\[\]\.metadata|pods\[\]\.(usage|missing))$")
"""Mappings whose keys are names of pods and metrics, not keys of ours."""


def schema(node: Mapping[str, Any], path: str = "", *, types: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The fields of an OpenAPI or JSON schema, a line each, and every rule on them. `types` is what `$ref` leads to."""
    types = types if types is not None else node.get("$defs", {})
    if "$ref" in node:
        node = {**types[node["$ref"].rpartition("/")[2]], **node}
    yield f"{path or '.'} {_rules(node)}"
    for name, inner in node.get("properties", {}).items():
        yield from schema(inner, f"{path}.{name}", types=types)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), Mapping):
            yield from schema(node[key], f"{path}{'[]' if key == 'items' else '.*'}", types=types)
    for inner in (*node.get("oneOf", ()), *node.get("anyOf", ()), *node.get("allOf", ())):
        yield from schema(inner, f"{path}{_variant(inner, types)}", types=types)


def _variant(inner: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """What tells one of several schemas in a place from the others: the value of its key `type`, or its JSON type."""
    found = types[inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
    kind = found.get("properties", {}).get("type", {}).get("const") or found.get("type", "")
    return f"<{kind}>"


def _rules(node: Mapping[str, Any]) -> str:
    """What a schema says of one field, but for what is below it and for people."""
    rules = {key: value for key, value in node.items() if key not in _TEXTS | _NESTED}
    validations = [
        {key: value for key, value in rule.items() if key not in _TEXTS}
        for rule in rules.pop("x-kubernetes-validations", ())
    ]
    rules |= {"rules": validations} if validations else {}
    if node.get("additionalProperties") is False:
        rules["closed"] = True
    return json.dumps(rules, sort_keys=True)


def shape(value: object, path: str = "") -> Iterator[str]:
    """The key paths of a JSON document with the type at the end of each; an empty list or mapping is one itself."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from shape(inner, f"{path}.{'*' if _NAMED.search(path) else key}")
    elif isinstance(value, list) and value:
        for inner in value:
            yield from shape(inner, f"{path}[]")
    else:
        yield f"{path} {_type(value)}"


def _type(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    names = {str: "string", int: "number", float: "number", list: "[]", Mapping: "{}"}
    # A member of an enumeration is written as the text that it is.
    return next(name for kind, name in names.items() if isinstance(value, kind))
