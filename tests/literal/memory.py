"""The memory of the literal model between two documents of a service."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.literal.facts import maybe_moment, moment, quantity


@dataclass
class Sample:
    """The last fit sample of one pod and metric. `at` is the time that it is aged from."""

    at: float
    value: Fraction


@dataclass
class Ahead:
    """A sample that was dated far ahead of its answer, and when it was first seen."""

    dated: float
    value: Fraction
    first_seen: float


@dataclass
class Past:
    """One pod, by its UID."""

    registered: bool = False
    lost: bool = False
    """Registered only before the last loss."""
    absent_since: float | None = None
    absent_count: int = 0
    out_since: float | None = None
    by_absence: bool = False
    back_since: float | None = None
    doubt_since: float | None = None
    served: bool = False
    samples: dict[str, Sample] = field(default_factory=dict)
    ahead: dict[str, Ahead] = field(default_factory=dict)


@dataclass
class Departed:
    """A pod that served and left."""

    left: float
    samples: dict[str, Sample]


@dataclass
class Beyond:
    """Usage of a metric that was beyond a watermark at the samples from `since` to `until`."""

    verdict: str
    since: float
    until: float


@dataclass
class Memory:
    """`known`: there was a document before."""

    known: bool = False
    pods: dict[str, Past] = field(default_factory=dict)
    departed: dict[str, Departed] = field(default_factory=dict)
    totals_ahead: dict[str, Ahead] = field(default_factory=dict)
    beyond: dict[str, Beyond] = field(default_factory=dict)
    ever_in_roster: bool = False
    roster_at: float | None = None
    last_valid: dict[str, Any] | None = None
    rosters: int = 0
    rosters_since: float | None = None
    empty_since: float | None = None
    roster_total: int | None = None
    reconnected_at: float | None = None
    hold_until: float | None = None
    rollout_since: float | None = None
    noted_at: float | None = None
    noted_current: int | None = None
    first_step: float | None = None
    last_replicas: int | None = None
    last_scale: float | None = None
    error_since: float | None = None


def load(given: dict[str, Any] | None) -> Memory:
    """The memory in a document, by its documented schema."""
    if given is None:
        return Memory()
    memory = Memory(
        known=True,
        ever_in_roster=given.get("everInRoster", False),
        roster_at=maybe_moment(given.get("rosterAt")),
        last_valid=given.get("lastValid"),
        rosters=given.get("rosters", 0),
        rosters_since=maybe_moment(given.get("rostersSince")),
        empty_since=maybe_moment(given.get("emptySince")),
        roster_total=given.get("rosterTotal"),
        reconnected_at=maybe_moment(given.get("reconnectedAt")),
        hold_until=maybe_moment(given.get("holdUntil")),
        rollout_since=maybe_moment(given.get("rolloutSince")),
        last_replicas=given.get("lastReplicas"),
        last_scale=maybe_moment(given.get("lastScale")),
        error_since=maybe_moment(given.get("errorSince")),
        noted_at=maybe_moment(given.get("replacement", {}).get("notedAt")),
        noted_current=given.get("replacement", {}).get("notedCurrent"),
        first_step=maybe_moment(given.get("replacement", {}).get("firstStep")),
        totals_ahead=load_ahead(given),
        departed={
            uid: Departed(moment(pod["at"]), load_samples(pod)) for uid, pod in given.get("departed", {}).items()
        },
    )
    for uid, pod in given.get("pods", {}).items():
        memory.pods[uid] = Past(
            registered="seen" in pod,
            lost=pod.get("registrationLost", False),
            absent_since=maybe_moment(pod.get("absentSince")),
            absent_count=pod.get("absentCount", 0),
            out_since=maybe_moment(pod.get("outSince")),
            by_absence=pod.get("byAbsence", False),
            back_since=maybe_moment(pod.get("backSince")),
            doubt_since=maybe_moment(pod.get("doubtSince")),
            served=pod.get("served", False),
            samples=load_samples(pod),
            ahead=load_ahead(pod),
        )
    for name, one in given.get("beyond", {}).items():
        memory.beyond[name] = Beyond(one["verdict"], moment(one["since"]), moment(one["until"]))
    return memory


def load_samples(given: dict[str, Any]) -> dict[str, Sample]:
    return {
        name: Sample(moment(one["at"]), quantity(one["value"])) for name, one in given.get("lastSample", {}).items()
    }


def load_ahead(given: dict[str, Any]) -> dict[str, Ahead]:
    return {
        name: Ahead(moment(one["at"]), quantity(one["value"]), moment(one["firstSeen"]))
        for name, one in given.get("ahead", {}).items()
    }
