"""Tells people: a queue and a task for each route, so that one that hangs holds up no other, nor anything else.

Nothing that is configured here is ever logged or shown, for addresses hold secrets.
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from adapter.companion.notifications.delivery import AddressError, Delivery, NoLibraryError, Send, deliver
from adapter.companion.notifications.messages import Allowance, Message, message
from adapter.companion.notifications.production import Namespaces
from adapter.companion.state import Notice
from adapter.companion.writes.actions import Notify
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.settings import CompanionSettings
from adapter.settings.notifications import NotificationRoute, Severity
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

FIRST_WAIT_SECONDS = 2.0
"""Between the first two attempts; each further wait is five times as long."""
STALE_SECONDS = 900.0
"""What could not be told for so long is not told any more."""
_INBOX = 1000
_FAILURES = {
    "failed": "nobody took it",
    "noAddress": "{file} cannot be read, or holds no address",
    "noLibrary": "the extra notify is not installed: name it in EXTRAS when the image is built",
}

_log = structlog.get_logger(__name__)


class Notifier:
    """Hands on what it takes while this process leads. `settings` gives those of the moment; `run` does the work."""

    def __init__(
        self,
        session: Session,
        lease: LeaderElector,
        settings: Callable[[], CompanionSettings],
        metrics: Metrics,
        send: Send = deliver,
        first_wait: float = FIRST_WAIT_SECONDS,
    ) -> None:
        self._now = session.now
        self._lease = lease
        self._settings = settings
        self._metrics = metrics
        self._send = send
        self._first_wait = first_wait
        self._namespaces = Namespaces(session)
        self._inbox: asyncio.Queue[Notify] = asyncio.Queue(_INBOX)
        self._posts: dict[str, _Post] = {}

    def take(self, action: Notify) -> None:
        """Take it at once; where too much is waiting it is dropped, and counted."""
        try:
            self._inbox.put_nowait(action)
        except asyncio.QueueFull:
            self._metrics.notifications.labels(route="", result="overflow").inc()

    async def run(self) -> None:
        """Tell people, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                action = await self._inbox.get()
                for notice in action.notices:
                    await self._spread(action, notice, tasks)

    async def _spread(self, action: Notify, notice: Notice, tasks: asyncio.TaskGroup) -> None:
        settings = self._settings()
        severity = await self._severity(action.key.namespace, notice)
        for route in settings.notifications.routes:
            if is_for(route, action, notice, severity):
                post = self._post(route, settings.notifications.queue, tasks)
                post.add(settings.notifications.cluster, action.key, notice, severity)
        self._close({route.name for route in settings.notifications.routes})

    async def _severity(self, namespace: str, notice: Notice) -> Severity:
        graver = notice.severity_in_production
        if graver is None or not await self._namespaces.is_production(namespace, self._settings().production):
            return notice.severity
        return graver

    def _post(self, route: NotificationRoute, room: int, tasks: asyncio.TaskGroup) -> "_Post":
        post = self._posts.get(route.name)
        if post is None:
            post = self._posts[route.name] = _Post(
                route, room, self._now, self._lease, self._metrics, Delivery(self._send), self._first_wait
            )
            post.task = tasks.create_task(post.run(), name=f"route {route.name}")
        post.route = route
        return post

    def _close(self, wanted: set[str]) -> None:
        """End the routes that the settings know no more."""
        for name in self._posts.keys() - wanted:
            post = self._posts.pop(name)
            if post.task is not None:
                post.task.cancel()


def is_for(route: NotificationRoute, action: Notify, notice: Notice, severity: Severity) -> bool:
    """Whether a route is to be told of it."""
    return (
        (route.default or route.name in action.routes)
        and route.serves(action.key.namespace)
        and (not route.events or notice.topic in route.events)
        and (not route.severities or severity in route.severities)
    )


class _Post:
    """One route: what waits for it, what it may still be sent, and its task."""

    def __init__(
        self,
        route: NotificationRoute,
        room: int,
        now: Callable[[], float],
        lease: LeaderElector,
        metrics: Metrics,
        delivery: Delivery,
        first_wait: float,
    ) -> None:
        self.route = route
        self.task: asyncio.Task[None] | None = None
        self._now = now
        self._lease = lease
        self._metrics = metrics
        self._delivery = delivery
        self._first_wait = first_wait
        self._allowance = Allowance()
        self._queue: asyncio.Queue[Message] = asyncio.Queue(room)
        self._failing = False
        self._held_back = 0

    def add(self, cluster: str, key: Key, notice: Notice, severity: Severity) -> None:
        """Have it sent, if it is within the limits and there is room for it; the next one says how many were not."""
        told = message(self.route, cluster, key, notice, severity)
        refusal = self._allowance.take(told, self.route, self._now())
        if refusal:
            self._count(refusal)
            self._hold_back(refusal)
            return
        if self._held_back:
            text = f"after {self._held_back} that this route's limits held back: {notice.text}"
            told = message(self.route, cluster, key, replace(notice, text=text), severity)
        try:
            self._queue.put_nowait(told)
        except asyncio.QueueFull:
            self._count("overflow")
        else:
            self._pass()

    def _hold_back(self, refusal: str) -> None:
        if refusal != "limited":
            return
        if not self._held_back:
            _log.warning("notifications are held back by the route's limits", route=self.route.name)
        self._held_back += 1

    def _pass(self) -> None:
        if self._held_back:
            _log.info("notifications are within the route's limits again", route=self.route.name, held=self._held_back)
        self._held_back = 0

    async def run(self) -> None:
        while True:
            waiting = await self._queue.get()
            try:
                result = await self._told(waiting)
            except Exception as error:  # noqa: BLE001  whatever it is, everything else goes on
                _log.warning("a notification failed", route=self.route.name, error=type(error).__name__)
                result = "failed"
            self._count(result)
            self._log(result)

    async def _told(self, waiting: Message) -> str:
        """Tell every address of the route, again those that did not take it; how that ended."""
        pending: tuple[str, ...] | None = None
        result = "failed"
        for attempt in range(self.route.attempts):
            if attempt:
                wait = exponential(attempt - 1, self._first_wait, math.inf, factor=5.0)
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  no secret
            if self._now() - waiting.at > STALE_SECONDS:
                return "stale"
            if not self._lease.leads:
                result = "lostLease"
                continue  # it may be in doubt for a moment only
            result = "failed"
            try:
                urls = await asyncio.to_thread(_addresses, self.route) if pending is None else pending
                pending = await self._delivery.tried(urls, waiting, self.route.timeout_seconds)
            except NoLibraryError:
                return "noLibrary"
            except AddressError:
                result = "noAddress"
                continue  # the file may come yet
            if not pending:
                return "sent"
        return result

    def _count(self, result: str) -> None:
        self._metrics.notifications.labels(route=self.route.name, result=result).inc()

    def _log(self, result: str) -> None:
        """Say it once when a route begins to fail, and once when it works again."""
        failing = result in _FAILURES
        if failing and not self._failing:
            why = _FAILURES[result].format(file=self.route.url_file)
            _log.warning("notifications are not delivered", route=self.route.name, why=why)
        elif self._failing and result == "sent":
            _log.info("notifications are delivered again", route=self.route.name)
        if failing or result == "sent":
            self._failing = failing


def _addresses(route: NotificationRoute) -> tuple[str, ...]:
    """The route's URLs. Reads its file, where it has one. Raises AddressError where there are none."""
    if not route.url_file:
        return route.urls
    try:
        lines = Path(route.url_file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise AddressError(route.url_file) from error
    urls = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not urls:
        raise AddressError(route.url_file)
    return urls
