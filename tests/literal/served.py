"""The documents of the generator in the form in which a server writes them, with what only a server knows."""

import json
from dataclasses import replace
from random import Random
from typing import Any

from adapter.apiserver import document_writer as writer
from adapter.commands.decide import reader
from adapter.load.spec import Scale


def served(given: dict[str, Any], memory: dict[str, Any] | None, rng: Random) -> dict[str, Any]:
    """The document with its memory as a server writes it: assessed a while ago, at a count that may have changed."""
    case = reader.DocumentReader(given | ({"memory": memory} if memory is not None else {})).case()
    observing = case.now - rng.choice((0, 20, 90, 1000))
    known = replace(case.inputs.memory, observing_since=observing)
    scale = case.scale
    spec = given["policy"]["spec"]
    # Two reasons hold a step of a service total at another count; which one is told is open.
    is_open = spec.get("strategy") == "Step" and any("total" in one["name"] for one in spec["metrics"])
    if scale.replicas and not is_open and rng.random() < 0.2:
        count = max(1, scale.replicas + rng.choice((-2, -1, 1, 2)))
        scale = Scale(replicas=count, status_replicas=scale.status_replicas, selector=scale.selector)
    inputs = replace(case.inputs, memory=known)
    now = case.now + rng.choice((0, 0, 0.5, 3))
    document: dict[str, Any] = json.loads(b"".join(writer.pieces(inputs, json.dumps(spec).encode(), scale, now)))
    return document
