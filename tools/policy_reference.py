"""Writes docs/policy.md, the reference of a WatermarkPolicy's fields, from the schema of the CRD.

The examples are values of docs/examples/policies.yaml, whose policies a test reads.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from adapter.policy.documents import is_former

ROOT = Path(__file__).parents[1]
CRD = ROOT / "manifests" / "crd" / "watermarkpolicies.yaml"
EXAMPLES = ROOT / "docs" / "examples" / "policies.yaml"
_PREFACE = """\
Every field of a WatermarkPolicy; in a cluster, `kubectl explain watermarkpolicy.spec --recursive` shows them too. The
API server rejects a policy that breaks a bound or a rule of this page, with the rule's sentence; `kubectl` rejects
unknown fields, and other clients get a warning. How usage becomes a count is in
[the decision](decision.md).

An *amount* is a quantity such as `1200m`, `0.5` or `300Mi`, or, for a metric with `relativeTo`, a share such as `80%`
or `0.8`. The examples come from [these policies](examples/policies.yaml).
"""
_FIELDS = "| field | type | default | bounds | what it says | example |\n|---|---|---|---|---|---|"
_STATUS = "| field | type | column | what it says |\n|---|---|---|---|"
_SHOWN = """\
A column is one of `kubectl get wmp`; `-o wide` adds METRIC and DECISION. MODE is `spec.mode`, and READY the condition
`Ready`: False means that the HPA receives an error and keeps its count. The fields of a condition are those of every
Kubernetes object; [conditions](conditions.md) lists the types.
"""
_STANDARD = "status.conditions[]"
_DEFAULT = re.compile(r"Default: ([^.;]+(?:\.\d[^.;]*)*)")
_MARKED = re.compile(r"\b(\w+) \(the default\)")

_BOUND = re.compile(
    r"(?:must be|a ratio|metric name is|write) (more than .+|at most .+|from .+? below 1|lower case .+|five fields)"
)

Schema = dict[str, Any]


def policy() -> str:
    """The page: spec and status, one table for each list and each object with rules, and the rules below it."""
    (version,) = yaml.load(CRD.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    made = "<!-- Made by `python -m tools.checks --write`. -->\n"
    columns = {one["jsonPath"].lstrip("."): one["name"].upper() for one in version["additionalPrinterColumns"]}
    lines = [f"# Policy reference\n\n{made}", _PREFACE, *_section("spec", root["properties"]["spec"])]
    lines += ["## The policy's name\n", *_rules(root)]
    lines += [*_section("status", root["properties"]["status"], columns), _SHOWN]
    return "\n".join(lines)


def spec_schema() -> str:
    """The schema of a spec for `adapter.policy.documents`, with descriptions of required fields alone."""
    (version,) = yaml.load(CRD.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return json.dumps(_pruned(schema, is_required=False), indent=1) + "\n"


def _pruned(schema: Schema, *, is_required: bool) -> Schema:
    kept = {key: value for key, value in schema.items() if is_required or key != "description"}
    if "items" in kept:
        kept["items"] = _pruned(kept["items"], is_required=False)
    if "properties" in kept:
        fields, required = kept["properties"].items(), kept.get("required", ())
        kept["properties"] = {name: _pruned(field, is_required=name in required) for name, field in fields}
    return kept


def example_of(path: str) -> Any:
    """The value of a field in the first example that has it; None where none has it."""
    return next((value for document in examples() for value in _values(document, path.split("."))), None)


def examples() -> list[dict[str, Any]]:
    """The policies that the examples come from."""
    return list(yaml.load_all(EXAMPLES.read_text(encoding="utf-8"), yaml.CSafeLoader))


def spec_fields() -> Iterator[str]:
    """The paths of all fields of a spec, such as `spec.metrics[].query.promQL`."""
    (version,) = yaml.load(CRD.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]["versions"]
    yield from _paths("spec", version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def _section(path: str, schema: Schema, columns: Mapping[str, str] | None = None) -> Iterator[str]:
    """The table of an object's fields and its rules, then the lists and the objects with rules within."""
    yield f"## `{path}`\n"
    yield _cell(schema.get("description", "")) + "\n"
    yield _FIELDS if columns is None else _STATUS
    inner: list[tuple[str, Schema]] = []
    yield from _rows(path, "", schema, columns, inner)
    yield ""
    yield from _rules(schema)
    for key, within in inner:
        yield from _section(key, within, columns)


