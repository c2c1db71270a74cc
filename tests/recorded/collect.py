"""Collects the names that are released, from the code: sorted lines, by list."""

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from adapter.cli import main
from adapter.policy.conditions import ConditionType, Reason
from adapter.telemetry.metrics import Metrics
from tests.manifests.rendering import MANIFESTS, Object, grants, render, render_with

HERE = Path(__file__).parent
_VECTORS = HERE.parent / "vectors"
_NAMED = re.compile(r"(instances\[\]\.metadata|pods\[\]\.(usage|missing))$")
"""Mappings whose keys are names of pods and metrics, not keys of ours."""


def metrics() -> Iterator[str]:
    """The adapter's own metrics: name, type, labels."""
    for name, kind, labels, _ in Metrics().names():
        yield f"{name} {kind} {' '.join(labels)}".rstrip()


def decisions() -> Iterator[str]:
    """The key paths of what `decide` answers in JSON, over all vectors, with the exit codes that come with it."""
    for path in sorted(_VECTORS.glob("[0-9]*.yaml")):
        status, answer = _run("decide", str(path), "-o", "json")
        yield f"exit {status}: error {json.loads(answer)['error'] is not None}"
        yield from shape(json.loads(answer))


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


def conditions() -> Iterator[str]:
    """Types of conditions, and their reasons."""
    yield from (f"type {one}" for one in ConditionType)
    yield from (f"reason {one}" for one in get_args(Reason))


def rights() -> Iterator[str]:
    """What each account may do by the manifests: who grants it, the account, where, to what, the verbs."""
    base = set(_grants(render(MANIFESTS / "base")))
    yield from (f"base: {line}" for line in base)
    for folder in (MANIFESTS / "components").iterdir():
        granted = set(_grants(render_with(MANIFESTS / "base", [folder.name]))) - base
        yield from (f"{folder.name}: {line}" for line in granted)


def _grants(objects: Iterable[Object]) -> Iterator[str]:
    for account, namespace, rule in grants(objects):
        parts = [",".join(part) if isinstance(part, list) else f"role {part}" for part in rule.values()]
        yield f"{account} in {namespace or 'all'}: {' '.join(part or 'core' for part in parts)}"


def _run(*arguments: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments), out.getvalue()


LISTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "metrics": metrics,
    "conditions": conditions,
    "decide": decisions,
    "rights": rights,
}


def collected(name: str) -> list[str]:
    """A list as it is now: sorted, each line once."""
    return sorted(set(LISTS[name]()))


def file_of(name: str) -> Path:
    """Where a list is recorded."""
    return HERE / f"{name}.txt"


def recorded(name: str) -> list[str]:
    """A list as it was recorded."""
    return file_of(name).read_text(encoding="utf-8").splitlines()
