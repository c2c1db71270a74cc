"""The actions of the companion. Plans yield them, `writer` carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from adapter.kube.api import APPLY_PATCH
from adapter.settings.companion import Severity, Topic
from adapter.snapshot import Key


class Notification(NamedTuple):
    """A notification, before it is written out for a route. `at` is in seconds, `fields` are for templates."""

    topic: Topic
    severity: Severity
    at: float
    target: str
    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request to the API server. `kind` names it in logs and metrics; one that failed delays those of its kind.

    An apply is not forced: a field of another manager is a conflict. `noted` is for `after` of the feature; without
    such a function it is the part of the state once the request has succeeded.
    """

    key: Key
    kind: str
    path: str
    body: Any
    noted: object
    method: str = "PATCH"
    content_type: str = APPLY_PATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseScale:
    """Raise the scale at this path to `to`, if it belongs to this target (a UID) and is still `current`."""

    kind: ClassVar[str] = "RaiseScale"
    key: Key
    path: str
    target: str
    current: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Send these notifications, by the routes of these names and those for all policies."""

    kind: ClassVar[str] = "Notify"
    key: Key
    notifications: tuple[Notification, ...]
    routes: tuple[str, ...]


Action = RaiseScale | Notify | Write


class ActionResult(StrEnum):
    """How an action ended.

    `OVERTAKEN`: the object has changed since the action was planned, so nothing was written. `NOT_LEADING`: nothing was
    tried. `DROPPED`: written, but the API server does not have the field `tolerance` of HPAs.
    """

    DONE = "done"
    DROPPED = "dropped"
    OVERTAKEN = "overtaken"
    NOT_LEADING = "notLeading"
    REFUSED = "refused"
    FAILED = "failed"
