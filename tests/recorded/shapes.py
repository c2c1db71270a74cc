"""JSON documents as sorted lines: a path and what stands there."""

import re
from collections.abc import Iterator, Mapping

_NAMED = re.compile(r"(instances\[\]\.metadata|pods\[\]\.(usage|missing))$")
"""Mappings whose keys are names of pods and metrics, not keys of ours."""


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
