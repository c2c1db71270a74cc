"""From the watches, sources and registries to the picture: what the server and the companion have in common."""

import asyncio
import gc
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from adapter.evaluation.decode import PolicyEntry, decode_hpa, decode_policy
from adapter.evaluation.delay_queue import DelayQueue
from adapter.evaluation.evaluator import Evaluator, unassessed
from adapter.evaluation.freshness import Freshness, KindKey
from adapter.evaluation.object_index import Link, ObjectIndex, TargetRef
from adapter.evaluation.policy_metrics import policy_rows
from adapter.evaluation.targets import ResolvedTarget, Targets
from adapter.evaluation.worker import Worker
from adapter.kube.api import ENDPOINT_SLICES, HPAS, PODS, WATERMARK_POLICIES, GroupVersionResource
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples
from adapter.load.spec import Policy, Query
from adapter.policy.hpa import Hpa
from adapter.registries.kubernetes import Endpoints, decode_listing
from adapter.registries.manager import RegistryManager
from adapter.registries.roster import ServiceKey, service_of
from adapter.runtime.answer_budget import ANSWERS, MIB
from adapter.settings import Settings, SettingsError, SettingsFile, needs_restart
from adapter.snapshot import Key, Neighbours, QueryView, SnapshotStore
from adapter.telemetry import logs
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import NamedQueryResult, Prometheus
from adapter.usage.query_catalog import Wanted
from adapter.usage.resource_metrics import ResourceMetrics

log = structlog.get_logger(__name__)

SETTINGS_SECONDS = 5.0
LINKS_SECONDS = 0.2
"""So long after a look at what all policies need another one waits: changes come in bursts."""
YOUNG = (1_000, 3, 1_000_000)
"""When the garbage collector looks at young objects: a thousand take half a millisecond, and most of them live on.
At all objects, which takes tenths of a second, it never looks by itself."""
COLLECT_SECONDS = 300.0


