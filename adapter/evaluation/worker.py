"""Evaluates queued policies in a thread beside the event loop, and publishes their views in the next snapshot."""

import asyncio
import heapq
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from adapter.kube.label_index import DistinctLabels, OwnersByLabels, PodStore, distinct_labels
from adapter.load.assessment import without_usage
from adapter.runtime.fairness import Turns
from adapter.runtime.slices import turn
from adapter.snapshot import Key, PodsMetricTarget, PolicyView, PolicyViews, SnapshotStore, TargetKey
from adapter.telemetry.metrics import Metrics
from adapter.usage.series import NamedQueryResult

_log = structlog.get_logger(__name__)

LONG_SECONDS = 0.05
"""Views that are ready wait this long at most for the evaluation of another policy."""
MAX_BATCH = 32
"""Views in one snapshot while more policies are due. Each copies the views of their namespaces."""
STALENESS_MARGIN_SECONDS = 0.01
"""How long after its expiry a sample no longer counts for certain."""
RESYNC_SECONDS = 25.0
"""Evaluation also depends on the age of samples: a policy that no change touches is evaluated again after this time, at
most a quarter later. New samples (polled every 10 s, 15 s apart) touch nearly every policy before that."""

SPACING_SECONDS = 0.5
"""The least time between two evaluations of one policy."""
EXPEDITED_SPACING_SECONDS = 0.05
"""The same for changes that must not wait; long enough to merge a burst into one evaluation."""


class DelayQueue:
    """Hands out each policy once, however often it was added since. Namespaces take turns.

    `clock` returns monotonic seconds; `spacing` is the least number of seconds between two pops of one policy.
    """

    def __init__(self, clock: Callable[[], float], spacing: float = SPACING_SECONDS) -> None:
        self._clock = clock
        self._spacing = spacing
        self._heap: list[tuple[float, int, Key]] = []
        self._queued: dict[Key, tuple[float, int]] = {}
        """When each queued policy is due, and the number of its heap item. Any other item of it was replaced."""
        self._due = Turns[Key]()
        self._popped_at: dict[Key, float] = {}
        self._added = 0
        self._changed = asyncio.Event()

    def add(self, key: Key, *, expedited: bool = False) -> None:
        """Queue the policy for now, or for the end of its spacing since the last pop."""
        self._add_at(key, self._clock(), EXPEDITED_SPACING_SECONDS if expedited else self._spacing)

    def add_after(self, key: Key, seconds: float) -> None:
        """Queue the policy for `seconds` from now; an earlier time that it is queued for already stays."""
        self._add_at(key, self._clock() + seconds, self._spacing)

    def add_if_idle(self, key: Key, seconds: float) -> None:
        """Queue the policy if its last pop is at least `seconds` ago."""
        if self._clock() - self._popped_at.get(key, -math.inf) >= seconds:
            self.add(key)

    def _add_at(self, key: Key, at: float, spacing: float) -> None:
        due_at = max(at, self._popped_at.get(key, 0.0) + spacing)
        if key in self._queued and self._queued[key][0] <= due_at:
            return
        self._added += 1
        self._queued[key] = due_at, self._added
        heapq.heappush(self._heap, (due_at, self._added, key))
        self._changed.set()

    @property
    def ready(self) -> bool:
        """Whether a policy is due."""
        now = self._clock()
        while self._heap and (self._heap[0][0] <= now or not self._is_current(self._heap[0])):
            item = heapq.heappop(self._heap)
            if self._is_current(item):
                self._due.add(item[2])
        return bool(self._due)

    def _is_current(self, item: tuple[float, int, Key]) -> bool:
        return self._queued.get(item[2]) == item[:2]

    def pop(self) -> Key | None:
        """Remove and return the next policy; None if none is due yet."""
        key = self._due.pop() if self.ready else None
        if key is None:
            return None
        del self._queued[key]
        self._popped_at[key] = self._clock()
        return key

    def forget(self, key: Key) -> None:
        """Drop the spacing of a deleted policy."""
        self._popped_at.pop(key, None)

    async def wait(self) -> None:
        """Return once a policy is due."""
        while not self.ready:
            self._changed.clear()
            delay = self._heap[0][0] - self._clock() if self._heap else None
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                return


