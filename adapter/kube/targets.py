"""Scale targets of any kind: their scale as their own object tells it, and how their rollout stands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapter.kube import selectors
from adapter.kube.objects import AnyObject, Condition, bounded_labels
from adapter.load.spec import Scale, Target
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where an object keeps its scale, as dotted paths (`.spec.replicas`); `selector` is empty where it keeps none.

    `built_in`: replicas default to 1, and the selector is the object under that path, not a text.
    """

    replicas: str
    status_replicas: str
    selector: str = ""
    built_in: bool = False


BUILT_IN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector", built_in=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetObject:
    """A scale target as watched; `scale` is None where its object does not tell."""

    namespace: str
    target: Target
    labels: Mapping[str, str] = field(default_factory=dict)
    scale: Scale | None = None


_OBJECT = Decoder(AnyObject)


def target_decoder(
    api_version: str, kind: str, paths: ScalePaths | None
) -> Callable[[bytes | msgspec.Raw], TargetObject]:
    """A decoder for the objects of one kind; items of a list do not carry their kind, hence the names given here."""

    def decode(body: bytes | msgspec.Raw) -> TargetObject:
        return _target_object(_OBJECT.decode(body), api_version, kind, paths)

    return decode


def watched_scale(found: AnyObject, paths: ScalePaths | None) -> Scale | None:
    """The scale that the scale subresource would answer for this object; None where that would be an error.

    An empty selector means that the object tells none, not that it selects everything.
    """
    if paths is None:
        return None
    tree = {"spec": found.spec or {}, "status": found.status or {}}
    replicas = _count(_at(tree, paths.replicas))
    if replicas is None and paths.built_in:
        replicas = 1
    if replicas is None:
        return None
    status_replicas = _count(_at(tree, paths.status_replicas)) or 0
    selector = _selector(_at(tree, paths.selector))
    return None if selector is None else Scale(replicas=replicas, status_replicas=status_replicas, selector=selector)


def _target_object(found: AnyObject, api_version: str, kind: str, paths: ScalePaths | None) -> TargetObject:
    progressing = _condition(found, "Progressing")
    meta = found.metadata
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
        labels=bounded_labels(meta.labels),
        scale=watched_scale(found, paths),
    )


def _condition(found: AnyObject, kind: str) -> Condition:
    """The condition of this type; an empty one where there is none, or the object writes conditions another way."""
    try:
        conditions = msgspec.convert((found.status or {}).get("conditions") or [], list[Condition], strict=False)
    except msgspec.ValidationError:
        return Condition()
    return next((condition for condition in conditions if condition.type == kind), Condition())


def _at(tree: Mapping[str, Any], path: str) -> Any:
    node: Any = tree
    for part in path.strip(".").split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _selector(value: Any) -> str | None:
    """Canonical text of a text, a LabelSelector or a ReplicationController's map of labels; None for nonsense."""
    if not isinstance(value, dict):
        return selectors.canonical(value) if isinstance(value, str) else ""
    try:
        return str(_from_object(value))
    except (selectors.SelectorError, LookupError, TypeError, AttributeError):
        return None


def _from_object(value: Mapping[str, Any]) -> selectors.LabelSelector:
    if value.keys() - {"matchLabels", "matchExpressions"}:
        return selectors.from_label_selector(value)
    expressions = value.get("matchExpressions") or ()
    return selectors.from_label_selector(
        value.get("matchLabels"), [(one["key"], one["operator"], one.get("values") or ()) for one in expressions]
    )
