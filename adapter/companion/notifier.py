"""Sends notifications by routes: each has its own queue and task, so that one that hangs delays no other.

Addresses hold secrets, so they are never logged or shown.
"""

import asyncio
import concurrent.futures
import importlib
import logging
import math
import random
import string
import threading
from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from adapter.companion.actions import Notification, Notify
from adapter.kube.api import NAMESPACES
from adapter.kube.errors import KubeError
from adapter.kube.leader_election import LeaderElector
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import format_time
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, RateLimit, Severity
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

FIRST_RETRY_SECONDS = 2.0
"""Between the first two attempts; each further wait is five times as long."""
MAX_AGE_SECONDS = 900.0
"""A notification that is older than this is dropped."""
REPEATED_SECONDS = 300.0
"""How long the last message about a policy is not sent again."""
LABEL_CACHE_SECONDS = 300.0
"""How long a namespace is not read again, whether that succeeded or not."""
LABEL_TIMEOUT_SECONDS = 2.0
LONGEST_TITLE = 250
LONGEST_BODY = 4000
_INBOX = 1000
_FAILURES = {
    "failed": "not every address of the route accepted it",
    "noAddress": "{file} cannot be read, or has no address",
    "noLibrary": "the extra notify is not installed: name it in EXTRAS when the image is built",
}
_SECRET_LOGGERS = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""
_DECODER = Decoder(AnyObject)

_log = structlog.get_logger(__name__)


class Message(NamedTuple):
    """A notification in the words of a route. `at` is when it became due (seconds)."""

    key: Key
    severity: Severity
    at: float
    title: str
    body: str


Send = Callable[[str, Message, float], bool]
"""Sends a message to an address within a time limit (seconds); returns whether it was accepted. Blocks."""


