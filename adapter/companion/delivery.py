"""Messages of a route: their words, their rate limits, and their delivery."""

import asyncio
import importlib
import logging
import string
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from adapter.companion.state import Notification
from adapter.runtime.times import format_time
from adapter.settings.companion import NotificationRoute, RateLimit, Severity
from adapter.snapshot import Key

Send = Callable[[str, str, str, Severity], bool]
"""Sends (address, title, body, severity), and returns whether it was accepted. Blocks."""

_SECRET_LOGGERS = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""

K = TypeVar("K")

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

    _sent: deque[float] = field(default_factory=deque)
    _by_policy: dict[Key, deque[float]] = field(default_factory=dict)
    _critical: deque[float] = field(default_factory=deque)
    _critical_by_namespace: dict[str, deque[float]] = field(default_factory=dict)
    _last: dict[Key, Message] = field(default_factory=dict)

    def admit(self, message: Message, route: NotificationRoute, now: float) -> str:
        """Counts the message, and returns an empty text; or why it is refused: `repeated` or `limited`."""
        _expire(self._sent, route.rate_limit, now)
        _expire(self._critical, route.critical_rate_limit, now)
        _expire_all(self._by_policy, route.policy_rate_limit, now)
        _expire_all(self._critical_by_namespace, route.critical_namespace_rate_limit, now)
        self._last = {key: last for key, last in self._last.items() if now - last.at < REPEATED_SECONDS}
        last = self._last.get(message.key)
        if last is not None and (last.title, last.body) == (message.title, message.body):
            return "repeated"
        counted = self._counted(message, route)
        if any(len(times) >= limit.count for times, limit in counted):
            return "limited"
        for times, _ in counted:
            times.append(now)
        self._last[message.key] = message
        return ""

    def _counted(self, message: Message, route: NotificationRoute) -> tuple[tuple[deque[float], RateLimit], ...]:
        """The times that the message counts among, each with its limit."""
        if message.severity is Severity.CRITICAL:
            times = self._critical_by_namespace.setdefault(message.key.namespace, deque())
            return (self._critical, route.critical_rate_limit), (times, route.critical_namespace_rate_limit)
        times = self._by_policy.setdefault(message.key, deque())
        return (self._sent, route.rate_limit), (times, route.policy_rate_limit)


def _expire_all(times: dict[K, deque[float]], limit: RateLimit, now: float) -> None:
    for key, of_one in list(times.items()):
        _expire(of_one, limit, now)
        if not of_one:
            del times[key]


def _expire(times: deque[float], limit: RateLimit, now: float) -> None:
    while times and now - times[0] >= limit.seconds:
        times.popleft()


class AddressError(Exception):
    """A route has no address at this moment."""


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
    place = apprise.Apprise.instantiate(url, asset=_asset(apprise), suppress_exceptions=True)
    if not place:
        return False
    kind = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}[severity]
    return bool(
        place.notify(
            title=title, body=body, notify_type=apprise.NotifyType(kind), body_format=apprise.NotifyFormat.TEXT
        )
    )


def _asset(apprise: Any) -> Any:
    # Nothing on disk, no threads of its own, no attempts of its own, and no reading of markup out of what is sent.
    return apprise.AppriseAsset(
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