class Engine:
    """From the watches, sources and registries to the picture. `run` keeps it current.

    `on_settings` hears of settings that were taken over.
    """

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self._settings = settings
        self._session = session
        self._metrics = metrics
        self.picture = SnapshotStore()
        self.on_settings: Callable[[Settings], None] = _nobody
        self._marks = DelayQueue(asyncio.get_running_loop().time)
        self._links_changed = asyncio.Event()
        self._world = ObjectIndex(self._marks.mark, self._links_changed.set, partial(self._marks.mark, soon=True))
        namespaces = settings.kubernetes.namespaces
        self._endpoints = Endpoints(self._world.endpoint_changed)
        self._feeds = self._reflectors(namespaces)
        self._targets = Targets(session, namespaces, self._world.target_changed, self._kind_changed, metrics)
        self._freshness = Freshness(
            self._feeds, lambda: self._targets.watches, self._world.mark_namespace, self._kind_changed, metrics
        )
        ANSWERS.resize(settings.answers.max_total_mib * MIB)
        self._usage = ResourceMetrics(
            session,
            self._world.namespaces_with_resources,
            settings.resource_metrics,
            self._world.usage_changed,
            metrics,
        )
        self._prometheus = Prometheus(
            settings.prometheus.servers,
            settings.prometheus.queries,
            inline_allowed=settings.prometheus.inline_queries,
            on_change=self._queries_changed,
            clock=session.now,
            metrics=metrics,
        )
        self.registries = RegistryManager(settings.registries, self._world.roster_changed, session.now, metrics)
        inputs = _Inputs(
            self._targets, self._freshness, self._usage, self._prometheus, self._endpoints, self.registries
        )
        self._views = Evaluator(self._world, inputs, session.now)
        self._worker = Worker(self._marks, self.picture, self._views.view, metrics)
        metrics.registry_rows = self.registries.rows
        metrics.policy_rows = lambda: policy_rows(self.picture.current, session.now())

    def _reflectors(self, namespaces: Iterable[str]) -> list[Reflector[Any]]:
        tolerance = Fraction(self._settings.kubernetes.hpa_tolerance)
        kinds: tuple[tuple[GroupVersionResource, Callable[[msgspec.Raw], Any], Callable[[Any, Any], None]], ...] = (
            (WATERMARK_POLICIES, decode_policy, self._policy_changed),
            (HPAS, partial(decode_hpa, tolerance=tolerance), self._world.hpa_changed),
            (PODS, PodDecoder(), self._world.pod_changed),
            (ENDPOINT_SLICES, decode_listing, self._endpoints.change),
        )
        return [
            Reflector(
                self._session,
                resource.collection(namespace),
                decode,
                name=resource.plural,
                namespace=namespace,
                on_event=on_event,
                metrics=self._metrics,
            )
            for resource, decode, on_event in kinds
            for namespace in tuple(namespaces) or ("",)
        ]

    async def run(self, settings_path: str | None) -> None:
        """Keep the picture current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for feed in self._feeds:
                tasks.create_task(feed.run(), name=f"watch {feed.name}")
            tasks.create_task(self._targets.run(), name="watch targets")
            tasks.create_task(self._freshness.run(), name="freshness")
            tasks.create_task(self._usage.run(), name="metrics.k8s.io")
            tasks.create_task(self._prometheus.run(), name="prometheus")
            tasks.create_task(self.registries.run(), name="registries")
            tasks.create_task(self._assess(), name="assess")
            tasks.create_task(self._collect(), name="garbage")
            if settings_path is not None:
                tasks.create_task(self._follow_settings(SettingsFile(Path(settings_path))), name="settings")

    async def _collect(self) -> None:
        """Keep the garbage collector's pauses short: young objects often, all that came after the caches rarely."""
        await self._filled()
        gc.freeze()
        gc.set_threshold(*YOUNG)
        gc.enable()
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            gc.collect()

    async def _filled(self, *names: str) -> None:
        """Wait for the caches of these names, of all where none is named.

        One that the API server refuses is not waited for: it is silent, which those that need it are told.
        """
        for feed in self._feeds:
            if not names or feed.name in names:
                await feed.answered.wait()

    async def _assess(self) -> None:
        """Assess only once every cache is filled: half of the pods would look like a small service.

        The picture is synced once every policy has been looked at: until then nobody is told that there is none.
        """
        self._publish_queries()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_links())
            await self._filled()
            self._freshness.look()
            self._worker.announce({key: unassessed(entry) for key, entry in self._world.policies.items()})
            tasks.create_task(self._worker.run())
            await self._worker.settled()
            self._publish()

    async def _follow_links(self) -> None:
        """Ask the outside for what policies need, whenever that may have changed; at first beside the pods' list."""
        await self._filled(WATERMARK_POLICIES.plural, HPAS.plural)
        self._links_changed.set()
        while True:
            await self._links_changed.wait()
            self._links_changed.clear()
            links = tuple(self._world.links())
            self._targets.want(self._world.target_claims())
            await asyncio.sleep(0)
            self._prometheus.want(_wanted(links))
            self._usage.refresh()
            self.registries.watch(self._world.service_claims())
            await asyncio.sleep(0)
            self._publish_again()
            await asyncio.sleep(LINKS_SECONDS)

    def _publish_again(self) -> None:
        if self.picture.current.synced:
            self._publish()

    def _publish(self) -> None:
        self._worker.publish_world(
            self._world.pods_metric_targets(self._targets.resource), self._world.pods.namespaces(), synced=True
        )

    def _look_again(self) -> None:
        """The settings are new: look at every policy again."""
        self._world.mark_namespace("")
        self._publish_again()

    def _kind_changed(self, kind: KindKey) -> None:
        """A kind of target was resolved or listed, or can be no longer, or its watch is silent."""
        self._world.mark_kind(*kind)
        self._links_changed.set()  # many kinds change at once: what is known of them is published once

    def _queries_changed(self, users: Iterable[Wanted]) -> None:
        """Queries were answered: whoever uses them is looked at again, and those of general use are published."""
        self._world.queries_changed(Key(user.namespace, user.workload) for user in users)
        self._publish_queries()

    def _publish_queries(self) -> None:
        results = (self._prometheus.series(name) for name in self._prometheus.named())
        self._worker.publish_queries({result.name: _query_view(result) for result in results if result is not None})

    def _policy_changed(self, old: PolicyEntry | None, new: PolicyEntry | None) -> None:
        self._world.policy_changed(old, new)
        if new is not None and old is None and not self._unfilled():
            self._worker.announce({Key(new.namespace, new.name): unassessed(new)})

    def filling(self) -> str:
        """What is still waited for before the picture is synced."""
        if unfilled := self._unfilled():
            return f"the Kubernetes caches are still being filled: {', '.join(unfilled)}"
        return f"{len(self._worker.unassessed)} WatermarkPolicies have not been assessed yet"

    def _unfilled(self) -> tuple[str, ...]:
        """The names of the caches that have not had their first list."""
        return tuple(dict.fromkeys(feed.name for feed in self._feeds if not feed.answered.is_set()))

    def follow_views(self, listener: Callable[[Iterable[Key]], None]) -> None:
        """Have the listener hear of the policies whose views are new."""
        self._worker.on_views = listener

    def hpa(self, key: Key) -> Hpa | None:
        """The HPA that a policy names; None where the policy is not valid or the HPA does not exist."""
        link = self._world.link(key)
        return link.hpa if link is not None else None

    def neighbours(self, key: Key) -> Neighbours:
        """Who else has to do with a policy's target."""
        link = self._world.link(key)
        return self._world.neighbours(link) if link is not None else Neighbours()

    def tolerance_seen(self) -> bool:
        """Whether any HPA has a tolerance of its own, as none can have in a cluster without that field."""
        return self._world.tolerances > 0

    def stale(self, key: Key) -> str | None:
        """The sentence why nothing may be decided on a policy: a watch that it needs is silent. None where all is well.

        With an empty name: on any policy of that namespace. It costs nothing while no watch is silent.
        """
        return self._freshness.policy(key.namespace, self._world.target(key))

    def unready(self) -> str | None:
        """The sentence why this process can decide nothing, where another one may be able to; None otherwise."""
        return self._freshness.unready()

    def trouble(self) -> str | None:
        """The sentence about a silent watch that all policies need, in some namespace or in all; None where none is."""
        return self._freshness.trouble()

    async def _follow_settings(self, file: SettingsFile) -> None:
        """Take over what changes in the settings file; a broken file changes nothing and is complained about once."""
        while True:
            try:
                wanted = await asyncio.to_thread(file.changed)
            except SettingsError as error:
                self._metrics.settings_reloads.labels(result="refused").inc()
                log.warning("the settings file is not taken over", error=str(error))
                wanted = None
            if wanted is not None and wanted != self._settings:
                self._take_over(wanted)
            await asyncio.sleep(SETTINGS_SECONDS)

    def _take_over(self, wanted: Settings) -> None:
        waiting = needs_restart(self._settings, wanted)
        if waiting:
            log.warning("some settings are taken over at the next start only", keys=list(waiting))
        logs.configure(wanted.logging.level, wanted.logging.format)
        ANSWERS.resize(wanted.answers.max_total_mib * MIB)
        self._usage.options = wanted.resource_metrics
        prometheus = wanted.prometheus
        self._prometheus.reload(prometheus.servers, prometheus.queries, inline_allowed=prometheus.inline_queries)
        self._publish_queries()
        self.registries.reload(wanted.registries)
        self._settings = wanted
        self.on_settings(wanted)
        self._metrics.settings_reloads.labels(result="taken").inc()
        log.info("the settings file is taken over")
        self._links_changed.set()
        self._look_again()


