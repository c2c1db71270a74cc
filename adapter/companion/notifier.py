"""Sends notifications by routes: each has its own queue and task, so that one that hangs delays no other.

Addresses hold secrets, so they are never logged or shown.
"""

import asyncio
import importlib
import logging
import string
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from adapter.companion.changes import Notification
from adapter.runtime.backoff import LogOnce
from adapter.runtime.times import format_time
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Severity
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

FIRST_RETRY_SECONDS = 2.0
"""Between the first two attempts; each further wait is five times as long."""
MAX_AGE_SECONDS = 900.0
"""A notification that is older than this is dropped."""
LONGEST_ANSWER = 64 * 1024
"""Bytes of an answer that are read: services answer a few hundred, and one of 300 MiB took 600 MiB of memory."""
_answers = threading.local()
"""`seconds`: how long an answer is read in this thread; a timeout of `requests` begins again with each byte."""
_NO_LIBRARY = "the extra notify is not installed: name it in EXTRAS when the image is built"
_SECRET_LOGGERS = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""

_log = structlog.get_logger(__name__)


class Message(NamedTuple):
    """A notification in the words of a route. `at` is when it became due (seconds)."""

    severity: Severity
    at: float
    title: str
    body: str


Send = Callable[[str, Message, float], bool]
"""Sends a message to an address within a time limit (seconds); returns whether it was accepted. Blocks."""


def deliver(url: str, message: Message, seconds: float) -> bool:
    """Sends by Apprise. Blocks. Raises ModuleNotFoundError if that is not installed."""
    apprise: Any = importlib.import_module("apprise")
    # Apprise sends by `requests`, which would take the text wherever a redirect leads, and read all of an answer.
    sessions: Any = importlib.import_module("requests.sessions")
    sessions.DEFAULT_REDIRECT_LIMIT = 0
    sessions.Response.content = property(_content)
    for name in _SECRET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # Nothing on disk, no threads of its own, no attempts of its own, and no reading of markup out of what is sent.
    asset = apprise.AppriseAsset(
        app_id="effective-load",
        app_desc="effective-load companion",
        app_url="",
        storage_mode=apprise.PersistentStoreMode.MEMORY,
        default_service_retry=0,
        **dict.fromkeys(("async_mode", "interpret_escapes", "pem_autogen", "pgp_autogen"), False),
    )
    place = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if not place:
        return False
    place.socket_connect_timeout = place.socket_read_timeout = _answers.seconds = seconds
    place.overflow_mode = apprise.OverflowMode.TRUNCATE  # to what the service takes
    kind = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}[message.severity]
    sent = place.notify(
        title=message.title,
        body=message.body,
        notify_type=apprise.NotifyType(kind),
        body_format=apprise.NotifyFormat.TEXT,
    )
    return bool(sent)


def _content(answer: Any) -> bytes:
    """The begin of an answer, once; it stands for all of it in `requests`."""
    if answer._content is False:  # noqa: SLF001
        body, end = b"", time.monotonic() + _answers.seconds
        while len(body) < LONGEST_ANSWER and time.monotonic() < end:
            if not (part := answer.raw.read1(LONGEST_ANSWER - len(body), decode_content=True)):
                break
            body += part
        answer._content = body  # noqa: SLF001
        answer.raw.close()
    content: bytes = answer._content  # noqa: SLF001
    return content


