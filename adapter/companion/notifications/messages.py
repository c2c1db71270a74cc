"""The messages of a route, and its rate limits."""

import string
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.companion.state import Notification
from adapter.runtime.times import format_time
from adapter.settings.notifications import NotificationRoute, RateLimit, Severity
from adapter.snapshot import Key

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
        self._forget(route, now)
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
            own = self._critical_by_namespace.setdefault(message.key.namespace, deque())
            return (self._critical, route.critical_rate_limit), (own, route.critical_namespace_rate_limit)
        own = self._by_policy.setdefault(message.key, deque())
        return (self._sent, route.rate_limit), (own, route.policy_rate_limit)

    def _forget(self, route: NotificationRoute, now: float) -> None:
        _expire(self._sent, route.rate_limit, now)
        _expire(self._critical, route.critical_rate_limit, now)
        _expire_all(self._by_policy, route.policy_rate_limit, now)
        _expire_all(self._critical_by_namespace, route.critical_namespace_rate_limit, now)
        self._last = {key: last for key, last in self._last.items() if now - last.at < REPEATED_SECONDS}


def _expire_all(times: dict[K, deque[float]], limit: RateLimit, now: float) -> None:
    for key, of_one in list(times.items()):
        _expire(of_one, limit, now)
        if not of_one:
            del times[key]


def _expire(times: deque[float], limit: RateLimit, now: float) -> None:
    while times and now - times[0] >= limit.seconds:
        times.popleft()
