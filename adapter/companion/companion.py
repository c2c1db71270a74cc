"""Watches what is assessed, plans for each policy, and has it carried out while this process leads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from adapter.companion import observe, plan
from adapter.companion.context import Context, State, ToleranceField
from adapter.companion.notifications.notifier import Notifier
from adapter.companion.replica_observer import Watched, look
from adapter.companion.status_reader import found, reread
from adapter.companion.work_queue import WorkQueue
from adapter.companion.writes.actions import Action, ActionResult, WriteStatus
from adapter.companion.writes.writer import Writer
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.load.pipeline import decide
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.runtime.backoff import Backoff
from adapter.runtime.log_once import LogOnce
from adapter.settings import CompanionSettings
from adapter.snapshot import WATCH_SILENT, Key, Problem, SnapshotStore
from adapter.telemetry.metrics import Metrics

LOOK_SECONDS = 10.0
"""A policy that nothing touched for so long is planned for all the same."""
LOOK_AGAIN_SECONDS = 0.2
SETTLE_SECONDS = 3.0
"""So long after its watches are filled samples and registries have answered, if they do."""
URGENT_AT_ONCE = 8
"""So many policies are acted for at a time where that is urgent; one that hangs takes its 2 s alone."""

Planned = Callable[[Context], Iterable[Action]]
Turn = Callable[[], Awaitable[None]]

_log = structlog.get_logger(__name__)


class Companion:
    """The companion over a picture that somebody else keeps current.

    `hpa` gives the HPA of a policy; `stale` the sentence why nothing may be decided on it, None where something may.
    `changed` is to be called with the policies whose views are new.
    """

    def __init__(
        self,
        session: Session,
        lease: LeaderElector,
        picture: SnapshotStore,
        hpa: Callable[[Key], Hpa | None],
        neighbours: Callable[[Key], Neighbours],
        tolerance_seen: Callable[[], bool],
        stale: Callable[[Key], str | None],
        settings: CompanionSettings,
        namespaces: Sequence[str],
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self._session = session
        self._lease = lease
        self._picture = picture
        self._hpa = hpa
        self._neighbours = neighbours
        self._tolerance_seen = tolerance_seen
        self._stale = stale
        self._namespaces = namespaces
        self._metrics = metrics
        self._notifier = Notifier(session, lease, lambda: self.settings, metrics)
        self._writer = Writer(session, lease, metrics, self._notifier.take)
        self._pasts: dict[Key, State] = {}
        self._watched: dict[Key, Watched] = {}
        self._looked_at: dict[Key, float] = {}
        self._leads_since = 0.0
        self._backoff = self._writer.backoff
        self._urgent, self._steady = WorkQueue(), WorkQueue()
        self._next_turn = 0.0

    def changed(self, keys: Iterable[Key]) -> None:
        """The views of these policies are new. What was seen of their counts is kept also while another one leads."""
        now, policies = self._session.now(), self._picture.current.policies
        for key in keys:
            view = policies.get(key)
            if view is None:
                self._forget(key)
                continue
            seen = look(self._watched.get(key), view, now)
            if seen is not None:
                self._watched[key] = seen
            self._urgent.add([key])
            self._steady.add([key])

    def _forget(self, key: Key) -> None:
        """The policy is gone; one of its name that comes later is another one."""
        for known in (self._pasts, self._watched, self._looked_at):
            known.pop(key, None)
        self._backoff.forget(key)
        self._urgent.drop(key)
        self._steady.drop(key)

    async def run(self) -> None:
        """Lead where possible, and act while leading, until cancelled.

        A process that has just begun does not run for it: what it has not heard yet would look like trouble.
        """
        while not self._picture.current.synced:  # noqa: ASYNC110  what is waited for is swapped in elsewhere
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notifier.run())
            tasks.create_task(self._lease.lead(self._act))

    async def _act(self) -> None:
        self._metrics.companion_leads.set(1)
        self._leads_since = self._session.now()
        try:
            own, self._pasts = self._pasts, await self._inherited()
            self._pasts |= {key: _resumed(past, self._pasts.get(key, State())) for key, past in own.items()}
            self._looked_at.clear()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(URGENT_AT_ONCE):
                    tasks.create_task(self._work("urgent", self._urgent, self._look, _never_waits))
                tasks.create_task(self._work("steady", self._steady, plan.steady, self._turn))
                tasks.create_task(self._look_around())
        finally:
            self._metrics.companion_leads.set(0)

    async def _inherited(self) -> dict[Key, State]:
        """What the statuses say, as soon as they can be read: without it conditions would begin anew."""
        pasts: dict[Key, State] = {}
        for namespace in tuple(self._namespaces) or ("",):
            pasts |= await self._inherited_in(namespace)
        return pasts

    async def _inherited_in(self, namespace: str) -> dict[Key, State]:
        backoff, log_once = Backoff(), LogOnce()
        while True:
            try:
                return await found(self._session, [namespace] if namespace else [])
            except KubeError as error:
                if log_once.is_new(str(error)):
                    _log.warning("the policies' statuses cannot be read", namespace=namespace, error=str(error))
                if namespace and isinstance(error, Forbidden):
                    return {}  # nor are its policies known, and the other namespaces do not wait for it
                await asyncio.sleep(backoff.next())

    async def _look_around(self) -> None:
        while True:
            current = self._picture.current.policies
            for key in self._pasts.keys() - current.keys():
                self._forget(key)
            before = asyncio.get_running_loop().time() - LOOK_SECONDS
            old = [key for key in current if self._looked_at.get(key, before) <= before]
            self._urgent.add(old, later=True)
            self._steady.add(old, later=True)
            await asyncio.sleep(LOOK_SECONDS / 10)

    async def _work(self, kind: str, lane: WorkQueue, planned: Planned, turn: Turn) -> None:
        """Plan for whoever is due in the lane, and have it done, for ever. What fails for one policy stops no other."""
        while True:
            async with lane.take() as key:
                try:
                    await self._plan_for(key, kind, planned, turn)
                except Exception as error:  # noqa: BLE001  whatever it is, the other policies go on
                    self._metrics.errors.labels(reason="companion").inc()
                    if self._backoff.failed(key, kind, repr(error), self._session.now()):
                        _log.exception("planning failed", namespace=key.namespace, policy=key.name)
            await asyncio.sleep(0)

    async def _plan_for(self, key: Key, kind: str, planned: Planned, turn: Turn) -> None:
        situation = self._situation(key)
        if situation is None or not self._backoff.is_ready(key, kind, situation.now):
            return
        for action in tuple(planned(situation)):
            if self._writer.may(action):
                await turn()
                await self._do(key, action)
        self._backoff.reset(key, kind)

    def _look(self, situation: Context) -> Iterable[Action]:
        """Note what there is to tell, and give what is urgent. What is to be written of it waits its turn."""
        key, before = situation.key, situation.past
        self._looked_at[key] = asyncio.get_running_loop().time()
        past = self._pasts[key] = observe.observe(situation)
        if past.announced is not before.announced or past.noticed is not before.noticed:
            self._steady.add([key])
        return plan.urgent(replace(situation, past=past))

    async def _do(self, key: Key, action: Action) -> None:
        outcome = await self._writer.carry_out(action)
        if outcome is ActionResult.NOT_LEADING:
            return
        past, now = self._pasts.get(key, State()), self._session.now()
        done = outcome is ActionResult.DONE
        self._pasts[key] = plan.after(past, action, now) if done else plan.missed(past, action, outcome, now)
        if isinstance(action, WriteStatus) and outcome in {ActionResult.OVERTAKEN, ActionResult.FAILED}:
            await self._reread(key)

    async def _reread(self, key: Key) -> None:
        """See what there is in place of the status that was to be replaced."""
        try:
            written = await reread(self._session, key)
        except KubeError as error:
            _log.info("a policy's status cannot be read", key=str(key), error=str(error))
        else:
            # The past as it is now: the other lane may have changed it meanwhile.
            self._pasts[key] = replace(self._pasts.get(key, State()), written=written)

    async def _turn(self) -> None:
        """Wait until another write keeps within the limit."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next_turn)
        self._next_turn = begin + 1 / self.settings.writes_per_second
        await asyncio.sleep(begin - now)

    def _situation(self, key: Key) -> Context | None:
        """The policy as it stands; None where it is gone or not looked at yet. A silent watch's word is left out."""
        view = self._picture.current.policies.get(key)
        if view is None or view.pending or not self._picture.current.synced:
            return None
        silent = self._stale(key)
        if view.problem is None and silent is not None:
            view = replace(view, assessment=None, scale=None, problem=Problem(503, WATCH_SILENT, silent))
        now, decision = self._session.now(), None
        if view.assessment is not None and view.scale is not None and view.bounds is not None:
            decision = decide(view.assessment, view.scale, view.bounds, now)
        return Context(
            key=key,
            now=now,
            view=view,
            decision=decision,
            hpa=self._hpa(key) if silent is None else None,
            settings=self.settings,
            past=self._pasts.get(key, State()),
            watched=self._watched.get(key),
            leads_since=self._leads_since,
            neighbours=self._neighbours(key),
            tolerance_field=self._tolerance_field(),
        )

    def _tolerance_field(self) -> ToleranceField:
        """What is known of it: from the API server's answer, or else because some HPA has one."""
        found = self._writer.hpas.tolerance
        return replace(found, known=True) if found.known is None and self._tolerance_seen() else found


def _resumed(own: State, found: State) -> State:
    """What is found of a policy, with what this process learnt of others' doing when it led before."""
    return replace(found, raised=own.raised, marking=own.marking, wired=own.wired)


async def _never_waits() -> None:
    pass
