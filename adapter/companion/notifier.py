"""Notifies by routes: a queue and a task for each, so that a route that hangs delays nothing else.

Addresses hold secrets, so they are never logged or shown.
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import structlog

from adapter.companion.actions import Notify
from adapter.companion.delivery import (
    AddressError,
    Delivery,
    Message,
    NoLibraryError,
    RateLimiter,
    Send,
    deliver,
    message,
)
from adapter.companion.state import Notification
from adapter.kube.api import NAMESPACES
from adapter.kube.errors import KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.runtime.decoding import Decoder
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Production, Severity
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

FIRST_RETRY_SECONDS = 2.0
"""Between the first two attempts; each further wait is five times as long."""
MAX_AGE_SECONDS = 900.0
"""A notification that is older than this is dropped."""
_INBOX = 1000
_FAILURES = {
    "failed": "not every address of the route accepted it",
    "noAddress": "{file} cannot be read, or has no address",
    "noLibrary": "the extra notify is not installed: name it in EXTRAS when the image is built",
}

_log = structlog.get_logger(__name__)

LABEL_CACHE_SECONDS = 300.0
"""How long a namespace is not read again, whether that succeeded or not."""
LABEL_TIMEOUT_SECONDS = 2.0


class Notifier:
    """Sends the notifications that it is given while this process leads. `settings` gives the current ones."""

    def __init__(
        self,
        session: Session,
        lease: LeaderElector,
        settings: Callable[[], CompanionSettings],
        metrics: Metrics,
        send: Send = deliver,
        first_wait: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self._now = session.now
        self._lease = lease
        self._settings = settings
        self._metrics = metrics
        self._send = send
        self._first_wait = first_wait
        self._production = ProductionNamespaces(session)
        self._inbox: asyncio.Queue[Notify] = asyncio.Queue(_INBOX)
        self._routes: dict[str, _RouteSender] = {}

    def add(self, action: Notify) -> None:
        """Queues an action without waiting; if too many wait, it is dropped and counted."""
        try:
            self._inbox.put_nowait(action)
        except asyncio.QueueFull:
            self._metrics.notifications.labels(route="", result="overflow").inc()

    async def run(self) -> None:
        """Distributes what is added to the routes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                action = await self._inbox.get()
                for notification in action.notifications:
                    settings = self._settings()
                    severity = await self._severity(action.key.namespace, notification)
                    for route in settings.notifications.routes:
                        if route_accepts(route, action, notification, severity):
                            sender = self._sender(route, settings.notifications.queue, tasks)
                            sender.add(settings.notifications.cluster, action.key, notification, severity)
                    # Ends the routes that the settings no longer define.
                    wanted = {route.name for route in settings.notifications.routes}
                    for name in self._routes.keys() - wanted:
                        retired = self._routes.pop(name)
                        if retired.task is not None:
                            retired.task.cancel()

    async def _severity(self, namespace: str, notification: Notification) -> Severity:
        graver = notification.severity_in_production
        if graver is None or not await self._production.is_production(namespace, self._settings().production):
            return notification.severity
        return graver

    def _sender(self, route: NotificationRoute, room: int, tasks: asyncio.TaskGroup) -> "_RouteSender":
        sender = self._routes.get(route.name)
        if sender is None:
            sender = self._routes[route.name] = _RouteSender(
                route, room, self._now, self._lease, self._metrics, Delivery(self._send), self._first_wait
            )
            sender.task = tasks.create_task(sender.run(), name=f"route {route.name}")
        sender.route = route
        return sender


def route_accepts(route: NotificationRoute, action: Notify, notification: Notification, severity: Severity) -> bool:
    """Whether a route gets a notification."""
    return (
        (route.default or route.name in action.routes)
        and route.serves(action.key.namespace)
        and (not route.events or notification.topic in route.events)
        and (not route.severities or severity in route.severities)
    )


