"""The JSON of `explain`: what the server hands out, and what the command prints."""

import asyncio
import json
from collections.abc import Iterator

import msgspec

from adapter.apiserver.decision_document import document as written_document
from adapter.commands.decide.reader import read_document
from adapter.commands.explain import page
from tests.apiserver.test_decision_document import answer as answered
from tests.apiserver.test_decision_document import documents, view
from tests.explain.kit import VECTORS, document, explained
from tests.recorded.shapes import shape

_OWN = ("assessed", "usageSource")
"""Keys of a document that only a server writes."""


def lines() -> Iterator[str]:
    """The key paths of both."""
    answer = asyncio.run(answered(documents(view())))
    yield from shape(answer | {"document": {}}, "served")
    for path in sorted(VECTORS.glob("[0-9]*.yaml")):
        yield from (f"document {line}" for line in _document(path.stem))
    printed = page.data(explained())
    yield from shape(printed | {"decision": {}}, "printed")


def _document(name: str) -> Iterator[str]:
    given = document(name)
    case = read_document(json.dumps(given))
    spec = json.dumps(given["policy"]["spec"]).encode()
    written = json.loads(msgspec.json.encode(written_document(case.inputs, spec, case.scale, case.now)))
    for samples in written["samples"].values():
        points = list(samples.get("pods", {}).values())
        pods = {"pods": {"POD": points[0]}} if points else {}
        yield from shape({"samples": {"METRIC": samples | pods}})
    yield from shape({key: written[key] for key in _OWN if key in written})
    yield from (f".{key}" for key in written)
