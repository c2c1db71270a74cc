"""The actions of the companion. Plans yield them, `writer` carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from adapter.load.spec import Target
from adapter.settings.companion import Severity, Topic
from adapter.snapshot import Key


class Event(NamedTuple):
    """An Event: its reason, the type of condition that it is about (empty: a scaling), and when it became due."""

    name: str
    reason: str
    about: str
    warning: bool
    action: str
    note: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification, before it is written out for a route. `at` is in seconds, `fields` are for templates."""

    topic: Topic
    severity: Severity
    at: float
    target: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Replace the policy's status, if its `assessedAt` is still `over` (empty: any)."""

    key: Key
    uid: str
    status: Mapping[str, Any]
    over: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseScale:
    """Raise the scale at this path to `to`, if it belongs to this target (a UID) and is still `current`."""

    key: Key
    path: str
    target: str
    current: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPod:
    """Mark this pod (of this UID) to be deleted first, or remove the mark."""

    key: Key
    namespace: str
    pod: str
    uid: str
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WireHpa:
    """Apply these fields of the HPA's behavior, if it still has this version and no other manager owns one of them."""

    key: Key
    hpa: str
    uid: str
    version: str
    behavior: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteEvent:
    """Create this Event about the policy of this UID, with its target."""

    key: Key
    uid: str
    event: Event
    target: Target | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Send these notifications, by the routes of these names and those for all policies."""

    key: Key
    notifications: tuple[Notification, ...]
    routes: tuple[str, ...]


Action = RaiseScale | Notify | MarkPod | WireHpa | WriteStatus | WriteEvent


class ActionResult(StrEnum):
    """How an action ended.

    `OVERTAKEN`: the object has changed since the action was planned, so nothing was written. `NOT_LEADING`: nothing was
    tried.
    """

    DONE = "done"
    OVERTAKEN = "overtaken"
    NOT_LEADING = "notLeading"
    REFUSED = "refused"
    FAILED = "failed"
