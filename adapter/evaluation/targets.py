"""Scale targets of whatever kind: each kind that an HPA names is resolved by discovery and watched."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from adapter.evaluation.freshness import KindKey, KindWatches, silence
from adapter.evaluation.object_index import TargetRef
from adapter.kube.errors import KubeError, NotFound
from adapter.kube.reflector import Reflector
from adapter.kube.rest_mapper import RestMapper, RestMapping
from adapter.kube.session import Session
from adapter.kube.targets import TargetObject, target_decoder
from adapter.policy.references import kind_faults
from adapter.runtime.backoff import Backoff
from adapter.runtime.fair_slots import Claim, grant_slots
from adapter.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

LASTING_SECONDS = 60.0
"""A kind that was watched for so long is looked up again at once when it goes; one that comes and goes is not."""
LOOK_AGAIN_SECONDS = 30.0
"""How often a kind is looked up while it is watched: no watch tells that objects keep their scale elsewhere now."""
USUAL = frozenset(
    {
        KindKey("apps/v1", "Deployment"),
        KindKey("apps/v1", "ReplicaSet"),
        KindKey("apps/v1", "StatefulSet"),
        KindKey("v1", "ReplicationController"),
    }
)
"""Kinds that every API server serves: they are always watched where they are named."""
KINDS_OF_A_NAMESPACE = 20
"""So many other kinds may the HPAs of one namespace name: each is a watch, or is looked for again and again."""
KINDS = 200
"""So many other kinds are watched in all. Beyond, every namespace's oldest comes before any namespace's second."""

_CROWDED = (
    f"{{kind}} ({{api_version}}) is not watched: HPAs of policies name too many kinds (at most {KINDS_OF_A_NAMESPACE} "
    f"beside Kubernetes' own in a namespace, and {KINDS} in all); name fewer"
)


class _Changed(Exception):  # noqa: N818 - it is called what happened
    """The kind is served in another way than before."""


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A target as the watch knows it. `confirmed_at`: the watch's last proof of life (API server's time)."""

    object: TargetObject
    resource: str
    scale_path: str
    confirmed_at: float | None