class _RouteSender:
    """One route: its queue, its rate limits, and its task."""

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
        self._limiter = RateLimiter()
        self._queue: asyncio.Queue[Message] = asyncio.Queue(room)
        self._failing = False
        self._held_back = 0

    def add(self, cluster: str, key: Key, notification: Notification, severity: Severity) -> None:
        """Queues a notification within the limits; one after the limits says how many they held back."""
        queued = message(self.route, cluster, key, notification, severity)
        refusal = self._limiter.admit(queued, self.route, self._now())
        if refusal:
            self._count(refusal)
            self._hold_back(refusal)
            return
        if self._held_back:
            text = f"(this route's limits held back {self._held_back} before this) {notification.text}"
            queued = message(self.route, cluster, key, replace(notification, text=text), severity)
        try:
            self._queue.put_nowait(queued)
        except asyncio.QueueFull:
            self._count("overflow")
        else:
            if self._held_back:
                _log.info(
                    "notifications are within the route's limits again", route=self.route.name, held=self._held_back
                )
            self._held_back = 0

    def _hold_back(self, refusal: str) -> None:
        if refusal != "limited":
            return
        if not self._held_back:
            _log.warning("notifications are held back by the route's limits", route=self.route.name)
        self._held_back += 1

    async def run(self) -> None:
        while True:
            waiting = await self._queue.get()
            try:
                result = await self._sent(waiting)
            except Exception as error:  # noqa: BLE001  whatever it is, everything else goes on
                _log.warning("a notification failed", route=self.route.name, error=type(error).__name__)
                result = "failed"
            self._count(result)
            self._log(result)

    async def _sent(self, waiting: Message) -> str:
        """Sends to every address of the route, and again to those that did not accept it; returns how that ended."""
        pending: tuple[str, ...] | None = None
        result = "failed"
        for attempt in range(self.route.attempts):
            if attempt:
                wait = exponential(attempt - 1, self._first_wait, math.inf, factor=5.0)
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  no secret
            if self._now() - waiting.at > MAX_AGE_SECONDS:
                return "stale"
            if not self._lease.leads:
                result = "lostLease"
                continue  # the lease may be in doubt for a moment only
            result = "failed"
            try:
                urls = await asyncio.to_thread(_addresses, self.route) if pending is None else pending
                pending = await self._delivery.send(urls, waiting, self.route.timeout_seconds)
            except NoLibraryError:
                return "noLibrary"
            except AddressError:
                result = "noAddress"
                continue  # the file may still appear
            if not pending:
                return "sent"
        return result

    def _count(self, result: str) -> None:
        self._metrics.notifications.labels(route=self.route.name, result=result).inc()

    def _log(self, result: str) -> None:
        """Logs once when a route begins to fail, and once when it works again."""
        failing = result in _FAILURES
        if failing and not self._failing:
            why = _FAILURES[result].format(file=self.route.url_file)
            _log.warning("notifications are not delivered", route=self.route.name, why=why)
        elif self._failing and result == "sent":
            _log.info("notifications are delivered again", route=self.route.name)
        if failing or result == "sent":
            self._failing = failing


def _addresses(route: NotificationRoute) -> tuple[str, ...]:
    """The route's URLs, from its file if it has one. Raises AddressError if there are none."""
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


_DECODER = Decoder(AnyObject)


class ProductionNamespaces:
    """Tells production namespaces, with a cache of their labels."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        self._complained = False

    async def is_production(self, namespace: str, production: Production) -> bool:
        """Whether a namespace is production. A label that cannot be read counts as it last was, else as absent."""
        if any(fnmatchcase(namespace, pattern) for pattern in production.namespaces):
            return True
        return bool(production.label) and is_labelled(await self._labels_of(namespace), production.label)

    async def _labels_of(self, namespace: str) -> dict[str, str]:
        now = self._session.now()
        cached = self._labels.get(namespace)
        if cached is not None and now - cached[0] < LABEL_CACHE_SECONDS:
            return cached[1]
        answer = await self._read(namespace)
        labels = answer if answer is not None else cached[1] if cached is not None else {}
        self._labels[namespace] = (now, labels)
        return labels

    async def _read(self, namespace: str) -> dict[str, str] | None:
        """The labels of a namespace; None if they cannot be read."""
        try:
            body = await self._session.get(NAMESPACES.path("", namespace), timeout=LABEL_TIMEOUT_SECONDS)
            return _DECODER.decode(body).metadata.labels or {}
        except (KubeError, msgspec.MsgspecError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("a namespace's label cannot be read", namespace=namespace, error=str(error))
            return None


def is_labelled(labels: dict[str, str], wanted: str) -> bool:
    """Whether labels have `key=value`, or `key` with any value but `false`."""
    key, equals, value = wanted.partition("=")
    return labels.get(key) == value if equals else labels.get(key, "false") != "false"
