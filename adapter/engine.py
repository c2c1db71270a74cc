"""The engine of the server and of the companion: takes every change of an input to the snapshot.

1. Reflector, Targets, Endpoints: a watch event changes an object; polls and pushes change samples and rosters
   (ResourceMetrics, Prometheus, RegistryManager).
2. ObjectIndex finds the policies that the change affects: policy → HPA → target → pods.
3. WorkQueue merges the changes of a policy into one evaluation in half a second.
4. Evaluator collects the policy's inputs from memory and assesses them; the result is its view.
5. Worker publishes the views in the next snapshot, and the SnapshotStore notifies its subscribers.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec

from adapter.evaluation.evaluator import Evaluator, Inputs, initial_view
from adapter.evaluation.freshness import Freshness, KindKey
from adapter.evaluation.object_index import DecodedPolicy, Need, ObjectIndex, decode_policy
from adapter.evaluation.policy_metrics import policy_rows
from adapter.evaluation.targets import Targets
from adapter.evaluation.worker import Worker
from adapter.kube.api import ENDPOINT_SLICES, HPAS, PODS, WATERMARK_POLICIES, GroupVersionResource
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.conformance import Wiring
from adapter.policy.hpa import decode_hpa
from adapter.registries.follow import RegistryManager
from adapter.registries.kubernetes import Endpoints, decode_listing
from adapter.runtime.work_queue import SPACING_SECONDS, WorkQueue
from adapter.settings import Settings
from adapter.snapshot import Key, SnapshotStore
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.query_catalog import WorkloadQuery
from adapter.usage.resource_metrics import ResourceMetrics

LINKS_SECONDS = 0.2
"""The least time between two updates of the sources after changed links: changes come in bursts."""


class Engine:
    """Connects watches, sources and registries to the snapshot store; `run` keeps the snapshot current."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self._session = session
        self._metrics = metrics
        self.snapshots = SnapshotStore()
        self.assessed = asyncio.Event()
        """Set once every listed policy was evaluated for the first time."""
        self.queue = WorkQueue[Key](SPACING_SECONDS)
        self._links_changed = asyncio.Event()
        self.index = index = ObjectIndex(self.queue.add, self._links_changed.set)
        namespaces = settings.kubernetes.namespaces
        self._endpoints = Endpoints(self.index.endpoint_changed)
        silence = settings.kubernetes.watch_silence_seconds
        self._reflectors = self._new_reflectors(namespaces, Fraction(settings.kubernetes.hpa_tolerance), silence)
        self._targets = Targets(session, namespaces, self.index.target_changed, self._kind_changed, metrics, silence)
        self.freshness = Freshness(
            self._reflectors, lambda: self._targets.watches, self.index.mark_namespace, self._kind_changed, metrics
        )
        self._resource_metrics = ResourceMetrics(
            session,
            self.index.namespaces_with_resources,
            settings.resource_metrics,
            lambda namespace: index.mark_users(Need("resources", namespace)),
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
        self.registries = RegistryManager(
            settings.registries, lambda key: index.mark_users(Need("service", key)), session.now, metrics
        )
        inputs = Inputs(
            self._targets, self.freshness, self._endpoints, self._resource_metrics, self._prometheus, self.registries
        )
        evaluator = Evaluator(self.index, inputs, session.now)
        self._worker = Worker(self.queue, self.snapshots, evaluator.begin, metrics)
        metrics.registry_rows = self.registries.rows
        metrics.policy_rows = lambda: policy_rows(self.snapshots.current, session.now(), self._wiring)

    def _new_reflectors(self, namespaces: Iterable[str], tolerance: Fraction, silence: float) -> list[Reflector[Any]]:
        kinds: tuple[tuple[GroupVersionResource, Callable[[msgspec.Raw], Any], Callable[[Any, Any], None]], ...] = (
            (WATERMARK_POLICIES, decode_policy, self._policy_changed),
            (HPAS, partial(decode_hpa, tolerance=tolerance), self.index.hpa_changed),
            (PODS, PodDecoder(), self.index.pod_changed),
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
                silence=silence,
                metrics=self._metrics,
            )
            for resource, decode, on_event in kinds
            for namespace in tuple(namespaces) or ("",)
        ]

    async def run(self) -> None:
        """Keep the snapshot current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"watch {reflector.name}")
            tasks.create_task(self._targets.run(), name="watch targets")
            tasks.create_task(self.freshness.run(), name="freshness")
            tasks.create_task(self._resource_metrics.run(), name="metrics.k8s.io")
            tasks.create_task(self._prometheus.run(), name="prometheus")
            tasks.create_task(self.registries.run(), name="registries")
            tasks.create_task(self._follow_links(), name="links")
            tasks.create_task(self._evaluate(), name="evaluate")

    async def wait_for_caches(self, *names: str) -> None:
        """Wait for the first list of the named caches, or of all.

        A list that the API server refuses ends the wait too: that watch is silent, and its policies have a problem.
        """
        for reflector in self._reflectors:
            if not names or reflector.name in names:
                await reflector.answered.wait()

    async def _evaluate(self) -> None:
        """Evaluate policies once all caches are complete: with half of its pods a service would look small.

        The snapshot is synced after the first evaluation of every policy; until then no request gets a 404.
        """
        self._publish_queries()
        await self.wait_for_caches()
        self.freshness.check()
        self._worker.publish_pending({key: initial_view(policy) for key, policy in self.index.policies.items()})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._worker.run())
            await self._worker.evaluated()
            self._publish_objects()
            self.assessed.set()

    async def _follow_links(self) -> None:
        """Update the targets, queries, namespaces and services to follow after each change of a link.

        It starts with the first policies and HPAs, while the list of pods is still in progress.
        """
        await self.wait_for_caches(WATERMARK_POLICIES.plural, HPAS.plural)
        self._links_changed.set()
        while True:
            await self._links_changed.wait()
            self._links_changed.clear()
            queries = [
                WorkloadQuery(metric.query, link.policy.namespace, link.ref.name)
                for link in self.index.links()
                for metric in link.policy.metrics
                if metric.query is not None
            ]
            self._targets.watch(self.index.kinds())
            await asyncio.sleep(0)
            self._prometheus.set_queries(queries)
            self._resource_metrics.refresh()
            self.registries.watch(self.index.service_claims())
            await asyncio.sleep(0)
            if self.snapshots.current.synced:
                self._publish_objects()
            await asyncio.sleep(LINKS_SECONDS)

    def _publish_objects(self) -> None:
        self.snapshots.swap(replace(self.snapshots.current, pods=self.index.pods.namespaces(), synced=True))

    def _publish_queries(self) -> None:
        queries = {result.name: result for result in self._prometheus.named_results()}
        self.snapshots.swap(replace(self.snapshots.current, queries=queries))

    def _kind_changed(self, kind: KindKey) -> None:
        """A kind of scale target was resolved, listed or dropped, or its watch became silent or current."""
        self.index.mark_kind(*kind)
        self._links_changed.set()  # many kinds change at once: the objects are published once

    def _queries_changed(self, users: Iterable[WorkloadQuery]) -> None:
        """Prometheus answered: evaluate the policies that use the query, and publish the named queries."""
        for user in users:
            self.index.mark_users(Need("workload", Key(user.namespace, user.workload)))
        self._publish_queries()

    def _policy_changed(self, old: DecodedPolicy | None, new: DecodedPolicy | None) -> None:
        self.index.policy_changed(old, new)
        if new is not None and old is None and not self._unlisted():
            self._worker.publish_pending({new.key: initial_view(new)})

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings and evaluate every policy again; some settings need a restart (`needs_restart`)."""
        self._resource_metrics.settings = settings.resource_metrics
        prometheus = settings.prometheus
        self._prometheus.reload(prometheus.servers, prometheus.queries, inline_allowed=prometheus.inline_queries)
        self._publish_queries()
        self.registries.reload(settings.registries)
        self._links_changed.set()
        self.index.mark_namespace("")
        if self.snapshots.current.synced:
            self._publish_objects()

    def filling(self) -> str:
        """The sentence that names what must complete before the snapshot is synced."""
        if unlisted := self._unlisted():
            return f"the Kubernetes caches are still being filled: {', '.join(unlisted)}"
        return f"{len(self._worker.pending)} WatermarkPolicies have not been assessed yet"

    def _unlisted(self) -> tuple[str, ...]:
        """The names of the caches that wait for their first list."""
        waiting = (reflector.name for reflector in self._reflectors if not reflector.answered.is_set())
        return tuple(dict.fromkeys(waiting))

    def _wiring(self, policy: Policy) -> Wiring | None:
        key = Key(policy.namespace, policy.name)
        if (hpa := self.index.hpa(key)) is None:
            return None
        neighbours, has_tolerance = self.index.neighbours(key), self.index.tolerance_seen()
        return Wiring(policy=policy, hpa=hpa, neighbours=neighbours, has_tolerance=has_tolerance)

    def stale(self, key: Key) -> str | None:
        """Why a policy (empty name: any of the namespace) may not be decided on: a watch is silent; None if it may.

        It costs next to nothing while no watch is silent.
        """
        return self.freshness.policy(key.namespace, self.index.target(key))