def deliver(url: str, message: Message, seconds: float) -> bool:
    """Sends by Apprise. Blocks. Raises ModuleNotFoundError if that is not installed."""
    apprise: Any = importlib.import_module("apprise")
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
    place.socket_connect_timeout = place.socket_read_timeout = seconds
    kind = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}[message.severity]
    sent = place.notify(
        title=message.title,
        body=message.body,
        notify_type=apprise.NotifyType(kind),
        body_format=apprise.NotifyFormat.TEXT,
    )
    return bool(sent)


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
        self.now = session.now
        self.lease = lease
        self.metrics = metrics
        self.send = send
        self.first_wait = first_wait
        self._settings = settings
        self._session = session
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        self._inbox: asyncio.Queue[Notify] = asyncio.Queue(_INBOX)
        self._routes: dict[str, _RouteSender] = {}

    def add(self, action: Notify) -> None:
        """Queues an action without waiting; if too many wait, it is dropped and counted."""
        try:
            self._inbox.put_nowait(action)
        except asyncio.QueueFull:
            self.metrics.notifications.labels(route="", result="overflow").inc()

    async def run(self) -> None:
        """Distributes what is added to the routes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                action = await self._inbox.get()
                settings = self._settings().notifications
                for name in self._routes.keys() - {route.name for route in settings.routes}:
                    self._routes.pop(name).task.cancel()
                for notification in action.notifications:
                    severity = await self._severity(notification, action.key.namespace)
                    for route in settings.routes:
                        is_named = route.default or route.name in action.routes
                        if is_named and route.accepts(action.key.namespace, notification.topic, severity):
                            if route.name not in self._routes:
                                self._routes[route.name] = _RouteSender(self, route, settings.queue, tasks)
                            self._routes[route.name].route = route
                            self._routes[route.name].add(
                                _message(route, settings.cluster, action.key, notification, severity)
                            )

    async def _severity(self, notification: Notification, namespace: str) -> Severity:
        """The severity, which may be higher in production. A label that cannot be read counts as it last was."""
        graver, production = notification.severity_in_production, self._settings().production
        if graver is None:
            return notification.severity
        if any(fnmatchcase(namespace, pattern) for pattern in production.namespaces):
            return graver
        if not production.label:
            return notification.severity
        now, (read_at, labels) = self.now(), self._labels.get(namespace, (-math.inf, {}))
        if now - read_at >= LABEL_CACHE_SECONDS:
            try:
                body = await self._session.get(NAMESPACES.path("", namespace), timeout=LABEL_TIMEOUT_SECONDS)
                labels = _DECODER.decode(body).metadata.labels or {}
            except (KubeError, msgspec.MsgspecError) as error:
                _log.warning("namespace_label_unreadable", namespace=namespace, error=str(error))
            self._labels[namespace] = now, labels
        key, equals, value = production.label.partition("=")
        has_label = labels.get(key) == value if equals else labels.get(key, "false") != "false"
        return graver if has_label else notification.severity


class _RouteSender:
    """One route: its queue, its limits, and its task."""

    def __init__(self, notifier: Notifier, route: NotificationRoute, size: int, tasks: asyncio.TaskGroup) -> None:
        self.route = route
        self._notifier = notifier
        self._queue: asyncio.Queue[Message] = asyncio.Queue(size)
        self._sent_at: dict[tuple[str, object], deque[float]] = {}
        self._last: dict[Key, Message] = {}
        self._held_back = 0
        self._failing = False
        self.task = tasks.create_task(self._run(), name=f"route {route.name}")

    def add(self, message: Message) -> None:
        """Queues a message within the limits; one after the limits says how many they held back."""
        refusal, held_back = self._refusal(message, self._notifier.now()), self._held_back
        if refusal == "limited":
            self._held_back += 1
            if not held_back:
                _log.warning("notifications_rate_limited", route=self.route.name)
        elif not refusal and self._queue.full():
            refusal = "overflow"
        elif not refusal:
            self._held_back = 0
            if held_back:
                _log.info("notifications_within_limits", route=self.route.name, held=held_back)
                text = f"(this route's limits held back {held_back} before this) {message.body}"
                message = message._replace(body=_cut(text, LONGEST_BODY))
            self._queue.put_nowait(message)
        if refusal:
            self._count(refusal)

    def _refusal(self, message: Message, now: float) -> str:
        """Counts the message, and returns an empty text; or why it is refused: `repeated` or `limited`."""
        route = self.route
        self._last = {key: sent for key, sent in self._last.items() if now - sent.at < REPEATED_SECONDS}
        last = self._last.get(message.key)
        if last is not None and (last.title, last.body) == (message.title, message.body):
            return "repeated"
        limits: dict[tuple[str, object], RateLimit]
        limits = {("route", ""): route.rate_limit, ("policy", message.key): route.policy_rate_limit}
        if message.severity is Severity.CRITICAL:
            namespace = "critical in", message.key.namespace
            limits = {("critical", ""): route.critical_rate_limit, namespace: route.critical_namespace_rate_limit}
        for subject, limit in limits.items():
            times = self._sent_at.get(subject, ())
            if len(times) >= limit.count and now - times[-limit.count] < limit.seconds:
                return "limited"
        for subject, limit in limits.items():
            self._sent_at[subject] = deque((*self._sent_at.get(subject, ()), now), maxlen=limit.count)
        self._last[message.key] = message
        return ""

    async def _run(self) -> None:
        while True:
            result = await self._sent(await self._queue.get())
            self._count(result)
            # Logged once when the route begins to fail, and once when it works again.
            if result in _FAILURES and not self._failing:
                why = _FAILURES[result].format(file=self.route.url_file)
                _log.warning("notifications_failing", route=self.route.name, why=why)
            elif self._failing and result == "sent":
                _log.info("notifications_recovered", route=self.route.name)
            self._failing = result in _FAILURES or (self._failing and result != "sent")

    async def _sent(self, waiting: Message) -> str:
        """Sends to every address of the route, and again to those that did not accept it; returns how that ended."""
        notifier, result, accepted = self._notifier, "failed", set[str]()
        for attempt in range(self.route.attempts):
            if attempt:
                wait = exponential(attempt - 1, notifier.first_wait, math.inf, factor=5.0)
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  no secret
            if notifier.now() - waiting.at > MAX_AGE_SECONDS:
                return "stale"
            if not notifier.lease.leads:
                result = "lostLease"
                continue  # the lease may be in doubt for a moment only
            result = await _in_thread(lambda: self._attempt(waiting, accepted))
            if result in {"sent", "noLibrary"}:
                break
        return result

    def _attempt(self, waiting: Message, accepted: set[str]) -> str:
        """Sends to the addresses that have not accepted it yet, and adds those that do. Blocks."""
        urls = _addresses(self.route)
        for url in urls:
            if url not in accepted:
                try:
                    if self._notifier.send(url, waiting, self.route.timeout_seconds):
                        accepted.add(url)
                except ModuleNotFoundError:
                    return "noLibrary"
                except Exception as error:  # noqa: BLE001  plug-ins raise anything, and the text may show the address
                    _log.warning("notification_failed", route=self.route.name, error=type(error).__name__)
        if not urls:
            return "noAddress"  # the file may still appear
        return "sent" if accepted.issuperset(urls) else "failed"

    def _count(self, result: str) -> None:
        self._notifier.metrics.notifications.labels(route=self.route.name, result=result).inc()


def _message(
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
    title, body = (string.Template(template).safe_substitute(fields) for template in (route.title, route.template))
    # The subject of a mail has to be one line.
    return Message(
        key, severity, notification.at, _cut(" ".join(title.split()), LONGEST_TITLE), _cut(body, LONGEST_BODY)
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


async def _in_thread(work: Callable[[], str]) -> str:
    """Runs in a daemon thread, so that the end of the process does not wait; `failed` if no thread can start."""
    future: concurrent.futures.Future[str] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    try:
        threading.Thread(target=lambda: future.set_result(work()), name="notification", daemon=True).start()
    except RuntimeError:
        return "failed"
    return await asyncio.wrap_future(future)


def _addresses(route: NotificationRoute) -> Sequence[str]:
    """The route's URLs, from its file if it has one; none where that cannot be read."""
    if not route.url_file:
        return route.urls
    try:
        lines = Path(route.url_file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
