"""Sends notifications by routes: each has its own queue and thread, so that one that hangs delays no other.

Addresses hold secrets, so they are never logged or shown.
"""

import asyncio
import importlib
import logging
import string
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog
from yarl import URL

from adapter.companion.changes import Change
from adapter.runtime.http import MIB, Access, Client, Reply
from adapter.runtime.source_errors import SourceError
from adapter.runtime.times import format_time
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Severity
from adapter.snapshot import Key, PolicyView
from adapter.telemetry.metrics import Metrics

FIRST_RETRY_SECONDS = 2.0
"""Between the first two attempts; each further wait is five times as long."""
MAX_AGE_SECONDS = 900.0
"""A notification that is older than this is dropped."""
LONGEST_ANSWER = MIB
"""Bytes of an answer: services answer a few hundred, and Apprise would read all of one without an end."""

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
    sessions: Any = importlib.import_module("requests.sessions")
    sessions.Session.send = _exchange
    for name in ("apprise", "urllib3", "oauthlib", "requests_oauthlib"):  # whose records may show parts of addresses
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # Nothing on disk, no threads of its own, no attempts of its own, and no reading of markup out of what is sent.
    asset = apprise.AppriseAsset(
        app_id="effective-load",
        storage_mode=apprise.PersistentStoreMode.MEMORY,
        default_service_retry=0,
        **dict.fromkeys(("async_mode", "interpret_escapes", "pem_autogen", "pgp_autogen"), False),
    )
    place = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if not place:
        return False
    place.socket_connect_timeout = place.socket_read_timeout = seconds
    place.overflow_mode = apprise.OverflowMode.TRUNCATE  # to what the service takes
    kind = apprise.NotifyType({Severity.CRITICAL: "failure"}.get(message.severity, message.severity.value))
    text = {"title": message.title, "body": message.body, "body_format": apprise.NotifyFormat.TEXT}
    return bool(place.notify(**text, notify_type=kind))


def _exchange(
    _session: Any, request: Any, *, timeout: Any, verify: bool | str = True, proxies: Any = None, **_options: Any
) -> Any:
    """Stands for `Session.send` of `requests`, by which Apprise sends: one deadline for all of it, and no redirects.

    A timeout of `requests` begins again with each byte.
    """
    requests: Any = importlib.import_module("requests")
    ca_file = verify if isinstance(verify, str) else requests.certs.where()
    url = URL(request.url, encoded=True)

    async def exchange() -> Reply:
        access = Access(ca_file=ca_file, insecure_skip_verify=not verify)
        client = Client(access, timeout=max(timeout), max_bytes=LONGEST_ANSWER)
        headers = {**request.headers, "Accept-Encoding": "gzip"}
        proxy = (proxies or {}).get(url.scheme)
        try:
            return await client.send(request.method, url, headers=headers, data=request.body, proxy=proxy)
        finally:
            await client.close()

    try:
        reply = asyncio.run(exchange())
    except SourceError:
        raise requests.ConnectionError from None  # its text may show the address
    answer = requests.Response()
    answer.status_code, answer.url, answer.request = reply.status, request.url, request
    answer.headers.update(reply.headers)
    answer._content = reply.body  # noqa: SLF001
    return answer


@dataclass(frozen=True)
class Notifier:
    """Sends the notifications that it is given, while `leads()`. `settings` gives the current ones."""

    settings: Callable[[], CompanionSettings]
    metrics: Metrics
    now: Callable[[], float]
    leads: Callable[[], bool]
    send: Send = deliver
    first_wait: float = FIRST_RETRY_SECONDS
    routes: dict[str, "_Route"] = field(default_factory=dict)

    def add(self, key: Key, view: PolicyView, changes: Iterable[Change]) -> None:
        """Queues what people are notified of at the routes that the policy names and those for all; does not wait."""
        settings = self.settings().notifications
        for name in self.routes.keys() - {route.name for route in settings.routes}:
            self.routes.pop(name).add(None)
        for route in settings.routes:
            for one in changes if route.default or route.name in view.policy.notify else ():
                if one.topic is not None and route.accepts(key.namespace, one.topic, one.severity):
                    kept = self.routes.get(route.name) or _Route(self, route)
                    self.routes[route.name], kept.route = kept, route
                    kept.add(_message(route, settings.cluster, key, view, one))


