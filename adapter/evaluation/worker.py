"""Evaluates queued policies, large ones in a thread beside the event loop, and publishes their views together."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from adapter.runtime.concurrency import turn
from adapter.runtime.work_queue import WorkQueue
from adapter.snapshot import Key, PolicyView, SnapshotStore
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

MAX_BATCH = 32
"""Views in one snapshot while more policies are due. Each copies the map of all views."""
STALENESS_MARGIN_SECONDS = 0.01
"""How long after its expiry a sample no longer counts for certain."""


class Worker:
    """The task that evaluates policies and publishes snapshots; the only writer of the snapshot store.

    `begin` returns the view of a policy, None for a deleted one, or what makes the view in the thread. `pending` holds
    the policies that were listed and not evaluated yet.
    """

    resync_seconds = 25.0
    """Evaluation also depends on the age of samples: a policy that no change touches is evaluated again after this
    time. New samples (polled every 10 s, 15 s apart) touch nearly every policy before that."""

    def __init__(
        self,
        queue: WorkQueue[Key],
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

    async def run(self) -> None:
        """Evaluate queued policies until cancelled."""
        views: dict[Key, PolicyView | None] = {}
        while True:
            if views and (len(views) >= MAX_BATCH or not self._queue.ready):
                await turn()  # a batch takes as long as an evaluation
                self.publish(views)
                views = {}
            key = await self._queue.get()
            await turn()
            view = views[key] = await self._evaluate_safely(key, views)
            # Of a policy with a problem, at the start, the target or HPA may be listed in a moment.
            self._queue.done(key, spaced=view is not None and view.problem is None)
            if view is None:
                self._queue.discard(key)
                continue
            seconds, assessment = self.resync_seconds, view.assessment
            if assessment is not None and assessment.stale_at is not None:
                # No event announces that a sample becomes too old.
                seconds = min(seconds, max(0.0, assessment.stale_at - assessment.at) + STALENESS_MARGIN_SECONDS)
            self._queue.add(key, seconds)

    async def _evaluate_safely(self, key: Key, ready: dict[Key, PolicyView | None]) -> PolicyView | None:
        """Evaluate; after an unexpected error the policy loses its assessment, and the other policies go on.

        The `ready` views do not wait for a large policy.
        """
        try:
            begun = self._begin(key)
            if not callable(begun):
                return begun
            self.publish(ready)
            ready.clear()
            return await asyncio.get_running_loop().run_in_executor(self._thread, begun)
        except Exception:  # noqa: BLE001  logged with its traceback, and counted
            _log.exception("assessment_failed", namespace=key.namespace, policy=key.name)
            self._metrics.errors.labels(reason="assessment").inc()
            last = self._snapshots.current.policies.get(key)
            return None if last is None else replace(last, assessment=None, inputs=None, problem=None, pending=False)

    def publish_pending(self, views: Mapping[Key, PolicyView]) -> None:
        """Publish policies that were just listed, so that requests find them before their first evaluation."""
        policies = self._snapshots.current.policies
        new = {key: replace(view, pending=True) for key, view in views.items() if key not in policies}
        if new:
            self.pending |= new.keys()
            self._snapshots.swap(replace(self._snapshots.current, policies={**policies, **new}))

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
        policies = {**self._snapshots.current.policies, **views}
        current = {key: view for key, view in policies.items() if view is not None}
        self._snapshots.swap(replace(self._snapshots.current, policies=current), changed=tuple(views))
