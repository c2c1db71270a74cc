"""Scale targets of any kind: resolves each kind that an HPA names by discovery, and watches its objects."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from adapter.evaluation.freshness import KindKey, KindWatches, silence_of
from adapter.kube.errors import KubeError, NotFound
from adapter.kube.reflector import Reflector
from adapter.kube.rest_mapper import RestMapper, RestMapping
from adapter.kube.scale import TargetObject, target_decoder
from adapter.kube.session import Session
from adapter.policy.linking import TargetRef, reference_faults
from adapter.runtime.backoff import Backoff
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""How long after its removal a kind is resolved again at the earliest."""
REDISCOVERY_SECONDS = 30.0
"""How often a watched kind is resolved again: no watch event announces that the paths of its scale changed."""


class _KindChanged(Exception):  # noqa: N818 - it is called what happened
    """Discovery returns another resource for the kind than before."""


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A scale target with its resource (`deployments.apps`) and the path of its scale subresource.

    `proven_at`: when the watch was last proven current (monotonic seconds).
    """

    object: TargetObject
    resource: str
    scale_path: str
    proven_at: float | None


class KindWatcher:
    """Resolves one kind of scale target by discovery and watches it; starts again when the kind changed or returned.

    `reflector` creates the watch of a namespace (empty: of all). `on_change` is called when the kind was resolved, or
    can no longer be.
    """

    def __init__(
        self,
        key: KindKey,
        resources: RestMapper,
        reflector: Callable[[RestMapping, str], Reflector[TargetObject]],
        namespaces: tuple[str, ...],
        on_change: Callable[[KindKey], None],
    ) -> None:
        self.resource: RestMapping | None = None
        self.fault = ""
        """Why the kind cannot be resolved; empty if it is."""
        self.watches: dict[str, Reflector[TargetObject]] = {}
        self._key = key
        self._resources = resources
        self._reflector = reflector
        self._namespaces = namespaces
        self._on_change = on_change

    async def run(self) -> None:
        """Resolve and watch the kind until cancelled."""
        while True:
            self.resource = await self._resolve()
            self.fault = ""
            self.watches = {
                namespace: self._reflector(self.resource, namespace) for namespace in self._namespaces or ("",)
            }
            self._on_change(self._key)
            served = await self._watch(self.resource)
            what = "is served in another way now" if served else "is gone"
            _log.info("target_kind_changed", kind=self._key.kind, because=what)
            self.fault = "" if served else f"the API server serves no {self.resource.name} any more"
            self.resource, self.watches = None, {}
            self._on_change(self._key)
            if not served:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self, resource: RestMapping) -> bool:
        """Watch until the kind is removed or changed; return whether the API server still serves it."""
        served = False
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self.watches.values():
                    tasks.create_task(reflector.run(until=(NotFound,)))
                await self._detect_change(resource)
        except* NotFound:
            pass
        except* _KindChanged:
            served = True
        return served

    async def _detect_change(self, resource: RestMapping) -> None:
        """Raise _KindChanged once discovery returns another resource for the kind; a failed lookup changes nothing."""
        latest = resource
        while latest == resource or latest.hint:
            await asyncio.sleep(REDISCOVERY_SECONDS)
            with suppress(KubeError):
                latest = await self._resources.find(self._key.api_version, self._key.kind)
        raise _KindChanged

    async def _resolve(self) -> RestMapping:
        """Wait until discovery finds the kind; meanwhile `fault` says why it does not."""
        backoff = Backoff()
        while True:
            try:
                resource = await self._resources.scalable(self._key.api_version, self._key.kind)
            except KubeError as error:
                self._fail(error.public, str(error))
            else:
                if not resource.hint:
                    return resource
                self._fail(f"{self._key.kind} has no scale that can be read: {resource.hint}")
            await asyncio.sleep(backoff.next())

    def _fail(self, sentence: str, detail: str = "") -> None:
        if self.fault != sentence:
            _log.warning("target_kind_unresolved", kind=self._key.kind, error=detail or sentence)
            self.fault = sentence
            self._on_change(self._key)


class Targets:
    """Watches exactly the kinds of scale targets that policies need.

    `on_change` is called with each target that was added, changed or deleted, `on_kind` with a kind that was resolved,
    changed or dropped.
    """

    def __init__(
        self,
        session: Session,
        namespaces: tuple[str, ...],
        on_change: Callable[[TargetRef], None],
        on_kind: Callable[[KindKey], None],
        metrics: Metrics,
        silence: float | None = None,
    ) -> None:
        self._session = session
        self._resources = RestMapper(session)
        self._namespaces = namespaces
        self._on_change = on_change
        self._on_kind = on_kind
        self._metrics = metrics
        self._silence = silence
        self._kinds: dict[KindKey, KindWatcher] = {}
        self._running: dict[KindKey, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def watch(self, kinds: Iterable[tuple[str, str]]) -> None:
        """Set the kinds (API version and kind) to watch, without invalid ones.

        A kind that a user invents costs no request of its own: discovery documents are shared.
        """
        wanted = {KindKey(*kind) for kind in kinds if not any(reference_faults(*kind))}
        for key in self._kinds.keys() - wanted:
            self._kinds.pop(key)
            if (task := self._running.pop(key, None)) is not None:
                task.cancel()
            self._on_kind(key)
        for key in wanted - self._kinds.keys():
            reflector = partial(self._new_reflector, key)
            self._kinds[key] = KindWatcher(key, self._resources, reflector, self._namespaces, self._on_kind)
            self._changed.set()

    async def run(self) -> None:
        """Resolve and watch the kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for key in self._kinds.keys() - self._running.keys():
                    self._running[key] = tasks.create_task(self._kinds[key].run(), name=f"watch {key.kind}")
                self._changed.clear()
                await self._changed.wait()

    def _new_reflector(self, key: KindKey, resource: RestMapping, namespace: str) -> Reflector[TargetObject]:
        return Reflector(
            self._session,
            resource.collection(namespace),
            target_decoder(resource.api_version, resource.kind, resource.paths),
            name=resource.name,
            namespace=namespace,
            on_event=partial(self._target_changed, key),
            silence=self._silence,
            metrics=self._metrics,
        )

    def _target_changed(self, key: KindKey, old: TargetObject | None, new: TargetObject | None) -> None:
        item = new or old
        if item is not None:
            self._on_change(TargetRef(item.namespace, key.api_version, key.kind, item.target.name))

    def resource(self, api_version: str, kind: str) -> str:
        """The plural with its group (`deployments.apps`); empty while the kind is not resolved."""
        watcher = self._kinds.get(KindKey(api_version, kind))
        return watcher.resource.name if watcher is not None and watcher.resource is not None else ""

    def find(self, ref: TargetRef) -> ResolvedTarget | str:
        """The target, or a sentence why it is unknown."""
        kind = self._kinds.get(KindKey(ref.api_version, ref.kind))
        if kind is None or kind.resource is None:
            return (kind.fault if kind is not None else "") or f"{ref.kind} {ref.name} has not been looked up yet"
        reflector = kind.watches.get(ref.namespace) or kind.watches.get("")
        if reflector is None:
            return f"namespace {ref.namespace} is not watched"
        item = reflector.items.get(f"{ref.namespace}/{ref.name}")
        if item is None and (sentence := silence_of(reflector)) is not None:
            return sentence
        if item is None:
            return f"{ref.kind} {ref.name}, that the HPA scales, does not exist in namespace {ref.namespace}"
        return ResolvedTarget(
            object=item,
            resource=kind.resource.name,
            scale_path=kind.resource.scale_path(ref.namespace, ref.name),
            proven_at=reflector.proven_at,
        )

    @property
    def watches(self) -> KindWatches:
        """The watches of all resolved kinds."""
        return {key: kind.watches for key, kind in self._kinds.items()}