class _Route(threading.Thread):
    """One route: its queue, which its limit bounds, and its thread, for which the end of the process does not wait."""

    def __init__(self, notifier: Notifier, route: NotificationRoute) -> None:
        super().__init__(name=f"route {route.name}", daemon=True)
        self.route = route
        self._notifier = notifier
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        self._queued_at: deque[float] = deque()
        self.start()

    def add(self, message: Message | None) -> None:
        """Queues a message, unless it exceeds the limit of the route; None ends the thread."""
        now, limit = self._notifier.now(), self.route.rate_limit
        while self._queued_at and not 0.0 <= now - self._queued_at[0] < limit.seconds:  # clocks may be put back
            self._queued_at.popleft()
        if message is not None and len(self._queued_at) >= limit.count:
            self._count("limited")
        else:
            self._queued_at.append(now)
            self._queue.put(message)

    def run(self) -> None:
        """Sends what is queued, one message after the other."""
        is_failing = False
        while (message := self._queue.get()) is not None:
            result, why = self._sent(message)
            # Logged once when the route begins to fail, and once when it works again.
            if result == "failed" and not is_failing:
                _log.warning("notifications_failing", route=self.route.name, why=why)
            elif result == "sent" and is_failing:
                _log.info("notifications_recovered", route=self.route.name)
            is_failing = result == "failed" or (is_failing and result == "stale")
            self._count(result)

    def _sent(self, message: Message) -> tuple[str, str]:
        """Sends to every address of the route, and again to those that did not accept it; how that ended, and why."""
        accepted, why = set[str](), ""
        for attempt in range(self.route.attempts):
            if attempt:
                time.sleep(self._notifier.first_wait * 5 ** (attempt - 1))
            if not self._notifier.leads() or self._notifier.now() - message.at > MAX_AGE_SECONDS:
                return "stale", ""
            urls = _addresses(self.route)
            why = "" if urls else f"{self.route.url_file} cannot be read, or has no address"
            for url in (url for url in urls if url not in accepted):
                try:
                    is_accepted = self._notifier.send(url, message, self.route.timeout_seconds)
                except ModuleNotFoundError:
                    return "failed", "the extra notify is not installed: name it in EXTRAS when the image is built"
                except Exception as error:  # noqa: BLE001  plug-ins raise anything, and the text may show the address
                    _log.warning("notification_failed", route=self.route.name, error=type(error).__name__)
                    is_accepted = False
                accepted |= {url} if is_accepted else set()
                why = why if is_accepted else "not every address of the route accepted it"
            if not why:
                return "sent", ""
        return "failed", why

    def _count(self, result: str) -> None:
        self._notifier.metrics.notifications.labels(route=self.route.name, result=result).inc()


def _message(route: NotificationRoute, cluster: str, key: Key, view: PolicyView, change: Change) -> Message:
    """The notification by the route's templates, which are filled in only: nothing in them is executed."""
    target = f"{view.target.kind} {view.target.name}" if view.target is not None else ""
    fields = {"from": "", "to": "", "why": "", "cluster": cluster, "severity": change.severity.value, **change.fields}
    fields |= {"event": str(change.topic), "namespace": key.namespace, "policy": key.name, "target": target}
    fields |= {"at": format_time(change.at), "text": change.text}
    title, body = (string.Template(template).safe_substitute(fields) for template in (route.title, route.template))
    title = " ".join(title.split())  # the subject of a mail has to be one line
    return Message(change.severity, change.at, title, body)


def _addresses(route: NotificationRoute) -> tuple[str, ...]:
    """The route's URLs, from its file if it has one; none where that cannot be read, or not yet."""
    if not route.url_file:
        return route.urls
    try:
        lines = Path(route.url_file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
