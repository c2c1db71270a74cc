"""Which watches are stale, and which policies that affects: only those that need the watch.

Every policy needs the policies, HPAs and pods of its namespace, and the objects of its target's kind. EndpointSlices
are evidence about pods: while their watch is silent, what it last said is in doubt, and no policy is in error.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from adapter.kube.api import ENDPOINT_SLICES, WATERMARK_POLICIES
from adapter.kube.errors import Forbidden, NotFound
from adapter.kube.reflector import Reflector
from adapter.policy.linking import TargetRef
from adapter.runtime.times import format_time
from adapter.telemetry.metrics import Metrics

CHECK_SECONDS = 0.25

_ROLE = "ClusterRole effective-load-server (manifests/base/rbac.yaml) has the adapter's own rights"


class KindKey(NamedTuple):
    """A kind of object."""

    api_version: str
    kind: str


KindWatches = Mapping[KindKey, Mapping[str, Reflector[Any]]]
"""The watches of scale targets: by kind, then by namespace (empty: all namespaces)."""


def silence_of(watch: Reflector[Any]) -> str | None:
    """Why the objects of a watch may be stale; None while they are current.

    The sentence does not change as time passes: it is written into conditions of HPAs and policies.
    """
    if not watch.silent and watch.synced.is_set():
        return None
    cause, where = "", f" in namespace {watch.namespace}" if watch.namespace else ""
    if isinstance(trouble := watch.trouble, Forbidden):
        cause = f": {trouble.message.rstrip('.')}; let the service account list and watch {watch.name}{where}; {_ROLE}"
    elif isinstance(trouble, NotFound) and watch.name == WATERMARK_POLICIES.plural:
        cause = ": the API server does not serve them; apply manifests/crd"
    elif trouble is not None:
        cause = f": {trouble.public}"
    objects = f"{watch.name}{where}"
    if watch.confirmed_at is None or not watch.synced.is_set():
        return f"{objects} have not been listed yet{cause}"
    since = format_time(watch.confirmed_at)
    return f"the watch of {objects} has shown no life since {since}, so nothing is decided on what it last said{cause}"


_SHARED, _ENDPOINTS = KindKey("", ""), KindKey("", "EndpointSlice")
"""In place of a kind of scale target: the watches that every policy of a namespace needs, and those of evidence."""


class Freshness:
    """Checks all watches four times a second, so that requests need not.

    Every policy of a namespace needs its `shared` watches, but that of EndpointSlices; `kinds` returns those of scale
    targets. When the freshness of one changes, `on_shared` gets its namespace (empty: all), or `on_kind` its kind.
    """

    def __init__(
        self,
        shared: Sequence[Reflector[Any]],
        kinds: Callable[[], KindWatches],
        on_shared: Callable[[str], None],
        on_kind: Callable[[KindKey], None],
        metrics: Metrics,
    ) -> None:
        self._shared = shared
        self._kinds = kinds
        self._on_shared = on_shared
        self._on_kind = on_kind
        self._metrics = metrics
        self._stale: dict[tuple[KindKey, str], str] = {}
        """Why watches are stale, by kind and namespace."""
        self._counted: set[str] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Find the stale watches, and call `on_shared` and `on_kind` for each that became stale or current."""
        stale, counts = dict[tuple[KindKey, str], str](), Counter[str]()
        watches = [(_ENDPOINTS if watch.name == ENDPOINT_SLICES.plural else _SHARED, watch) for watch in self._shared]
        watches += [(kind, watch) for kind, by_namespace in self._kinds().items() for watch in by_namespace.values()]
        for kind, watch in watches:
            counts[watch.name] += watch.silent
            if (sentence := silence_of(watch)) is not None:
                stale.setdefault((kind, watch.namespace), sentence)
        before, self._stale = self._stale, stale  # at once: policies are assessed in a thread meanwhile
        changed = [key for key in {**before, **stale} if before.get(key) != stale.get(key)]
        for namespace in dict.fromkeys(namespace for kind, namespace in changed if kind in {_SHARED, _ENDPOINTS}):
            self._on_shared(namespace)
        for kind in {kind for kind, _ in changed} - {_SHARED, _ENDPOINTS}:
            self._on_kind(kind)
        for name, count in counts.items():
            self._metrics.watch_stale.labels(name).set(count)
        for name in self._counted - counts.keys():
            self._metrics.forget_watch(name)
        self._counted = set(counts)

    def policy(self, namespace: str, target: TargetRef | None) -> str | None:
        """Why a policy of this namespace with this target may not be decided on; None if it may."""
        if not self._stale:
            return None
        kind = KindKey(target.api_version, target.kind) if target is not None else _SHARED
        return self._sentence(_SHARED, namespace) or self._sentence(kind, namespace)

    def endpoints_silent(self, namespace: str) -> bool:
        """Whether the watch of the EndpointSlices of this namespace is silent."""
        return self._sentence(_ENDPOINTS, namespace) is not None

    def unready(self) -> str | None:
        """Why this replica can decide on no policy while another replica may be able to; None otherwise.

        A revoked right is missing in all replicas. With no replica ready, HPAs would show a less helpful message, and
        namespaces could not be deleted (the metrics API would be unavailable). If the right was never granted to this
        version, the replicas of the previous version go on.
        """
        if {watch.namespace for watch in self._shared} - {where for kind, where in self._stale if kind == _SHARED}:
            return None
        sentences = (
            silence_of(watch)
            for watch in self._shared
            if watch.name != ENDPOINT_SLICES.plural
            and not (watch.synced.is_set() and isinstance(watch.trouble, Forbidden | NotFound))
        )
        return next(filter(None, sentences), None)

    def warning(self) -> str | None:
        """Why the shared watches of some namespace, or of all, are stale; None while all are current."""
        return next((why for (kind, _), why in self._stale.items() if kind in {_SHARED, _ENDPOINTS}), None)

    def _sentence(self, kind: KindKey, namespace: str) -> str | None:
        return self._stale.get((kind, "")) or self._stale.get((kind, namespace))
