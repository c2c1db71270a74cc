"""Watches what is assessed, plans for each policy, and has it carried out while this process leads."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from adapter.companion import plan
from adapter.companion.situation import Past, Situation, Written
from adapter.companion.writer import Writer
from adapter.kube.lease import Lease
from adapter.kube.session import Session
from adapter.load.pipeline import decide
from adapter.policy.hpa import Hpa
from adapter.settings import Companion as CompanionSettings
from adapter.snapshot import Key, Picture
from adapter.telemetry.metrics import Metrics

LOOK_SECONDS = 10.0
"""Every policy is planned for so often, though nothing touched it."""
PAGE = 500


class Companion:
    """The companion over a picture that somebody else keeps current.

    `hpa` gives the HPA of a policy; `stale` the sentence why nothing may be decided, None where all is well. `changed`
    is to be called with the policies whose views are new.
    """

    def __init__(
        self,
        session: Session,
        lease: Lease,
        picture: Picture,
        hpa: Callable[[Key], Hpa | None],
        stale: Callable[[], str | None],
        settings: CompanionSettings,
        namespaces: Sequence[str],
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self._session = session
        self._lease = lease
        self._picture = picture
        self._hpa = hpa
        self._stale = stale
        self._paths = [_POLICIES.format(f"/namespaces/{one}") for one in namespaces] or [_POLICIES.format("")]
        self._metrics = metrics
        self._writer = Writer(session, lease, metrics)
        self._pasts: dict[Key, Past] = {}
        self._due: dict[Key, None] = {}
        """Whom to plan for, in the order of asking."""
        self._news = asyncio.Event()

    def changed(self, keys: Iterable[Key]) -> None:
        """The views of these policies are new."""
        self._due.update(dict.fromkeys(keys))
        self._news.set()

    async def run(self) -> None:
        """Lead where possible, and act while leading, until cancelled."""
        await self._lease.lead(self._act)

    async def _act(self) -> None:
        self._metrics.companion_leads.set(1)
        try:
            self._pasts = await self._found()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._work())
                tasks.create_task(self._look_around())
        finally:
            self._metrics.companion_leads.set(0)

    async def _found(self) -> dict[Key, Past]:
        """The statuses as another leader left them: when conditions began is in there."""
        found: dict[Key, Past] = {}
        for path in self._paths:
            token = ""
            while True:
                page = _PAGE.decode(await self._session.get(path, params={"limit": str(PAGE), "continue": token}))
                for item in page.items:
                    key = Key(item.metadata.namespace, item.metadata.name)
                    found[key] = Past(written=Written(status=item.status or {}))
                token = page.metadata.continue_
                if not token:
                    break
        return found

    async def _look_around(self) -> None:
        while True:
            self.changed(self._picture.current.policies)
            for key in self._pasts.keys() - self._picture.current.policies.keys():
                del self._pasts[key]
            await asyncio.sleep(LOOK_SECONDS)

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            while self._due:
                key = next(iter(self._due))
                del self._due[key]
                await self._plan_for(key)
                await asyncio.sleep(0)
            self._news.clear()

    async def _plan_for(self, key: Key) -> None:
        situation = self._situation(key)
        if situation is None:
            return
        for action in plan.plan(situation):
            if await self._writer.carry_out(action):
                past = self._pasts.get(key, Past())
                self._pasts[key] = plan.after(past, action, self._session.now())
            await asyncio.sleep(1 / self.settings.writes_per_second)

    def _situation(self, key: Key) -> Situation | None:
        """The policy as it stands; None where it is gone, or where nothing that is known can be believed."""
        view = self._picture.current.policies.get(key)
        if view is None or not self._picture.current.synced or self._stale() is not None:
            return None
        now, decision = self._session.now(), None
        if view.assessment is not None and view.scale is not None and view.bounds is not None:
            decision = decide(view.assessment, view.scale, view.bounds, now)
        return Situation(
            key=key,
            now=now,
            view=view,
            decision=decision,
            hpa=self._hpa(key),
            settings=self.settings,
            past=self._pasts.get(key, Past()),
        )


_POLICIES = "/apis/effective-load.io/v1alpha1{}/watermarkpolicies"


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: dict[str, Any] | None = None


class _ListMetadata(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    items: list[_Item]
    metadata: _ListMetadata = _ListMetadata()


_PAGE = msgspec.json.Decoder(_Page)
