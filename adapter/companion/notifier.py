"""Notifies by routes: a queue and a task for each, so that a route that hangs delays nothing else; words and delivery.

Addresses hold secrets, so they are never logged or shown.
"""

import asyncio
import importlib
import logging
import math
import random
import string
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from adapter.companion.actions import Notify
from adapter.companion.state import Notification
from adapter.kube.api import NAMESPACES
from adapter.kube.errors import KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import format_time
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

Send = Callable[[str, str, str, Severity], bool]
"""Sends (address, title, body, severity), and returns whether it was accepted. Blocks."""

_SECRET_LOGGERS = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""

REPEATED_SECONDS = 300.0
"""How long the last message about a policy is not sent again."""
LONGEST_TITLE = 250
LONGEST_BODY = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A notification in the words of a route. `at` is when it became due (seconds)."""

    key: Key
    severity: Severity
    at: float
    title: str
    body: str


def message(
    route: NotificationRoute, cluster: str, key: Key, notification: Notification, severity: Severity
) -> Message:
    """The notification by the route's templates, which are filled in only: nothing in them is executed."""
    fields = {"from": "", "to": "", "why": ""} | dict(notification.fields)
    fields |= {
        "cluster": cluster,
        "event": notification.topic.value,
        "severity": severity.value,
        "namespace": key.namespace,
        "policy": key.name,
        "target": notification.target,
        "at": format_time(notification.at),
        "text": notification.text,
    }
    return Message(
        key=key,
        severity=severity,
        at=notification.at,
        # The subject of a mail has to be one line.
        title=" ".join(_filled(route.title, fields, LONGEST_TITLE).split()),
        body=_filled(route.template, fields, LONGEST_BODY),
    )


def _filled(template: str, fields: Mapping[str, str], longest: int) -> str:
    text = string.Template(template).safe_substitute(fields)
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(slots=True)
class RateLimiter:
    """What one route was sent of late, to keep its limits and to drop repeated messages."""

    _sent: dict[tuple[str, object], deque[float]] = field(default_factory=dict)
    """When messages were sent, by the limit that they count for and what it is for."""
    _last: dict[Key, Message] = field(default_factory=dict)

    def admit(self, message: Message, route: NotificationRoute, now: float) -> str:
        """Counts the message, and returns an empty text; or why it is refused: `repeated` or `limited`."""
        limits = {
            "route": route.rate_limit,
            "policy": route.policy_rate_limit,
            "critical": route.critical_rate_limit,
            "critical in a namespace": route.critical_namespace_rate_limit,
        }
        for (limit, subject), times in list(self._sent.items()):
            while times and now - times[0] >= limits[limit].seconds:
                times.popleft()
            if not times:
                del self._sent[limit, subject]
        self._last = {key: last for key, last in self._last.items() if now - last.at < REPEATED_SECONDS}
        last = self._last.get(message.key)
        if last is not None and (last.title, last.body) == (message.title, message.body):
            return "repeated"
        subjects: dict[str, object] = {"route": "", "policy": message.key}
        if message.severity is Severity.CRITICAL:
            subjects = {"critical": "", "critical in a namespace": message.key.namespace}
        if any(len(self._sent.get(subject, ())) >= limits[subject[0]].count for subject in subjects.items()):
            return "limited"
        for subject in subjects.items():
            self._sent.setdefault(subject, deque()).append(now)
        self._last[message.key] = message
        return ""


class NoLibraryError(Exception):
    """The library is not installed."""


class _Attempt(NamedTuple):
    """The last attempt at an address: the message, and whether it was accepted, once that is known."""

    message: Message
    answer: asyncio.Future[bool]

    @property
    def failed(self) -> bool:
        return self.answer.done() and (self.answer.exception() is not None or not self.answer.result())


class Delivery:
    """The addresses of one route, each with at most one thread: a new attempt waits until the last one has ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._attempts: dict[str, _Attempt] = {}

    async def send(self, urls: Sequence[str], message: Message, seconds: float) -> tuple[str, ...]:
        """Returns the addresses that did not accept the message within this time. Raises NoLibraryError."""
        accepted = await asyncio.gather(*(self._one(url, message, seconds) for url in urls))
        return tuple(url for url, is_accepted in zip(urls, accepted, strict=True) if not is_accepted)

    async def _one(self, url: str, message: Message, seconds: float) -> bool:
        # An earlier attempt with this message may still run, or have ended well late.
        last = self._attempts.get(url)
        if last is None or last.failed or (last.answer.done() and last.message is not message):
            last = self._attempts[url] = _Attempt(message, self._in_thread(url, message))
        answer = last.answer if last.message is message else None
        if answer is None:
            return False
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(answer)
        except TimeoutError:
            return False

    def _in_thread(self, url: str, message: Message) -> asyncio.Future[bool]:
        """Begins an attempt in a daemon thread, which the process does not wait for at its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def done(answer: bool | BaseException) -> None:
            if isinstance(answer, NoLibraryError):
                future.set_exception(answer)
                future.exception()  # marks it as retrieved, in case nobody waits any more
            elif not future.done():
                future.set_result(answer is True)

        def work() -> None:
            answer: bool | BaseException
            try:
                answer = self._send(url, message.title, message.body, message.severity)
            except Exception as error:  # noqa: BLE001  plug-ins raise what they like, and it may show the address
                answer = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, answer)

        try:
            threading.Thread(target=work, name="notification", daemon=True).start()
        except RuntimeError:  # no more threads can be started
            done(answer=False)
        return future


