"""Watches the snapshot, plans for each policy, and has the plans carried out while this process leads."""

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog

from adapter.companion import plan, replica_history
from adapter.companion.changes import Told
from adapter.companion.notifier import Notifier
from adapter.companion.replica_history import ReplicaHistory, is_new
from adapter.companion.state import ActionResult, Context, State, Write
from adapter.companion.writer import Writer, has_tolerance, read_manager, read_status
from adapter.kube.errors import KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.load.decide import decide
from adapter.policy.conditions import Reason
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.runtime.work_queue import WorkQueue
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, Problem, SnapshotStore
from adapter.telemetry.metrics import Metrics

SYNC_POLL_SECONDS = 0.2
SETTLE_SECONDS = 3.0
"""How long after its watches are filled a replica waits for samples and registries before it campaigns."""
TURNS = 10
"""How often within `statusIntervalSeconds` it looks which policies are due."""
WORKERS = 8
"""How many policies of a queue are acted for at a time; a write that hangs takes its worker 2 s."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Record:
    """What is known of one policy; `is_read`: its status was read in this term, and not found to be another one since.

    A later policy of its name has a record of its own, whatever is still under way for this one.
    """

    state: State = field(default_factory=State)
    is_read: bool = False
    looked_at: float = -math.inf


class Companion:
    """The companion over snapshots that the engine keeps current.

    `hpa` gives the HPA of a policy; `stale` gives the sentence why nothing may be decided for a policy, or None.
    `changed` is to be called with the policies whose views are new.
    """

    def __init__(
        self,
        session: Session,
        lease: LeaderElector,
        snapshots: SnapshotStore,
        hpa: Callable[[Key], Hpa | None],
        neighbours: Callable[[Key], Neighbours],
        tolerance_seen: Callable[[], bool],
        stale: Callable[[Key], str | None],
        settings: CompanionSettings,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self._session = session
        self._lease = lease
        self._snapshots = snapshots
        self._hpa = hpa
        self._neighbours = neighbours
        self._tolerance_seen = tolerance_seen
        self._stale = stale
        self._metrics = metrics
        self._notifier = Notifier(lambda: self.settings, metrics, session.now, lambda: lease.leads)
        self._writer = Writer(session, lambda: lease.leads, metrics)
        self._records: defaultdict[Key, _Record] = defaultdict(_Record)
        self._backoff = self._writer.backoff
        self._looks, self._writes = WorkQueue[Key](), WorkQueue[Key]()
        self._has_tolerance: bool | None = None
        self._next_turn = 0.0
        self._leads_since = 0.0

    def changed(self, keys: Iterable[Key]) -> None:
        """Queues policies whose views are new. Their counts are observed also while another replica leads."""
        now, policies = self._session.now(), self._snapshots.current.policies
        for key in keys:
            if (view := policies.get(key)) is not None:
                record = self._records[key]
                history = replica_history.observe_count(record.state.of(ReplicaHistory), view, now)
                record.state = record.state.having(history)
                self._looks.add(key)
                continue
            self._records.pop(key, None)
            self._backoff.forget(key)
            self._looks.discard(key)
            self._writes.discard(key)

    async def run(self) -> None:
        """Campaigns for the lease, and acts while leading, until cancelled.

        A replica does not campaign until its caches have settled: missing inputs would look like failures.
        """
        while not self._snapshots.current.synced:  # noqa: ASYNC110  the snapshot is swapped without an event
            await asyncio.sleep(SYNC_POLL_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        await self._lease.lead(self._act)

    async def _act(self) -> None:
        self._metrics.companion_leader.set(1)
        self._leads_since = self._session.now()
        try:
            # What this process has observed, and learnt of others' writes, stands beside the status, which is read.
            for key, record in self._records.items():
                history = replica_history.unattributed(record.state.of(ReplicaHistory))
                self._records[key] = _Record(record.state.having(history, Told()))
            # Before the first look: without it the condition of an HPA would change with each leader.
            self._has_tolerance = await has_tolerance(self._session)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(self._work("look", self._looks, urgent=True))
                    tasks.create_task(self._work("write", self._writes, urgent=False))
                tasks.create_task(self._resync())
        finally:
            self._metrics.companion_leader.set(0)

    async def _resync(self) -> None:
        """Queues every policy that was not looked at for `statusIntervalSeconds`, behind those that have changed.

        As often it learns again whether HPAs have a tolerance here; an API server may be upgraded.
        """
        for turn in itertools.count(1):
            interval = self.settings.status_interval_seconds
            before = asyncio.get_running_loop().time() - interval
            due = [key for key in self._snapshots.current.policies if self._records[key].looked_at <= before]
            self._looks.resync(due)
            await asyncio.sleep(interval / TURNS)
            found = await has_tolerance(self._session) if turn % TURNS == 0 else None
            self._has_tolerance = self._has_tolerance if found is None else found

    async def _work(self, lane: str, queue: WorkQueue[Key], *, urgent: bool) -> None:
        """Acts for one policy of the queue after the other, for ever. A failure stops no other policy.

        A look updates the state, and carries out the urgent actions at once. The others follow in the second queue.
        """
        while True:
            key = await queue.get()
            try:
                if key in self._snapshots.current.policies and self._backoff.is_ready(key, lane, self._session.now()):
                    record = self._records[key]
                    context = await self._context(key, record)
                    if context is not None and urgent:
                        record.looked_at = asyncio.get_running_loop().time()
                        state = record.state = plan.observe(context)
                        context = replace(context, state=state)
                        self._writes.add(key)
                        self._notifier.add(key, context.view, state.of(Told).news)
                    for write in tuple(plan.actions(context, urgent=urgent)) if context is not None else ():
                        if self._backoff.is_ready(key, write.kind, self._session.now()):
                            await self._carry_out(record, write, at_once=urgent)
                    self._backoff.reset(key, lane)
            except KubeError as error:
                if self._backoff.failed(key, lane, str(error), self._session.now()):
                    _log.warning("policy_status_unreadable", key=str(key), error=str(error))
            except Exception as error:  # noqa: BLE001  whatever it is, the other policies go on
                self._metrics.errors.labels(reason="companion").inc()
                if self._backoff.failed(key, lane, repr(error), self._session.now()):
                    _log.exception("planning_failed", namespace=key.namespace, policy=key.name)
            finally:
                queue.done(key)
            await asyncio.sleep(0)

    async def _carry_out(self, record: _Record, write: Write, *, at_once: bool) -> None:
        if not at_once:  # it waits until another write keeps within `writesPerSecond`
            now = asyncio.get_running_loop().time()
            begin = max(now, self._next_turn)
            self._next_turn = begin + 1 / self.settings.writes_per_second
            await asyncio.sleep(begin - now)
        result = await self._writer.carry_out(write)
        if result is not None:
            record.state = plan.after(record.state, write, result, self._session.now())
            if write.kind == "WriteStatus" and result in {ActionResult.OVERTAKEN, ActionResult.FAILED}:
                record.is_read = False

    async def _context(self, key: Key, record: _Record) -> Context | None:
        """The policy at this moment; None if it is gone or not assessed yet. Inputs of a silent watch are left out.

        Its status is read before the first look: without it every condition would begin again.
        """
        if not record.is_read:
            written = await read_status(self._session, key)
            if not record.is_read:  # the other queue's worker may have read it meanwhile
                record.state, record.is_read = record.state.having(written), True
        view = self._snapshots.current.policies.get(key)
        if view is None or view.pending or not self._snapshots.current.synced:
            return None
        silence = self._stale(key)
        if view.problem is None and silence is not None:
            view = replace(view, assessment=None, scale=None, problem=Problem(503, Reason.WATCH_SILENT, silence))
        now, decision = self._session.now(), None
        if view.assessment is not None and view.scale is not None and view.bounds is not None:
            decision = decide(view.assessment, view.scale, view.bounds, now)
        history, manager = record.state.of(ReplicaHistory), ""
        if view.target is not None and view.scale is not None and is_new(history, view.scale.replicas):
            manager = await read_manager(self._session, view.scale_path, view.target)
        context = Context(
            key=key,
            now=now,
            view=view,
            decision=decision,
            hpa=self._hpa(key) if silence is None else None,
            settings=self.settings,
            state=record.state,  # it may have changed during the read
            leads_since=self._leads_since,
            neighbours=self._neighbours(key),
            has_tolerance=self._tolerance_seen() or (self._has_tolerance and not self._writer.drops_tolerance),
            manager=manager,
        )
        return replace(context, conditions=plan.conditions(context))