class Worker:
    """The task that evaluates policies and publishes snapshots; the only writer of the snapshot store.

    `begin` returns the view of a policy, None for a deleted one, or what makes the view in the thread. `pending` holds
    the policies that were listed and not evaluated yet.
    """

    def __init__(
        self,
        queue: DelayQueue,
        snapshots: SnapshotStore,
        begin: Callable[[Key], PolicyView | Callable[[], PolicyView] | None],
        metrics: Metrics,
    ) -> None:
        self._queue = queue
        self._snapshots = snapshots
        self._begin = begin
        self._thread = ThreadPoolExecutor(1, "assess")
        self._metrics = metrics
        self.pending: set[Key] = set()
        self._published = asyncio.Event()
        self._by_pods: dict[str, OwnersByLabels[Key]] = {}
        self._labels: dict[Key, DistinctLabels] = {}
        """The labels of the pods of policies that are about to be published."""

    async def run(self) -> None:
        """Evaluate queued policies until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work())
            tasks.create_task(self._resync())

    async def _work(self) -> None:
        views: dict[Key, PolicyView | None] = {}
        while True:
            if len(views) >= MAX_BATCH or not self._queue.ready:
                self.publish(views)
                views = {}
            await self._queue.wait()
            await turn()
            if (key := self._queue.pop()) is not None:
                views[key] = await self._evaluate_safely(key, views)
                self._add_next(key, views[key])

    async def _resync(self) -> None:
        """Queue policies that were not evaluated for RESYNC_SECONDS; each step checks a fiftieth of all policies."""
        while True:
            keys = tuple(self._snapshots.current.policies)
            step = max(1, len(keys) // 50)
            for first in range(0, max(1, len(keys)), step):
                for key in keys[first : first + step]:
                    self._queue.add_if_idle(key, RESYNC_SECONDS)
                await asyncio.sleep(RESYNC_SECONDS / 4 * step / max(1, len(keys)))

    def _add_next(self, key: Key, view: PolicyView | None) -> None:
        """Queue the policy for the moment when one of its samples becomes too old: no event announces that."""
        if view is None:
            self._queue.forget(key)
        elif (assessment := view.assessment) is not None and assessment.stale_at is not None:
            self._queue.add_after(key, max(0.0, assessment.stale_at - assessment.at) + STALENESS_MARGIN_SECONDS)

    async def _evaluate_safely(self, key: Key, ready: dict[Key, PolicyView | None]) -> PolicyView | None:
        """Evaluate; after an unexpected error the policy loses its assessment, and the other policies go on.

        The `ready` views do not wait for a large policy.
        """
        try:
            begun = self._begin(key)
            if not callable(begun):
                return begun
            loop = asyncio.get_running_loop()
            evaluation = loop.run_in_executor(self._thread, _with_labels, begun)
            if not (await asyncio.wait({evaluation}, timeout=LONG_SECONDS))[0]:
                self.publish(dict(ready))
                ready.clear()
            view, self._labels[key] = await evaluation
        except Exception:  # noqa: BLE001  logged with its traceback, and counted
            _log.exception("assessment failed", namespace=key.namespace, policy=key.name)
            self._metrics.errors.labels(reason="assessment").inc()
            last = self._snapshots.current.policies.get(key)
            return None if last is None else replace(last, assessment=None, inputs=None, problem=None, pending=False)
        return view

    def publish_pending(self, views: Mapping[Key, PolicyView]) -> None:
        """Publish policies that were just listed, so that requests find them before their first evaluation."""
        policies = self._snapshots.current.policies
        new = {key: replace(view, pending=True) for key, view in views.items() if key not in policies}
        if new:
            self.pending |= new.keys()
            self._snapshots.swap(replace(self._snapshots.current, policies=self._views.changed(new)))

    async def evaluated(self) -> None:
        """Return once no policy is pending: each was evaluated, or deleted."""
        while self.pending:
            self._published.clear()
            await self._published.wait()

    def publish(self, views: Mapping[Key, PolicyView | None]) -> None:
        """Publish new views; None removes a policy."""
        if not views:
            return
        self.pending -= views.keys()
        self._published.set()
        current = self._snapshots.current
        moved: dict[Key, PolicyView | None] = {}
        for key, view in views.items():
            last = current.policies.get(key)
            target = _target_key(view)
            # When a rival policy of the target is deleted, the one that stays gets the target, though it did not move.
            if _target_key(last) != target or (target is not None and current.by_target.get(target) != key):
                moved[key] = last
        by_target = _retarget(current.by_target, moved, views) if moved else current.by_target
        for key, view in views.items():
            self._index_pods(key, view)
        self._snapshots.swap(
            replace(current, policies=self._views.changed(views), by_target=by_target, by_pods=self._by_pods),
            changed=views,
        )

    @property
    def _views(self) -> PolicyViews:
        policies = self._snapshots.current.policies
        return policies if isinstance(policies, PolicyViews) else PolicyViews().changed(policies)

    def _index_pods(self, key: Key, view: PolicyView | None) -> None:
        labels = self._labels.pop(key, None)
        in_namespace = self._by_pods.setdefault(key.namespace, OwnersByLabels())
        in_namespace.put(key, _labels_of(view) if labels is None else labels)
        if not in_namespace:
            del self._by_pods[key.namespace]

    def publish_queries(self, queries: Mapping[str, NamedQueryResult]) -> None:
        """Publish the results of the named queries."""
        self._snapshots.swap(replace(self._snapshots.current, queries=queries))

    def publish_objects(
        self,
        targets: Mapping[str, tuple[PodsMetricTarget, ...]],
        pods: Mapping[str, PodStore],
        *,
        synced: bool,
    ) -> None:
        """Publish the HPAs with Pods metrics and the pods, by namespace, and whether the snapshot is complete."""
        current = self._snapshots.current
        self._snapshots.swap(replace(current, pods_metric_targets=targets, pods=pods, synced=synced))


def _with_labels(evaluate: Callable[[], PolicyView]) -> tuple[PolicyView, DistinctLabels]:
    """A view and the labels of its pods, so that `publish` need not collect them on the event loop."""
    view = evaluate()
    return view, _labels_of(view)


def _labels_of(view: PolicyView | None) -> DistinctLabels:
    assessment = view.assessment if view is not None else None
    return distinct_labels(one.pod.labels for one in without_usage(assessment.pods)) if assessment else {}


def _retarget(
    before: Mapping[TargetKey, Key], moved: Mapping[Key, PolicyView | None], views: Mapping[Key, PolicyView | None]
) -> dict[TargetKey, Key]:
    """The policy of each target; `moved` holds the last views of the policies whose target changed."""
    by_target = dict(before)
    for key, last in moved.items():
        old, new = _target_key(last), _target_key(views[key])
        if old is not None and by_target.get(old) == key:
            del by_target[old]
        if new is not None:
            by_target[new] = key
    return by_target


def _target_key(view: PolicyView | None) -> TargetKey | None:
    if view is None or view.target is None:
        return None
    return TargetKey(view.policy.namespace, view.target_resource, view.target.name)