def _rows(
    path: str, prefix: str, schema: Schema, columns: Mapping[str, str] | None, inner: list[tuple[str, Schema]]
) -> Iterator[str]:
    """A row for each field, objects without rules in the same table; `inner` gets what has a table of its own."""
    for name, field in _current(schema):
        key, within = _within(f"{path}.{name}", field)
        is_inner = "properties" in within and (key.endswith("[]") or "x-kubernetes-validations" in within)
        if is_inner and key != _STANDARD:
            inner.append((key, within | {"description": field.get("description", within.get("description", ""))}))
        is_required = name in schema.get("required", ())
        yield _row(key, f"{prefix}{name}", field, is_required, columns, has_table=is_inner)
        if "properties" in within and not is_inner:
            yield from _rows(key, f"{prefix}{name}.", within, columns, inner)


def _row(
    key: str, name: str, field: Schema, is_required: bool, columns: Mapping[str, str] | None, *, has_table: bool
) -> str:
    text = _cell(field["description"])
    if columns is not None:
        return f"| `{name}` | {_type(field)} | {columns.get(key, '')} | {text} |"
    shown = _written(example_of(key.removesuffix("[]")))
    if has_table:
        text = f"{text} [Fields](#{re.sub(r'[^a-z0-9]', '', key.lower())})."
    if "properties" in _within(key, field)[1]:
        shown = ""
    default = "*required*" if is_required else _default(field)
    return f"| `{name}` | {_type(field)} | {default} | {_bounds(field)} | {text} | {shown} |"


def _within(key: str, field: Schema) -> tuple[str, Schema]:
    """The path and the schema of what a field holds: of a list, that of its entries."""
    return (f"{key}[]", field["items"]) if field.get("type") == "array" else (key, field)


def _current(schema: Schema) -> list[tuple[str, Schema]]:
    """The fields of an object but those whose rule says their new name."""
    return [(name, field) for name, field in schema.get("properties", {}).items() if not is_former(field)]


def _paths(path: str, schema: Schema) -> Iterator[str]:
    for name, field in _current(schema):
        key, within = _within(f"{path}.{name}", field)
        yield key
        yield from _paths(key, within)


def _values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if not path:
        yield value
        return
    name = path[0].removesuffix("[]")
    if isinstance(value, dict) and name in value:
        entries = value[name] if path[0].endswith("[]") else [value[name]]
        for entry in entries:
            yield from _values(entry, path[1:])


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "amount"
    if "enum" in field:
        return " or ".join(f"`{one}`" for one in field["enum"])
    if field["type"] == "array":
        return "list of objects" if "properties" in field["items"] else f"list of {_type(field['items'])}s"
    named = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return "time" if field.get("format") == "date-time" else named.get(field["type"], field["type"])


def _default(field: Schema) -> str:
    if "default" in field:
        return _written(field["default"])
    found = _DEFAULT.search(field["description"]) or _MARKED.search(field["description"])
    return _cell(f"`{found[1]}`" if found and " " not in found[1] else found[1]) if found else "–"


def _bounds(field: Schema) -> str:
    bounds = []
    if "minimum" in field or "maximum" in field:
        bounds.append(f"{field.get('minimum', '…')} to {field.get('maximum', '…')}")
    if "maxLength" in field and not field.get("x-kubernetes-int-or-string"):
        bounds.append(f"{field.get('minLength', 0)} to {field['maxLength']} characters")
    if "maxItems" in field:
        bounds.append(f"{field.get('minItems', 0)} to {field['maxItems']} entries")
    if "x-kubernetes-list-map-keys" in field:
        bounds.append(f"one for each {' and '.join(field['x-kubernetes-list-map-keys'])}")
    if "properties" not in field:
        messages = (_BOUND.search(rule["message"]) for rule in field.get("x-kubernetes-validations", ()))
        bounds += [message[1] for message in messages if message]
    return _cell(", ".join(bounds)) or "–"


def _rules(schema: Schema) -> Iterator[str]:
    """The sentences of an object's rules, each once."""
    messages = dict.fromkeys(rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    if messages:
        yield "Rules:\n"
        yield from (f"- {_cell(message)}" for message in messages)
        yield ""


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
