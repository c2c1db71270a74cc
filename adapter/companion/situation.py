"""All that the plan for one policy is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.load.assessment import Decision
from adapter.policy.hpa import Hpa
from adapter.settings import Companion
from adapter.snapshot import Key, PolicyView


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The status that was written last, by this process or as it was found; `at` is when (seconds)."""

    status: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the companion remembers of one policy from plan to plan: each feature has a part of its own."""

    written: Written = Written()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A policy as it stands: `decision` is by the watched scale, None where there is no assessment."""

    key: Key
    now: float
    view: PolicyView
    decision: Decision | None
    hpa: Hpa | None
    settings: Companion
    past: Past
