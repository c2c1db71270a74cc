"""Assesses marked policies in slices of about 2 ms, and swaps the results into the picture."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from adapter.evaluation.delay_queue import DelayQueue
from adapter.kube.label_index import OwnersByLabels, Pods
from adapter.runtime.slices import Slices
from adapter.snapshot import Key, PodsMetricTarget, PolicyView, QueryView, SnapshotStore, TargetKey
from adapter.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

SLICE_SECONDS = 0.001
"""No assessment is begun after that; the one under way takes one or two milliseconds more."""
PUBLISH_AT_MOST = 32
"""So many results wait for each other while more policies are due: a swap copies the whole list of policies."""
STALE_SECONDS = 0.01
"""So long after the moment at which a sample still counts it no longer does."""
REASSESS_SECONDS = 25.0
"""Ages count too: a policy that nothing touched for so long is assessed again, at most a quarter later. Samples, which
are fetched every 10 s and are 15 s apart, touch nearly every policy before."""


class Worker:
    """One task that keeps the picture current. `view` makes a policy's view, None where the policy is gone.

    `on_views` hears of the policies whose views were swapped in. `unassessed` are those announced and not assessed yet.
    """

    def __init__(
        self, marks: DelayQueue, picture: SnapshotStore, view: Callable[[Key], PolicyView | None], metrics: Metrics
    ) -> None:
        self._marks = marks
        self._picture = picture
        self._view = view
        self._metrics = metrics
        self.on_views: Callable[[Iterable[Key]], None] = _nobody
        self.unassessed: set[Key] = set()
        self._assessed = asyncio.Event()
        self._by_pods: dict[str, OwnersByLabels[Key]] = {}

    async def run(self) -> None:
        """Assess what is marked, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._assess_for_ever())
            tasks.create_task(self._mark_for_ever())

    async def _assess_for_ever(self) -> None:
        found: dict[Key, PolicyView | None] = {}
        slices = Slices(SLICE_SECONDS)
        while True:
            if len(found) >= PUBLISH_AT_MOST or not self._marks.due:
                self.publish(found)
                found = {}
            await self._marks.wait()
            await slices.next()
            found |= self._slice(slices)

    async def _mark_for_ever(self) -> None:
        """Look at every policy once in a while, a fiftieth of them at a time, and mark the old ones."""
        while True:
            keys = tuple(self._picture.current.policies)
            step = max(1, len(keys) // 50)
            for first in range(0, max(1, len(keys)), step):
                for key in keys[first : first + step]:
                    self._marks.mark_old(key, REASSESS_SECONDS)
                await asyncio.sleep(REASSESS_SECONDS / 4 * step / max(1, len(keys)))

    def _slice(self, slices: Slices) -> dict[Key, PolicyView | None]:
        found: dict[Key, PolicyView | None] = {}
        while not slices.is_over and (key := self._marks.take()) is not None:
            found[key] = self._safe_view(key)
            self._mark_next(key, found[key])
        return found

    def _mark_next(self, key: Key, view: PolicyView | None) -> None:
        """Look at a policy again as soon as a sample that counts becomes too old to: nobody else tells of that."""
        if view is None:
            self._marks.forget(key)
        elif view.assessment is not None and view.assessment.stale_at is not None:
            self._marks.mark(key, after=max(0.0, view.assessment.stale_at - view.assessment.at) + STALE_SECONDS)

    def _safe_view(self, key: Key) -> PolicyView | None:
        """The view; a policy whose assessment breaks must not stop the others, and must not keep an old answer."""
        try:
            return self._view(key)
        except Exception:
            log.exception("assessment failed", namespace=key.namespace, policy=key.name)
            self._metrics.errors.labels(reason="assessment").inc()
            known = self._picture.current.policies.get(key)
            return None if known is None else replace(known, assessment=None, problem=None, announced=False)

    def announce(self, views: Mapping[Key, PolicyView]) -> None:
        """Swap in policies that have only just become known, so that they are known before they are assessed."""
        policies = self._picture.current.policies
        new = {key: replace(view, announced=True) for key, view in views.items() if key not in policies}
        if new:
            self.unassessed |= new.keys()
            self._picture.swap(replace(self._picture.current, policies={**policies, **new}))

    async def settled(self) -> None:
        """Return once every policy that was announced has been assessed, or is gone."""
        while self.unassessed:
            self._assessed.clear()
            await self._assessed.wait()

    def publish(self, views: Mapping[Key, PolicyView | None]) -> None:
        """Swap these views into the picture."""
        if not views:
            return
        self.unassessed -= views.keys()
        self._assessed.set()
        current = self._picture.current
        policies = dict(current.policies)
        moved: dict[Key, PolicyView | None] = {}
        for key, view in views.items():
            known = policies.pop(key, None)
            if view is not None:
                policies[key] = view
            target = _target_key(view)
            # A rival's going leaves the target to whoever is still there, though that one has not moved.
            if _target_key(known) != target or (target is not None and current.by_target.get(target) != key):
                moved[key] = known
        by_target = _retargeted(current.by_target, moved, views) if moved else current.by_target
        for key, view in views.items():
            self._find_by_pods(key, view)
        self._picture.swap(replace(current, policies=policies, by_target=by_target, by_pods=self._by_pods))
        self.on_views(views)

    def _find_by_pods(self, key: Key, view: PolicyView | None) -> None:
        assessment = view.assessment if view is not None else None
        of_namespace = self._by_pods.setdefault(key.namespace, OwnersByLabels())
        of_namespace.put(key, () if assessment is None else (reading.pod.labels for reading in assessment.pods))
        if not of_namespace:
            del self._by_pods[key.namespace]

    def publish_queries(self, queries: Mapping[str, QueryView]) -> None:
        """Swap the named queries' answers into the picture."""
        self._picture.swap(replace(self._picture.current, queries=queries))

    def publish_world(
        self,
        targets: Mapping[str, tuple[PodsMetricTarget, ...]],
        pods: Mapping[str, Pods],
        *,
        synced: bool,
    ) -> None:
        """Swap in which HPAs ask for Pods metrics, the pods by namespace, and whether every cache is filled."""
        current = self._picture.current
        self._picture.swap(replace(current, pods_metric_targets=targets, pods=pods, synced=synced))


def _nobody(_keys: Iterable[Key]) -> None:
    pass


def _retargeted(
    before: Mapping[TargetKey, Key], moved: Mapping[Key, PolicyView | None], views: Mapping[Key, PolicyView | None]
) -> dict[TargetKey, Key]:
    """Which policy each target has, after some of them moved on from the view that was known."""
    by_target = dict(before)
    for key, known in moved.items():
        old, new = _target_key(known), _target_key(views[key])
        if old is not None and by_target.get(old) == key:
            del by_target[old]
        if new is not None:
            by_target[new] = key
    return by_target


def _target_key(view: PolicyView | None) -> TargetKey | None:
    if view is None or view.target is None:
        return None
    return TargetKey(view.policy.namespace, view.target_resource, view.target.name)
