"""Originals with every field, and how tests migrate and change them."""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.migrate.migration import Migration, migrate
from adapter.commands.migrate.original import MigrationError, Note, NoteKind
from adapter.commands.migrate.pair import Style

Object = dict[str, Any]
Where = tuple[str | int, ...]

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "migrate"

_ORIGINALS: dict[str, Object] = yaml.load((Path(__file__).parent / "originals.yaml").read_text(), yaml.CSafeLoader)
BEHAVIOR = _ORIGINALS["behavior"]
WPA = _ORIGINALS["watermark pod autoscaler"]
SCALED = _ORIGINALS["scaled object"]
RULES = _ORIGINALS["rules"]
PODS = _ORIGINALS["pods metric"]
EVERYTHING_WPA = _ORIGINALS["every field of a watermark pod autoscaler"]
EVERYTHING_PA = _ORIGINALS["every field for prometheus-adapter"]
EVERYTHING_KEDA = _ORIGINALS["every field of a scaled object"]
EVERYTHING = {
    "wpa": [EVERYTHING_WPA],
    "prometheus-adapter": [RULES, EVERYTHING_PA],
    "keda": [EVERYTHING_KEDA],
}
"""The objects of each source, with every field that it may have."""


def external(name: str, average: str = "10", **labels: str) -> Object:
    """An External metric of an HPA."""
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": {"name": name, **selector}, "target": target}}


def hpa(*metrics: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """An HPA of Deployment web."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": dict(annotations or {})},
        "spec": {
            "scaleTargetRef": WPA["spec"]["scaleTargetRef"],
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": list(metrics),
            **spec,
        },
    }


def text_of(*objects: Object) -> str:
    """The objects as one YAML text (each in JSON)."""
    return "\n---\n".join(json.dumps(one) for one in objects)


def migrated(*objects: Object, low_percent: int | None = None, tolerance: bool = True) -> Migration:
    """The migration of these objects."""
    style = Style(low_percent=low_percent, tolerance=tolerance)
    return migrate([("it.yaml", "---\n" + text_of(*objects))], style)


def policy_spec(*objects: Object, low_percent: int | None = None) -> Object:
    """The spec of the only policy that these objects become."""
    [pair] = migrated(*objects, low_percent=low_percent).pairs
    return dict(pair.policy["spec"])


def hpa_spec(*objects: Object) -> Object:
    """The spec of the only HPA that these objects become."""
    [pair] = migrated(*objects).pairs
    return dict(pair.hpa["spec"])


def notes_of(*objects: Object) -> tuple[Note, ...]:
    """The notes on the only pair."""
    [pair] = migrated(*objects).pairs
    return pair.notes


def note_at(field: str, *objects: Object) -> Note:
    """The only note on a field."""
    [found] = [note for note in notes_of(*objects) if note.field == field]
    return found


def kinds_at(field: str, *objects: Object) -> list[NoteKind]:
    """The kinds of the notes on a field."""
    return [note.kind for note in notes_of(*objects) if note.field == field]


def faults_of(*objects: Object) -> list[str]:
    """The faults of objects that cannot be migrated."""
    try:
        faults = migrated(*objects).faults
    except MigrationError as error:
        faults = list(error.faults)
    return [str(fault).removeprefix("it.yaml: ") for fault in faults]


def changed(data: Object, *path: str | int, to: Any = None) -> Object:
    """A copy with another value at the path; None takes it away."""
    copied = copy.deepcopy(data)
    inner: Any = copied
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copied


def leaves(data: Any, at: Where = ()) -> Iterator[Where]:
    """The paths of all values that are no containers."""
    if isinstance(data, dict | list) and data:
        for key, one in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(one, (*at, key))
    elif at:
        yield at
