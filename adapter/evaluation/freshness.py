"""Which watches are not to be believed, and whose answers that concerns: those that need the watch, and no others.

Every policy needs the policies, HPAs, pods and EndpointSlices of its namespace, and the objects of its target's kind.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from adapter.evaluation.object_index import TargetRef
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.runtime.times import format_time
from adapter.telemetry.metrics import Metrics

K = TypeVar("K")

LOOK_SECONDS = 0.25

OWN = "watermarkpolicies"
MANIFEST = "manifests/base/rbac.yaml"
GRANTED = frozenset(
    {
        "pods",
        "endpointslices",
        "horizontalpodautoscalers",
        OWN,
        "deployments.apps",
        "statefulsets.apps",
        "replicasets.apps",
        "replicationcontrollers",
    }
)
"""What ClusterRole effective-load-server lets a service account list and watch."""


class KindKey(NamedTuple):
    """A kind of object."""

    api_version: str
    kind: str


class Watch(Protocol):
    """A live copy of a collection (`adapter.kube.reflector.Reflector`); `namespace` is empty for all namespaces."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def synced(self) -> asyncio.Event: ...
    @property
    def silent(self) -> bool: ...
    @property
    def confirmed_at(self) -> float | None: ...
    @property
    def trouble(self) -> KubeError | None: ...


KindWatches = Mapping[KindKey, Mapping[str, Watch]]
"""The watches of scale targets: by kind, then by namespace."""


def silence(watch: Watch) -> str | None:
    """Why what a watch holds is not to be believed, None where it is.

    The sentence stays the same while nothing changes: it is written into HPAs' and policies' conditions.
    """
    if not watch.silent and watch.synced.is_set():
        return None
    where = f"{watch.name} in namespace {watch.namespace}" if watch.namespace else watch.name
    cause = f": {_cause(watch)}" if watch.trouble is not None else ""
    if watch.confirmed_at is None or not watch.synced.is_set():
        return f"{where} have not been listed yet{cause}"
    since = format_time(watch.confirmed_at)
    return f"the watch of {where} has shown no life since {since}, so nothing is decided on what it last said{cause}"


def _was_revoked(watch: Watch) -> bool:
    return watch.synced.is_set() and isinstance(watch.trouble, Forbidden | NotFound)


def _cause(watch: Watch) -> str:
    match watch.trouble:
        case Forbidden(message=message):
            return f"{message.rstrip('.')}; {_remedy(watch)}"
        case NotFound() if watch.name == OWN:
            return "the API server does not serve them; apply manifests/crd"
        case None:
            return ""
        case error:
            return error.public


def _remedy(watch: Watch) -> str:
    """How the right to list and watch is given."""
    where = f" in namespace {watch.namespace}" if watch.namespace else ""
    if watch.name in GRANTED:
        return f"bind ClusterRole effective-load-server to the service account{where} ({MANIFEST})"
    return f"let the service account list and watch {watch.name}{where}, as {MANIFEST} does for Deployments"


class Freshness:
    """Looks at the watches four times a second, so that requests need not.

    `shared` are the watches that every policy of their namespace needs. `on_shared` is called with a namespace (empty:
    all of them), `on_kind` with a kind, when what is known of its watch is no longer what it was.
    """

    def __init__(
        self,
        shared: Sequence[Watch],
        kinds: Callable[[], KindWatches],
        on_shared: Callable[[str], None],
        on_kind: Callable[[KindKey], None],
        metrics: Metrics,
    ) -> None:
        self._feeds = shared
        self._kind_watches = kinds
        self._on_shared = on_shared
        self._on_kind = on_kind
        self._metrics = metrics
        self._shared: dict[str, str] = {}
        self._kinds: dict[tuple[KindKey, str], str] = {}
        self._counted: set[str] = set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Find the silent watches, and tell of those that were not, or no longer are."""
        shared, kinds = self._silent_feeds(), self._silent_kinds()
        before, self._shared = self._shared, shared
        for namespace in _changed(before, shared):
            self._on_shared(namespace)
        known, self._kinds = self._kinds, kinds
        for kind in {kind for kind, _ in _changed(known, kinds)}:
            self._on_kind(kind)
        self._count()

    def shared(self, namespace: str) -> str | None:
        """Why nothing may be decided in this namespace, None where it may."""
        if not self._shared:
            return None
        return self._shared.get("") or self._shared.get(namespace)

    def policy(self, namespace: str, target: TargetRef | None) -> str | None:
        """Why nothing may be decided on a policy of this namespace, for this target; None where it may."""
        if not self._shared and not self._kinds:
            return None
        if (sentence := self.shared(namespace)) is not None or target is None:
            return sentence
        kind = KindKey(target.api_version, target.kind)
        return self._kinds.get((kind, "")) or self._kinds.get((kind, namespace))

    def unready(self) -> str | None:
        """Why this process can decide nothing, where another one may be able to; None otherwise.

        A right that was taken away is taken from all replicas. To have none that is ready would bring HPAs a worse
        sentence, and would keep the cluster's namespaces from being deleted (their metrics API would not answer). Where
        it was never there, the replicas of before go on.
        """
        able = {feed.namespace for feed in self._feeds} - self._shared.keys()
        own = (silence(feed) for feed in self._feeds if not _was_revoked(feed))
        return None if able else next(filter(None, own), None)

    def trouble(self) -> str | None:
        """What a watch lacks that every policy needs, in some namespace or in all; None where they are all alive."""
        return next(iter(self._shared.values()), None)

    def _silent_feeds(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for feed in self._feeds:
            if feed.namespace not in found and (sentence := silence(feed)) is not None:
                found[feed.namespace] = sentence
        return found

    def _silent_kinds(self) -> dict[tuple[KindKey, str], str]:
        return {
            (kind, namespace): sentence
            for kind, watches in self._kind_watches().items()
            for namespace, watch in watches.items()
            if (sentence := silence(watch)) is not None
        }

    def _count(self) -> None:
        every = [*self._feeds, *(watch for watches in self._kind_watches().values() for watch in watches.values())]
        counts = Counter({watch.name: 0 for watch in every})
        counts.update(watch.name for watch in every if watch.silent)
        for name, count in counts.items():
            self._metrics.watch_silent.labels(name).set(count)
        for name in self._counted - counts.keys():
            self._metrics.forget_watch(name)
        self._counted = set(counts)


def _changed(before: Mapping[K, str], after: Mapping[K, str]) -> list[K]:
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]
