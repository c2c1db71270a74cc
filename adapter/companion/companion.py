"""Watches the snapshot, plans for each policy, and has the plans carried out while this process leads.

What is planned, by `conditions`, `changes.observe` and `writes`, is pure: no I/O, no clock.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from adapter.companion import changes, deletion_cost, fast_scale_up, findings, hpa_configuration, status
from adapter.companion.changes import ReplicaHistory, Told, is_new, observe_count, unattributed
from adapter.companion.notifier import Notifier
from adapter.companion.state import Condition, Context, State, Write, WrittenStatus
from adapter.companion.writer import Writer, has_tolerance, read_manager, read_status
from adapter.kube.errors import KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.load.decide import decide
from adapter.policy.conditions import ConditionType
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.runtime.work_queue import WorkQueue
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, Problem, SnapshotStore
from adapter.telemetry.metrics import Metrics

SYNC_POLL_SECONDS = 0.2
WORKERS = 8
"""How many policies of a queue are acted for at a time; a write that hangs takes its worker 2 s."""

_log = structlog.get_logger(__name__)

_CONDITIONS: Mapping[ConditionType, Callable[[Context], Condition | None]] = {
    ConditionType.ACCEPTED: findings.accepted,
    ConditionType.READY: findings.ready,
    ConditionType.ACTIVE: findings.active,
    ConditionType.NOTIFICATION_ROUTES_RESOLVED: findings.routes,
    ConditionType.HPA_CONFORMANT: hpa_configuration.condition,
    ConditionType.FAST_SCALE_UP: fast_scale_up.condition,
    ConditionType.DELETION_COST_APPLIED: deletion_cost.condition,
    ConditionType.VERSIONS_CONSISTENT: findings.versions,
    ConditionType.MASS_PULL_OUT: findings.mass_pull_out,
    ConditionType.AT_MAXIMUM: findings.at_maximum,
}
"""All but those that an assessment finds."""


def conditions(context: Context) -> Mapping[str, Condition]:
    """The conditions of all subjects, in the order of a status; one that says nothing is absent."""
    find = findings.assessed
    found = {one: _CONDITIONS[one](context) if one in _CONDITIONS else find(one, context) for one in ConditionType}
    return {type_: condition for type_, condition in found.items() if condition is not None}


def writes(context: Context, *, urgent: bool) -> Iterator[Write]:
    """The writes that wait for no other, or those that wait their turn; each feature only where it is on.

    While a watch that the policy needs shows no sign of life, its status and its Events say so, and that is all.
    """
    on, acts = context.settings.features, not context.silent
    features = (
        (on.fast_scale_up and acts, fast_scale_up), (on.deletion_cost and acts, deletion_cost),
        (on.hpa_configuration and acts, hpa_configuration), (on.status, status), (on.events, changes),
    )  # fmt: skip
    for is_on, feature in features[:1] if urgent else features[1:]:
        yield from feature.plan(context) if is_on else ()


@dataclass(slots=True)
class _Record:
    """What is known of one policy. A later one of its name has another record, whatever is still under way for this."""

    state: State = field(default_factory=State)
    looked_at: float = -math.inf


@dataclass(eq=False)
class Companion:
    """The companion over snapshots that the engine keeps current.

    `hpa` gives the HPA of a policy; `stale` gives the sentence why nothing may be decided for a policy, or None.
    `changed` is to be called with the policies whose views are new. After its watches are filled it waits for samples
    and registries for `settle_seconds` before it campaigns.
    """

    session: Session
    lease: LeaderElector
    snapshots: SnapshotStore
    hpa: Callable[[Key], Hpa | None]
    neighbours: Callable[[Key], Neighbours]
    tolerance_seen: Callable[[], bool]
    stale: Callable[[Key], str | None]
    settings: CompanionSettings
    metrics: Metrics
    settle_seconds: float = 3.0

    def __post_init__(self) -> None:
        self._writer = Writer(self.session, lambda: self.lease.leads, self.metrics)
        self._backoff = self._writer.backoff
        self._notifier = Notifier(lambda: self.settings, self.metrics, self.session.now, lambda: self.lease.leads)
        self._records: defaultdict[Key, _Record] = defaultdict(_Record)
        self._looks, self._writes = WorkQueue[Key](), WorkQueue[Key]()
        self._has_tolerance = True
        self._next_turn = 0.0

    def changed(self, keys: Iterable[Key]) -> None:
        """Queues policies whose views are new. Their counts are observed also while another replica leads."""
        now, policies = self.session.now(), self.snapshots.current.policies
        for key in keys:
            if (view := policies.get(key)) is not None:
                record = self._records[key]
                history = observe_count(record.state.of(ReplicaHistory), view, now)
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
        while not self.snapshots.current.synced:  # noqa: ASYNC110  the snapshot is swapped without an event
            await asyncio.sleep(SYNC_POLL_SECONDS)
        await asyncio.sleep(self.settle_seconds)
        await self.lease.lead(self._act)

    async def _act(self) -> None:
        self.metrics.companion_leader.set(1)
        try:
            # What this process has observed and tried stands beside the status, which is read. Events wait on.
            for key, record in self._records.items():
                self._writes.discard(key)  # a look is first: it drops Events that are too old
                history, told = unattributed(record.state.of(ReplicaHistory)), Told(events=record.state.of(Told).events)
                self._records[key] = _Record(record.state.having(history, told, WrittenStatus()))
            # Before the first look: without it the condition of an HPA would change with each leader. An upgrade of the
            # API server shows in the next term, or by an HPA that sets a tolerance.
            self._has_tolerance = await has_tolerance(self.session)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(self._work(self._looks, urgent=True))
                    tasks.create_task(self._work(self._writes, urgent=False))
                tasks.create_task(self._resync())
        finally:
            self.metrics.companion_leader.set(0)

    async def _resync(self) -> None:
        """Queues every policy that was not looked at for `statusIntervalSeconds`, behind those that have changed."""
        while True:
            interval = self.settings.status_interval_seconds
            before = asyncio.get_running_loop().time() - interval
            due = [key for key in self.snapshots.current.policies if self._records[key].looked_at <= before]
            self._looks.resync(due)
            await asyncio.sleep(interval / 10)

    async def _work(self, queue: WorkQueue[Key], *, urgent: bool) -> None:
        """Acts for one policy of the queue after the other, for ever. A failure stops no other policy.

        A look updates the state, and carries out the urgent actions at once. The others follow in the second queue.
        """
        lane = "look" if urgent else "write"
        while True:
            key = await queue.get()
            try:
                if key in self.snapshots.current.policies and self._backoff.is_ready(key, lane, self.session.now()):
                    record = self._records[key]
                    context = await self._context(key, record)
                    if context is not None and urgent:
                        record.looked_at = asyncio.get_running_loop().time()
                        state = record.state = changes.observe(context)
                        context = replace(context, state=state)
                        self._writes.add(key)
                        self._notifier.add(key, context.view, state.of(Told).news)
                    for write in tuple(writes(context, urgent=urgent)) if context is not None else ():
                        if self._backoff.is_ready(key, write.kind, self.session.now()):
                            await self._carry_out(record, write, at_once=urgent)
                    self._backoff.reset(key, lane)
            except Exception as error:  # noqa: BLE001  whatever it is, the other policies go on
                is_new = self._backoff.failed(key, lane, repr(error), self.session.now())
                if not isinstance(error, KubeError):
                    self.metrics.errors.labels(reason="companion").inc()
                    if is_new:
                        _log.exception("planning_failed", namespace=key.namespace, policy=key.name)
                elif is_new:
                    _log.warning("policy_status_unreadable", key=str(key), error=str(error))
            finally:
                queue.done(key)
            await asyncio.sleep(0)

    async def _carry_out(self, record: _Record, write: Write, *, at_once: bool) -> None:
        if not at_once:  # it waits until another write keeps within `writesPerSecond`
            now = asyncio.get_running_loop().time()
            begin = max(now, self._next_turn)
            self._next_turn = begin + 1 / self.settings.writes_per_second
            await asyncio.sleep(begin - now)
        if (result := await self._writer.carry_out(write)) is not None:
            record.state = record.state.tried(write, result, self.session.now())

    async def _context(self, key: Key, record: _Record) -> Context | None:
        """The policy at this moment; None if it is gone or not assessed yet. Inputs of a silent watch are left out.

        Its status is read before the first look: without it every condition would begin again.
        """
        if not record.state.of(WrittenStatus).is_read:
            written = await read_status(self.session, key)
            if not record.state.of(WrittenStatus).is_read:  # the other queue's worker may have read it meanwhile
                record.state = record.state.having(written)
        view = self.snapshots.current.policies.get(key)
        if view is None or view.pending or not self.snapshots.current.synced:
            return None
        silence = self.stale(key)
        if view.problem is None and silence is not None:
            view = replace(view, assessment=None, scale=None, problem=Problem(503, "WatchSilent", silence))
        now, decision = self.session.now(), None
        if view.assessment is not None and view.scale is not None and view.bounds is not None:
            decision = decide(view.assessment, view.scale, view.bounds, now)
        history, manager = record.state.of(ReplicaHistory), ""
        if view.target is not None and view.scale is not None and is_new(history, view.scale.replicas):
            manager = await read_manager(self.session, view.scale_path, view.target, view.scale.replicas)
        context = Context(
            key=key,
            now=now,
            view=view,
            decision=decision,
            hpa=self.hpa(key) if silence is None else None,
            settings=self.settings,
            state=record.state,  # it may have changed during the read
            neighbours=self.neighbours(key),
            has_tolerance=self.tolerance_seen() or (self._has_tolerance and not self._writer.drops_tolerance),
            manager=manager,
        )
        return replace(context, conditions=conditions(context))