class TargetKind:
    """A kind of scale target that is wanted: resolved by discovery, then watched; anew where it came back, or changed.

    `reflector` makes the watch of a namespace (empty: of all). `on_news` is called when the kind was resolved or
    listed, or can no longer be resolved.
    """

    def __init__(
        self,
        key: KindKey,
        resources: RestMapper,
        reflector: Callable[[RestMapping, str], Reflector[TargetObject]],
        namespaces: tuple[str, ...],
        on_news: Callable[[KindKey], None],
    ) -> None:
        self.resource: RestMapping | None = None
        self.fault = ""
        """Why it cannot be resolved."""
        self.watches: dict[str, Reflector[TargetObject]] = {}
        self._key = key
        self._resources = resources
        self._reflector = reflector
        self._namespaces = namespaces
        self._on_news = on_news
        self._backoff = Backoff()

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        while True:
            self.resource = await self._resolved()
            self.fault = ""
            self.watches = {
                namespace: self._reflector(self.resource, namespace) for namespace in self._namespaces or ("",)
            }
            self._on_news(self._key)
            began = asyncio.get_running_loop().time()
            served = await self._watch(self.resource)
            if asyncio.get_running_loop().time() - began > LASTING_SECONDS:
                self._backoff.reset()
            what = "is served in another way now" if served else "is gone"
            log.info("looking a scale target kind up anew", kind=self._key.kind, because=what)
            self.fault = "" if served else f"the API server serves no {self.resource.name} any more"
            self.resource, self.watches = None, {}
            self._resources.forget(self._key.api_version, self._key.kind)
            self._on_news(self._key)
            if not served:
                await asyncio.sleep(self._backoff.next())

    async def _watch(self, resource: RestMapping) -> bool:
        """Watch until the API server no longer serves the kind as it was; whether it still serves it."""
        served = False
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self.watches.values():
                    tasks.create_task(reflector.run(until=(NotFound,)))
                    tasks.create_task(self._tell_when_synced(reflector))
                tasks.create_task(self._end_when_changed(resource))
        except* NotFound:
            pass
        except* _Changed:
            served = True
        return served

    async def _end_when_changed(self, resource: RestMapping) -> None:
        """Raise _Changed once the kind is found to be served in another way; what cannot be looked up is as it was."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            self._resources.forget(self._key.api_version, self._key.kind)
            try:
                found = await self._resources.find(self._key.api_version, self._key.kind)
            except KubeError:
                continue
            if found != resource and not found.hint:
                raise _Changed

    async def _tell_when_synced(self, reflector: Reflector[TargetObject]) -> None:
        await reflector.synced.wait()
        self._on_news(self._key)

    async def _resolved(self) -> RestMapping:
        """The kind as the API server serves it now; until it serves one, the fault says why not."""
        while True:
            try:
                resource = await self._resources.scalable(self._key.api_version, self._key.kind, anew=True)
            except KubeError as error:
                self._complain(error.public, str(error))
            else:
                if not resource.hint:
                    return resource
                self._complain(f"{self._key.kind} has no scale that can be read: {resource.hint}")
            await asyncio.sleep(self._backoff.next())

    def _complain(self, sentence: str, detail: str = "") -> None:
        if self.fault != sentence:
            log.warning("scale target kind cannot be resolved", kind=self._key.kind, error=detail or sentence)
            self.fault = sentence
            self._on_news(self._key)


class Targets:
    """Watches every kind that is wanted, and no other: a kind whose last policy is gone is let go.

    `on_change` is called with each target that came, changed or went, `on_kind` with a kind of which something else is
    known now.
    """

    def __init__(
        self,
        session: Session,
        namespaces: tuple[str, ...],
        on_change: Callable[[TargetRef], None],
        on_kind: Callable[[KindKey], None],
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._resources = RestMapper(session)
        self._namespaces = namespaces
        self._on_change = on_change
        self._on_kind = on_kind
        self._metrics = metrics
        self._kinds: dict[KindKey, TargetKind] = {}
        self._running: dict[KindKey, asyncio.Task[None]] = {}
        self._left_out: set[KindKey] = set()
        self._changed = asyncio.Event()

    def want(self, claims: Iterable[Claim[TargetRef]]) -> None:
        """Have the kinds of these targets watched, and no others: none that cannot be one, and only so many unusual."""
        kinds = [Claim(one.namespace, one.since, KindKey(one.item.api_version, one.item.kind)) for one in claims]
        usual = {claim.item for claim in kinds} & USUAL
        unusual = [claim for claim in kinds if claim.item not in USUAL and not any(kind_faults(*claim.item))]
        wanted = usual | {key for _, key in grant_slots(unusual, KINDS_OF_A_NAMESPACE, KINDS)}
        self._note_left_out({claim.item for claim in unusual} - wanted)
        for key in self._kinds.keys() - wanted:
            self._let_go(key)
        for key in wanted - self._kinds.keys():
            reflector = partial(self._make_reflector, key)
            self._kinds[key] = TargetKind(key, self._resources, reflector, self._namespaces, self._on_kind)
            self._changed.set()

    async def run(self) -> None:
        """Resolve and watch what is wanted, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for key in self._kinds.keys() - self._running.keys():
                    self._running[key] = tasks.create_task(self._kinds[key].run(), name=f"watch {key.kind}")
                self._changed.clear()
                await self._changed.wait()

    def _note_left_out(self, left_out: set[KindKey]) -> None:
        changed, self._left_out = self._left_out ^ left_out, left_out
        for key in changed:
            self._on_kind(key)

    def _let_go(self, key: KindKey) -> None:
        self._kinds.pop(key)
        self._resources.forget(*key)
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()
        self._on_kind(key)

    def _make_reflector(self, key: KindKey, resource: RestMapping, namespace: str) -> Reflector[TargetObject]:
        return Reflector(
            self._session,
            resource.collection(namespace),
            target_decoder(key.api_version, key.kind, resource.paths),
            name=resource.name,
            namespace=namespace,
            on_event=partial(self._tell, key),
            metrics=self._metrics,
        )

    def _tell(self, key: KindKey, old: TargetObject | None, new: TargetObject | None) -> None:
        found = new or old
        if found is not None:
            self._on_change(TargetRef(found.namespace, key.api_version, key.kind, found.target.name))

    def resource(self, api_version: str, kind: str) -> str:
        """The plural with its group (`deployments.apps`); empty while it is not resolved."""
        found = self._kinds.get(KindKey(api_version, kind))
        return found.resource.name if found is not None and found.resource is not None else ""

    def find(self, ref: TargetRef) -> ResolvedTarget | str:
        """The target, or the sentence that says why it is not known."""
        kind = self._kinds.get(key := KindKey(ref.api_version, ref.kind))
        if key in self._left_out:
            return _CROWDED.format(kind=ref.kind, api_version=ref.api_version)
        if kind is None or kind.resource is None:
            return (kind.fault if kind is not None else "") or f"{ref.kind} {ref.name} has not been looked up yet"
        reflector = kind.watches.get(ref.namespace) or kind.watches.get("")
        if reflector is None:
            return f"namespace {ref.namespace} is not watched"
        item = reflector.items.get(f"{ref.namespace}/{ref.name}")
        if item is None and (sentence := silence(reflector)) is not None:
            return sentence
        if item is None:
            return f"{ref.kind} {ref.name}, that the HPA scales, does not exist in namespace {ref.namespace}"
        return ResolvedTarget(
            object=item,
            resource=kind.resource.name,
            scale_path=kind.resource.scale_path(ref.namespace, ref.name),
            confirmed_at=reflector.confirmed_at,
        )

    @property
    def watches(self) -> KindWatches:
        """The watches of all kinds that are resolved."""
        return {key: kind.watches for key, kind in self._kinds.items()}
