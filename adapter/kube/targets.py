"""Scale targets of any kind: the scale and the rollout in their own object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapter.kube import selectors
from adapter.kube.objects import AnyObject, Condition
from adapter.load.spec import Scale, Target
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The dotted paths of an object's scale (`.spec.replicas`); `selector` is empty where it has none.

    `built_in`: replicas default to 1, and the selector is an object, not a text.
    """

    replicas: str
    status_replicas: str
    selector: str = ""
    built_in: bool = False


BUILT_IN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector", built_in=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetObject:
    """A scale target as watched; `scale` is None where its object does not hold it."""

    namespace: str
    target: Target
    labels: Mapping[str, str] = field(default_factory=dict)
    scale: Scale | None = None


_OBJECT = Decoder(AnyObject)
_MOST_LABELS = 1024
"""A workload with more labels counts as one without: the API server admits a hundred times as many."""


def target_decoder(
    api_version: str, kind: str, paths: ScalePaths | None
) -> Callable[[bytes | msgspec.Raw], TargetObject]:
    """A decoder for the objects of one kind; items of a list lack their kind, so it is given here."""

    def decode(body: bytes | msgspec.Raw) -> TargetObject:
        item = _OBJECT.decode(body)
        try:
            conditions = msgspec.convert((item.status or {}).get("conditions") or [], list[Condition], strict=False)
        except msgspec.ValidationError:  # conditions of another form
            conditions = []
        progressing = next((condition for condition in conditions if condition.type == "Progressing"), Condition())
        meta = item.metadata
        return TargetObject(
            namespace=meta.namespace,
            target=Target(
                api_version=api_version,
                kind=kind,
                name=meta.name,
                uid=meta.uid,
                progressing=progressing.reason,
                progressing_since=parse_time(progressing.last_update_time or progressing.last_transition_time),
            ),
            labels=meta.labels if meta.labels and len(meta.labels) <= _MOST_LABELS else {},
            scale=watched_scale(item, paths),
        )

    return decode


def watched_scale(item: AnyObject, paths: ScalePaths | None) -> Scale | None:
    """The scale that the scale subresource would return for this object; None where that would fail.

    An empty selector means that the object has none, not that it selects everything.
    """
    if paths is None:
        return None
    tree = {"spec": item.spec or {}, "status": item.status or {}}
    replicas = _count(_at(tree, paths.replicas))
    if replicas is None and paths.built_in:
        replicas = 1
    if replicas is None:
        return None
    status_replicas = _count(_at(tree, paths.status_replicas)) or 0
    # A text, a LabelSelector, or a ReplicationController's map of labels.
    labels = _at(tree, paths.selector)
    if not isinstance(labels, dict):
        selector = selectors.canonical(labels) if isinstance(labels, str) else ""
        return Scale(replicas=replicas, status_replicas=status_replicas, selector=selector)
    expressions: Any = ()
    if not labels.keys() - {"matchLabels", "matchExpressions"}:
        labels, expressions = labels.get("matchLabels") or {}, labels.get("matchExpressions") or ()
    try:
        triples = [(each["key"], each["operator"], each.get("values") or ()) for each in expressions]
        selector = str(selectors.from_label_selector(labels, triples))
    except (selectors.SelectorError, LookupError, TypeError, AttributeError):
        return None
    return Scale(replicas=replicas, status_replicas=status_replicas, selector=selector)


def _at(tree: Mapping[str, Any], path: str) -> Any:
    node: Any = tree
    for part in path.strip(".").split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
