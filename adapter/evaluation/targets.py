"""Scale targets of any kind: resolves each kind that an HPA names by discovery, and watches its objects."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class _Kind:
    """A kind, and its watches by namespace. `fault`: why it cannot be resolved; empty if it is."""

    key: KindKey
    resource: RestMapping | None = None
    fault: str = ""
    watches: dict[str, Reflector[TargetObject]] = field(default_factory=dict)


class Targets:
    """Watches exactly the kinds of scale targets that policies need, each again once it changed or returned.

    `on_change` hears of each target added, changed or deleted, `on_kind` of a kind resolved, changed or dropped.
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
        self._kinds: dict[KindKey, _Kind] = {}
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
            self._kinds[key] = _Kind(key)
            self._changed.set()

    async def run(self) -> None:
        """Resolve and watch the kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for key in self._kinds.keys() - self._running.keys():
                    self._running[key] = tasks.create_task(self._follow(self._kinds[key]), name=f"watch {key.kind}")
                self._changed.clear()
                await self._changed.wait()

    async def _follow(self, kind: _Kind) -> None:
        """Resolve and watch one kind until cancelled. Discovery may name what is gone: it is asked for ever later."""
        backoff = Backoff()
        while True:
            resource = kind.resource = await self._resolve(kind)
            kind.fault = ""
            kind.watches = {
                namespace: self._new_reflector(kind.key, resource, namespace) for namespace in self._namespaces or ("",)
            }
            self._on_kind(kind.key)
            began = self._session.monotonic()
            served = await self._watch(kind, resource)
            what = "is served in another way now" if served else "is gone"
            _log.info("target_kind_changed", kind=kind.key.kind, because=what)
            kind.fault = "" if served else f"the API server serves no {resource.name} any more"
            if any(watch.synced.is_set() for watch in kind.watches.values()):  # else it is looked up in what named it
                self._resources.known.clear()
            kind.resource, kind.watches = None, {}
            self._on_kind(kind.key)
            if self._session.monotonic() - began >= REDISCOVERY_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _resolve(self, kind: _Kind) -> RestMapping:
        """Wait until discovery finds the kind; meanwhile its `fault` says why it does not."""
        backoff = Backoff()
        while True:
            try:
                resource = await self._resources.scalable(*kind.key)
                if not resource.hint:
                    return resource
                fault = detail = f"{kind.key.kind} has no scale that can be read: {resource.hint}"
            except KubeError as error:
                fault, detail = error.public, str(error)
            if kind.fault != fault:
                _log.warning("target_kind_unresolved", kind=kind.key.kind, error=detail)
                kind.fault = fault
                self._on_kind(kind.key)
            await asyncio.sleep(backoff.next())

    async def _watch(self, kind: _Kind, resource: RestMapping) -> bool:
        """Watch until the kind is removed or changed; return whether the API server still serves it."""
        served = False
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in kind.watches.values():
                    tasks.create_task(reflector.run(until=(NotFound,)))
                await self._detect_change(kind.key, resource)
        except* NotFound:
            pass
        except* _KindChanged:
            served = True
        return served

    async def _detect_change(self, key: KindKey, resource: RestMapping) -> None:
        """Raise _KindChanged once discovery returns another resource for the kind; a failed lookup changes nothing."""
        latest = resource
        while latest == resource or latest.hint:
            await asyncio.sleep(REDISCOVERY_SECONDS)
            with suppress(KubeError):
                latest = await self._resources.find(*key)
        raise _KindChanged

    def _new_reflector(self, key: KindKey, resource: RestMapping, namespace: str) -> Reflector[TargetObject]:
        def on_event(old: TargetObject | None, new: TargetObject | None) -> None:
            if (item := new or old) is not None:
                self._on_change(TargetRef(item.namespace, *key, item.target.name))

        return Reflector(
            self._session,
            resource.collection(namespace),
            target_decoder(resource.api_version, resource.kind, resource.paths),
            name=resource.name,
            namespace=namespace,
            on_event=on_event,
            silence=self._silence,
            metrics=self._metrics,
        )

    def resource(self, api_version: str, kind: str) -> str:
        """The plural with its group (`deployments.apps`); empty while the kind is not resolved."""
        found = self._kinds.get(KindKey(api_version, kind))
        return found.resource.name if found is not None and found.resource is not None else ""

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