def deliver(url: str, title: str, body: str, severity: Severity) -> bool:
    """Sends by Apprise, and returns whether it was accepted. Blocks. Raises NoLibraryError if that is not installed."""
    try:
        apprise: Any = importlib.import_module("apprise")
    except ModuleNotFoundError as error:
        raise NoLibraryError from error
    # Apprise sends by `requests`, which would take the text and its headers wherever a redirect leads.
    importlib.import_module("requests.sessions").DEFAULT_REDIRECT_LIMIT = 0  # type: ignore[attr-defined]
    for name in _SECRET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # Nothing on disk, no threads of its own, no attempts of its own, and no reading of markup out of what is sent.
    asset = apprise.AppriseAsset(
        app_id="effective-load",
        app_desc="effective-load companion",
        app_url="",
        async_mode=False,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
        interpret_escapes=False,
        default_service_retry=0,
        pem_autogen=False,
        pgp_autogen=False,
    )
    place = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if not place:
        return False
    kind = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}[severity]
    return bool(
        place.notify(
            title=title, body=body, notify_type=apprise.NotifyType(kind), body_format=apprise.NotifyFormat.TEXT
        )
    )


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
                    settings, severity = self._settings(), notification.severity
                    graver, namespace = notification.severity_in_production, action.key.namespace
                    if graver and await self._production.is_production(namespace, settings.production):
                        severity = graver
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

    def _sender(self, route: NotificationRoute, room: int, tasks: asyncio.TaskGroup) -> "_RouteSender":
        sender = self._routes.get(route.name)
        if sender is None:
            sender = self._routes[route.name] = _RouteSender(
                route=route,
                queue=asyncio.Queue(room),
                now=self._now,
                lease=self._lease,
                metrics=self._metrics,
                delivery=Delivery(self._send),
                first_wait=self._first_wait,
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


@dataclass(slots=True, eq=False, kw_only=True)
class _RouteSender:
    """One route: its queue, its rate limits, and its task."""

    route: NotificationRoute
    queue: asyncio.Queue[Message]
    now: Callable[[], float]
    lease: LeaderElector
    metrics: Metrics
    delivery: Delivery
    first_wait: float
    task: asyncio.Task[None] | None = None
    limiter: RateLimiter = field(default_factory=RateLimiter)
    failing: bool = False
    held_back: int = 0

    def add(self, cluster: str, key: Key, notification: Notification, severity: Severity) -> None:
        """Queues a notification within the limits; one after the limits says how many they held back."""
        queued = message(self.route, cluster, key, notification, severity)
        refusal = self.limiter.admit(queued, self.route, self.now())
        if refusal:
            self._count(refusal)
            if refusal == "limited":
                if not self.held_back:
                    _log.warning("notifications_rate_limited", route=self.route.name)
                self.held_back += 1
            return
        if self.held_back:
            text = f"(this route's limits held back {self.held_back} before this) {notification.text}"
            queued = message(self.route, cluster, key, replace(notification, text=text), severity)
        try:
            self.queue.put_nowait(queued)
        except asyncio.QueueFull:
            self._count("overflow")
        else:
            if self.held_back:
                _log.info("notifications_within_limits", route=self.route.name, held=self.held_back)
            self.held_back = 0

    async def run(self) -> None:
        while True:
            waiting = await self.queue.get()
            try:
                result = await self._sent(waiting)
            except Exception as error:  # noqa: BLE001  whatever it is, everything else goes on
                _log.warning("notification_failed", route=self.route.name, error=type(error).__name__)
                result = "failed"
            self._count(result)
            # Said once when the route begins to fail, and once when it works again.
            if result in _FAILURES and not self.failing:
                why = _FAILURES[result].format(file=self.route.url_file)
                _log.warning("notifications_failing", route=self.route.name, why=why)
            elif self.failing and result == "sent":
                _log.info("notifications_recovered", route=self.route.name)
            if result in _FAILURES or result == "sent":
                self.failing = result != "sent"

    async def _sent(self, waiting: Message) -> str:
        """Sends to every address of the route, and again to those that did not accept it; returns how that ended."""
        result = "failed"
        for attempt in range(self.route.attempts):
            if attempt:
                wait = exponential(attempt - 1, self.first_wait, math.inf, factor=5.0)
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  no secret
            if self.now() - waiting.at > MAX_AGE_SECONDS:
                return "stale"
            if not self.lease.leads:
                result = "lostLease"
                continue  # the lease may be in doubt for a moment only
            result = "failed"
            urls = await asyncio.to_thread(_addresses, self.route)
            if not urls:
                result = "noAddress"
                continue  # the file may still appear
            try:
                if not await self.delivery.send(urls, waiting, self.route.timeout_seconds):
                    return "sent"
            except NoLibraryError:
                return "noLibrary"
        return result

    def _count(self, result: str) -> None:
        self.metrics.notifications.labels(route=self.route.name, result=result).inc()


def _addresses(route: NotificationRoute) -> tuple[str, ...]:
    """The route's URLs, from its file if it has one; none where that cannot be read."""
    if not route.url_file:
        return route.urls
    try:
        lines = Path(route.url_file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


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
        if not production.label:
            return False
        now = self._session.now()
        read_at, labels = self._labels.get(namespace, (-math.inf, {}))
        if now - read_at >= LABEL_CACHE_SECONDS:
            try:
                body = await self._session.get(NAMESPACES.path("", namespace), timeout=LABEL_TIMEOUT_SECONDS)
                labels = _DECODER.decode(body).metadata.labels or {}
            except (KubeError, msgspec.MsgspecError) as error:
                if not self._complained:
                    self._complained = True
                    _log.warning("namespace_label_unreadable", namespace=namespace, error=str(error))
            self._labels[namespace] = (now, labels)
        # `key=value`, or `key` with any value but `false`
        key, equals, value = production.label.partition("=")
        return labels.get(key) == value if equals else labels.get(key, "false") != "false"
