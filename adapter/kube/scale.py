"""The scale of a target of any kind: as its own object holds it, which is watched, and live, read for each request.

A held count is absolute, so a stale one would be wrong.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import TTLCache

from adapter.kube import selectors
from adapter.kube.errors import KubeError, MalformedAnswer
from adapter.kube.objects import AnyObject, Condition
from adapter.kube.session import Session
from adapter.load.spec import Scale, Target
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.telemetry.metrics import Metrics

REUSE_SECONDS, FALLBACK_SECONDS = 1.0, 5.0
_PATHS = 10_000
_UNREAD = "{cause}; and no watched count was confirmed within 5 s"

_OBJECT = Decoder(AnyObject)


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The dotted paths of an object's scale (`.spec.replicas`); `selector` is empty where it has none.

    `unset`: the replicas of an object that names none; None where such an object has no scale.
    """

    replicas: str
    status_replicas: str
    selector: str = ""
    unset: int | None = None


BUILT_IN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector", unset=1)
_SUBRESOURCE = ScalePaths(".spec.replicas", ".status.replicas", ".status.selector", unset=0)  # 0 is not written


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetObject:
    """A scale target as watched; `scale` is None where its object does not hold it."""

    namespace: str
    target: Target
    scale: Scale | None = None


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
    given = _at(tree, paths.replicas)
    replicas = paths.unset if given is None else _count(given)
    if replicas is None:
        return None
    # A text, a LabelSelector, or a ReplicationController's map of labels.
    labels = _at(tree, paths.selector)
    if not isinstance(labels, dict):
        selector = selectors.canonical(labels) if isinstance(labels, str) else ""
    else:
        expressions: Any = ()
        if not labels.keys() - {"matchLabels", "matchExpressions"}:
            labels, expressions = labels.get("matchLabels") or {}, labels.get("matchExpressions") or ()
        try:
            triples = [(each["key"], each["operator"], each.get("values") or ()) for each in expressions]
            selector = str(selectors.from_label_selector(labels, triples))
        except (selectors.SelectorError, LookupError, TypeError, AttributeError):
            return None
    seen = _count(_at(tree, paths.status_replicas)) or 0
    return Scale(replicas=replicas, status_replicas=seen, selector=selector)


def _at(tree: Mapping[str, Any], path: str) -> Any:
    node: Any = tree
    for part in path.strip(".").split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def decode_scale(body: bytes | msgspec.Raw) -> Scale:
    """The scale subresource (autoscaling/v1), its selector in canonical form. Raises msgspec.MsgspecError."""
    item = _OBJECT.decode(body)
    for part, fields in (("spec", item.spec), ("status", item.status or {})):
        if fields is None or _count(fields.get("replicas", 0)) is None:
            raise msgspec.ValidationError(f"Expected a number from 0 - at `$.{part}.replicas`")
    if (scale := watched_scale(item, _SUBRESOURCE)) is None:
        raise msgspec.ValidationError("Expected a selector - at `$.status.selector`")
    return scale


class ScaleReader:
    """Reads scale subresources: one at a time per path and watched count.

    An answer is used again for a second, and one under way is shared, unless the watch has shown another count since.
    """

    deadline_seconds = 0.5

    def __init__(
        self, session: Session, metrics: Metrics | None = None, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._session, self._metrics, self._timer = session, metrics or Metrics(), timer
        self._answers = TTLCache[tuple[str, tuple[int, int] | None], Scale | KubeError](_PATHS, REUSE_SECONDS, timer)
        """By path and the count that was watched when it was asked for: a request that began before another count was
        seen may miss it. Failures too: a slow server is asked once."""
        self._flights = SingleFlight(self._answers)

    async def read(self, scale_path: str, watched: Scale | None, proven_at: float | None) -> Scale:
        """The scale at this path, at most a second old; if that fails the watched one, confirmed within 5 s.

        `proven_at` is by the session's monotonic clock. Raises a KubeError that names the path and the cause.
        """
        began = self._timer()
        key = scale_path, None if watched is None else (watched.replicas, watched.status_replicas)
        result = "cached" if key in self._answers else "live"
        answer = await self._flights.join(key, lambda: self._fetch(scale_path))
        if isinstance(answer, KubeError):
            recent = proven_at is not None and self._session.monotonic() - proven_at <= FALLBACK_SECONDS
            result = "watched" if watched is not None and recent else "failed"
        self._metrics.scale_reads.labels(result).observe(self._timer() - began)
        if isinstance(answer, Scale):
            return answer
        if watched is None or result == "failed":
            raise KubeError(_UNREAD.format(cause=answer), public=_UNREAD.format(cause=answer.public)) from answer
        return watched

    async def _fetch(self, path: str) -> Scale | KubeError:
        try:
            return decode_scale(await self._session.get(path, timeout=self.deadline_seconds))
        except msgspec.MsgspecError as error:
            return MalformedAnswer(f"GET {path}: {error}")
        except KubeError as error:
            return error