def _nobody(_settings: Settings) -> None:
    pass


class _Inputs:
    """Where the views find samples, rosters and targets."""

    def __init__(
        self,
        targets: Targets,
        freshness: Freshness,
        usage: ResourceMetrics,
        prometheus: Prometheus,
        endpoints: Endpoints,
        registries: RegistryManager,
    ) -> None:
        self._registries = registries
        self.find: Callable[[TargetRef], ResolvedTarget | str] = targets.find
        self.silence: Callable[[str, TargetRef | None], str | None] = freshness.policy
        self.resources: Callable[[str], ResourceSamples] = usage.samples
        self.query: Callable[[Query, str, str], QuerySamples] = prometheus.samples
        self.endpoint_serving: Callable[[str, str, str], bool | None] = endpoints.endpoint_serving
        self.registry_refusal: Callable[[ServiceKey, str], str] = registries.refusal

    def roster(self, policy: Policy) -> Roster | None:
        """The registry's latest answer; Kubernetes' own facts need none."""
        service = service_of(policy)
        return self._registries.roster(service) if service is not None else None


def _wanted(links: Iterable[Link]) -> list[tuple[Query, str, str]]:
    return [
        (metric.query, link.policy.namespace, link.ref.name)
        for link in links
        for metric in link.policy.metrics
        if metric.query is not None
    ]


def _query_view(result: NamedQueryResult) -> QueryView:
    return QueryView(
        name=result.name,
        by_pod=result.by_pod,
        pod_label=result.pod_label,
        namespace_label=result.namespace_label,
        max_age=result.max_age,
        series=result.series,
        fetched_at=result.fetched_at,
        error=result.error,
    )
