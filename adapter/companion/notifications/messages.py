"""A notice in words, and how many of them a route may be sent."""

import string
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.companion.state import Notice
from adapter.runtime.times import format_time
from adapter.settings.notifications import NotificationRoute, RateLimit, Severity
from adapter.snapshot import Key

K = TypeVar("K")

REPEATED_SECONDS = 300.0
"""The last words about a policy are not sent again for so long."""
LONGEST_TITLE = 250
LONGEST_BODY = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a route is sent. `at` is when it was noticed (seconds)."""

    key: Key
    severity: Severity
    at: float
    title: str
    body: str


def message(route: NotificationRoute, cluster: str, key: Key, notice: Notice, severity: Severity) -> Message:
    """The notice in the route's own words. Templates only put in what is known: nothing in them is executed."""
    fields = {"from": "", "to": "", "why": ""} | dict(notice.fields)
    fields |= {
        "cluster": cluster,
        "event": notice.topic.value,
        "severity": severity.value,
        "namespace": key.namespace,
        "policy": key.name,
        "target": notice.target,
        "at": format_time(notice.at),
        "text": notice.text,
    }
    return Message(
        key=key,
        severity=severity,
        at=notice.at,
        # A subject of several lines is none that a mail can have.
        title=" ".join(_filled(route.title, fields, LONGEST_TITLE).split()),
        body=_filled(route.template, fields, LONGEST_BODY),
    )


def _filled(template: str, fields: Mapping[str, str], longest: int) -> str:
    text = string.Template(template).safe_substitute(fields)
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(slots=True)
class Allowance:
    """What one route was sent lately: for its limits, and so that it is not told the same twice in a row."""

    _sent: deque[float] = field(default_factory=deque)
    _by_policy: dict[Key, deque[float]] = field(default_factory=dict)
    _critical: deque[float] = field(default_factory=deque)
    _critical_by_namespace: dict[str, deque[float]] = field(default_factory=dict)
    _last: dict[Key, Message] = field(default_factory=dict)

    def take(self, message: Message, route: NotificationRoute, now: float) -> str:
        """Take a place for it; else why there is none: `repeated` or `limited`."""
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
        """What it counts for, and the limits of that."""
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