class Notifier:
    """Sends the notifications that it is given. `settings` gives the current ones."""

    def __init__(
        self,
        settings: Callable[[], CompanionSettings],
        metrics: Metrics,
        now: Callable[[], float],
        send: Send = deliver,
        first_wait: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self.metrics, self.now, self.send, self.first_wait = metrics, now, send, first_wait
        self._settings = settings
        self._routes: dict[str, _RouteSender] = {}

    def add(self, key: Key, named: Iterable[str], notifications: Sequence[Notification]) -> None:
        """Queues the notifications of a policy at its routes of these names and those for all, without waiting."""
        settings = self._settings().notifications
        for name in self._routes.keys() - {route.name for route in settings.routes}:
            self._routes.pop(name).task.cancel()
        for route in settings.routes:
            for one in notifications if route.default or route.name in named else ():
                if route.accepts(key.namespace, one.topic, one.severity):
                    if route.name not in self._routes:
                        self._routes[route.name] = _RouteSender(self, route)
                    self._routes[route.name].route = route
                    self._routes[route.name].add(_message(route, settings.cluster, key, one))

    def close(self) -> None:
        """Ends all sending; what waits is lost. The next notification begins it again."""
        while self._routes:
            self._routes.popitem()[1].task.cancel()


class _RouteSender:
    """One route: its queue, which its limit bounds, and its task."""

    def __init__(self, notifier: Notifier, route: NotificationRoute) -> None:
        self.route = route
        self._notifier = notifier
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._queued_at: deque[float] = deque()
        self._logged = LogOnce()
        self.task = asyncio.create_task(self._run(), name=f"route {route.name}")

    def add(self, message: Message) -> None:
        """Queues a message, unless it exceeds the limit of the route."""
        now, limit = self._notifier.now(), self.route.rate_limit
        while self._queued_at and now - self._queued_at[0] >= limit.seconds:
            self._queued_at.popleft()
        if len(self._queued_at) >= limit.count:
            if self._logged.is_new("limited", "limit"):
                _log.warning("notifications_rate_limited", route=self.route.name)
            self._count("limited")
        else:
            self._logged.clear("limit")
            self._queued_at.append(now)
            self._queue.put_nowait(message)

    async def _run(self) -> None:
        while True:
            waiting, accepted = await self._queue.get(), set[str]()
            result, why = await self._sent(waiting, accepted)
            self._count(result)
            # Logged once when the route begins to fail, and once when it works again.
            if result == "failed" and self._logged.is_new("failing"):
                _log.warning("notifications_failing", route=self.route.name, why=why)
            elif result == "sent" and self._logged.clear():
                _log.info("notifications_recovered", route=self.route.name)

    async def _sent(self, waiting: Message, accepted: set[str]) -> tuple[str, str]:
        """Sends to every address of the route, and again to those that did not accept it; how that ended, and why."""
        why = ""
        for attempt in range(self.route.attempts):
            if attempt:
                await asyncio.sleep(self._notifier.first_wait * 5 ** (attempt - 1))
            if self._notifier.now() - waiting.at > MAX_AGE_SECONDS:
                return "stale", ""
            why = await _in_thread(lambda: self._attempt(waiting, accepted))
            if why in {"", _NO_LIBRARY}:
                break
        return "failed" if why else "sent", why

    def _attempt(self, waiting: Message, accepted: set[str]) -> str:
        """Sends to the addresses that have not accepted it yet, and adds those that do; why not all have. Blocks."""
        urls = _addresses(self.route)
        for url in urls:
            if url not in accepted:
                try:
                    if self._notifier.send(url, waiting, self.route.timeout_seconds):
                        accepted.add(url)
                except ModuleNotFoundError:
                    return _NO_LIBRARY
                except Exception as error:  # noqa: BLE001  plug-ins raise anything, and the text may show the address
                    _log.warning("notification_failed", route=self.route.name, error=type(error).__name__)
        if not urls:  # the file may still appear
            return f"{self.route.url_file} cannot be read, or has no address"
        return "" if accepted.issuperset(urls) else "not every address of the route accepted it"

    def _count(self, result: str) -> None:
        self._notifier.metrics.notifications.labels(route=self.route.name, result=result).inc()


def _message(route: NotificationRoute, cluster: str, key: Key, notification: Notification) -> Message:
    """The notification by the route's templates, which are filled in only: nothing in them is executed."""
    fields = {"from": "", "to": "", "why": ""} | dict(notification.fields)
    fields |= {"cluster": cluster, "event": notification.topic.value, "severity": notification.severity.value}
    fields |= {"namespace": key.namespace, "policy": key.name, "target": notification.target}
    fields |= {"at": format_time(notification.at), "text": notification.text}
    title, body = (string.Template(template).safe_substitute(fields) for template in (route.title, route.template))
    title = " ".join(title.split())  # the subject of a mail has to be one line
    return Message(notification.severity, notification.at, title, body)


async def _in_thread(work: Callable[[], str]) -> str:
    """Runs in a daemon thread, so that the end of the process does not wait; it may be that no thread can start."""
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()
    try:
        threading.Thread(target=lambda: future.set_result(work()), name="notification", daemon=True).start()
    except RuntimeError as error:
        return str(error)
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
