"""Scale targets of whatever kind: each kind that an HPA names is resolved by discovery and watched."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from adapter.assessor.world import TargetRef
from adapter.kube.errors import KubeError
from adapter.kube.reflector import Reflector
from adapter.kube.resources import Resource, Resources
from adapter.kube.session import Session
from adapter.kube.targets import TargetObject, target_decoder
from adapter.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

RETRY_SECONDS = 15.0


class KindKey(NamedTuple):
    """A kind of object."""

    api_version: str
    kind: str


@dataclass(frozen=True, slots=True)
class Found:
    """A target as the watch knows it. `proven_at`: the watch's last proof of life (API server's time)."""

    object: TargetObject
    resource: str
    scale_path: str
    proven_at: float | None


class Targets:
    """Watches every kind that is wanted, each by one reflector that never stops once begun.

    `on_change` is called with each target that came, changed or went.
    """

    def __init__(
        self,
        session: Session,
        namespaces: tuple[str, ...],
        on_change: Callable[[TargetRef], None],
        on_kind: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._resources = Resources(session)
        self._namespaces = namespaces
        self._on_change = on_change
        self._on_kind = on_kind
        self._metrics = metrics
        self._wanted: asyncio.Queue[KindKey] = asyncio.Queue()
        self._kinds: dict[KindKey, Resource | None] = {}
        self._faults: dict[KindKey, str] = {}
        self._watches: dict[KindKey, dict[str, Reflector[TargetObject]]] = {}

    def want(self, refs: Iterable[TargetRef]) -> None:
        """Have the kinds of these targets watched."""
        for ref in refs:
            key = KindKey(ref.api_version, ref.kind)
            if key not in self._kinds:
                self._kinds[key] = None
                self._wanted.put_nowait(key)

    async def run(self) -> None:
        """Resolve and watch what is wanted, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._follow(await self._wanted.get()))

    async def _follow(self, key: KindKey) -> None:
        resource = await self._resolve(key)
        self._kinds[key] = resource
        self._faults.pop(key, None)
        self._watches[key] = {
            namespace: Reflector(
                self._session,
                resource.collection(namespace),
                target_decoder(key.api_version, key.kind, resource.paths),
                name=resource.name,
                on_event=partial(self._changed, key),
                metrics=self._metrics,
            )
            for namespace in self._namespaces or ("",)
        }
        self._on_kind()
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._watches[key].values():
                tasks.create_task(reflector.run())
                tasks.create_task(self._tell_when_synced(reflector))

    async def _tell_when_synced(self, reflector: Reflector[TargetObject]) -> None:
        await reflector.synced.wait()
        self._on_kind()

    async def _resolve(self, key: KindKey) -> Resource:
        while True:
            try:
                return await self._resources.scalable(key.api_version, key.kind)
            except KubeError as error:
                if self._faults.get(key) != str(error):
                    log.warning("scale target kind cannot be resolved", kind=key.kind, error=str(error))
                self._faults[key] = str(error)
                self._on_kind()
                await asyncio.sleep(RETRY_SECONDS)

    def _changed(self, key: KindKey, old: TargetObject | None, new: TargetObject | None) -> None:
        found = new or old
        if found is not None:
            self._on_change(TargetRef(found.namespace, key.api_version, key.kind, found.target.name))

    def resource(self, api_version: str, kind: str) -> str:
        """The plural with its group (`deployments.apps`); empty while it is not resolved."""
        found = self._kinds.get(KindKey(api_version, kind))
        return found.name if found else ""

    def find(self, ref: TargetRef) -> Found | str:
        """The target, or the sentence that says why it is not known."""
        key = KindKey(ref.api_version, ref.kind)
        resource, reflector = self._kinds.get(key), self._watch(key, ref.namespace)
        if resource is None:
            return self._faults.get(key, f"{ref.kind} {ref.name} has not been looked up yet")
        if reflector is None:
            return f"namespace {ref.namespace} is not watched"
        item = reflector.items.get(f"{ref.namespace}/{ref.name}")
        if item is None and not reflector.synced.is_set():
            return f"{resource.name} have not been listed yet"
        if item is None:
            return f"{ref.kind} {ref.name}, that the HPA scales, does not exist in namespace {ref.namespace}"
        return Found(
            object=item,
            resource=resource.name,
            scale_path=resource.scale_path(ref.namespace, ref.name),
            proven_at=reflector.proven_at,
        )

    @property
    def reflectors(self) -> list[Reflector[TargetObject]]:
        """The watches of all kinds."""
        return [reflector for watches in self._watches.values() for reflector in watches.values()]

    def _watch(self, key: KindKey, namespace: str) -> Reflector[TargetObject] | None:
        watches = self._watches.get(key, {})
        return watches.get(namespace) or watches.get("")
