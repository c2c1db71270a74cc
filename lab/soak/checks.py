"""The invariants, as pure functions of what was seen. Each returns what is wrong in words, empty where nothing is."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.commands.decide import decision, reader
from lab.faults.watch import LATEST_ANSWER

ANSWER = ("current", "desiredReplicas", "served", "error", "verdict", "heldBy")


# --- the answers against their documents ---


def document_difference(found: Mapping[str, Any]) -> tuple[str, set[str]]:
    """How the decision of a server differs from its document, decided again.

    Also what the decision has reached: its verdict, its reason to hold, and the states of its pods.
    """
    case = reader.read_document(json.dumps(found["document"]))
    own = decision.decision_json(case)
    reached = {own["verdict"], f"held by {own['heldBy']}", *(pod["state"] for pod in own["pods"])}
    for name in ANSWER:
        if own[name] != found["decision"][name]:
            return f"replay: {name}: the document says {own[name]}, the server said {found['decision'][name]}", reached
    return "", reached


# --- the counts against the answers ---


@dataclass(frozen=True)
class Given:
    """An answer that the controller got: when (seconds), about whom, and what. `goal` is before pacing."""

    at: float
    name: str
    status: int
    desired: int | None = None
    current: int | None = None
    goal: int | None = None
    samples: str = ""
    """Which samples, and how many pods were left out or doubted: the same text for the same."""
    generation: int = 0


@dataclass(frozen=True)
class Synced:
    """A look of the controller at an HPA: when, the count before, and the count that it kept or set."""

    at: float
    name: str
    current: int
    desired: int
    rescaled: bool


MOST_SECONDS_TO_SYNC = 3.0
"""The controller logs its decision this long after it got the answer, at most."""


def sync_difference(synced: Synced, answers: Iterable[Given], bounds: tuple[int, int]) -> str:
    """How a count that the controller kept or set differs from the last answer that it got. `bounds`: the HPA's."""
    before = [one for one in answers if synced.at - MOST_SECONDS_TO_SYNC <= one.at <= synced.at]
    if not before or before[-1].desired is None:
        return ""  # it decided without a metric: the count was outside the HPA's bounds, or the answer an error
    given = before[-1]
    assert given.desired is not None
    if synced.desired in {given.desired, min(max(given.desired, bounds[0]), bounds[1])}:
        return ""
    return f"{synced.name}: the answer was {given.desired}, the controller made it {synced.desired}"


def shrink_difference(synced: Synced, fewest: int) -> str:
    """Whether the controller made a count smaller than its load allows. `fewest`: what the true load needed of late."""
    if not synced.rescaled or synced.desired >= synced.current or synced.desired >= fewest:
        return ""
    return f"{synced.name} shrank from {synced.current} to {synced.desired}; its load never needed fewer than {fewest}"


SPARE_SHARE, SPARE_PODS = 1.25, 3
"""How far a count may rise beyond what the load asks for: new pods' samples add to older ones of the others, and pods
that are out are replaced.
"""


def largest_rise(most: int) -> float:
    """The largest count that a load explains that asked for so many pods at the most."""
    return most * SPARE_SHARE + SPARE_PODS


def rise_difference(synced: Synced, most: int) -> str:
    """Whether the controller made a count larger than any load explains. `most`: what the load asked for of late."""
    if not synced.rescaled or synced.desired <= synced.current or synced.desired <= largest_rise(most):
        return ""
    return f"{synced.name} rose from {synced.current} to {synced.desired}; its load never asked for more than {most}"


def shrunk_twice(before: Given, after: Given) -> str:
    """Whether the same samples asked for a still smaller count once the count had fallen."""
    if before.samples != after.samples or before.generation != after.generation or not before.samples:
        return ""
    counts = (before.goal, before.current, after.goal, after.current)
    if None in counts:
        return ""
    goal, current, next_goal, fewer = (count or 0 for count in counts)
    if fewer < current and goal < current and next_goal < min(goal, fewer):
        return f"{after.name}: the same samples asked for {goal} at {current} pods and for {next_goal} at {fewer}"
    return ""


# --- answers in time ---


@dataclass(frozen=True)
class Asked:
    """A request, its answer, and the seconds that it took; status 0 where there was none."""

    at: float
    name: str
    seconds: float
    status: int
    message: str = ""
    retry_after: bool = False


def answer_fault(asked: Asked, *, must_answer: bool) -> str:
    """Whether an answer came late, not at all, or told the controller to wait."""
    if asked.retry_after:
        return f"{asked.name}: the answer has Retry-After, so the controller waits with it: {asked.message[:200]}"
    if must_answer and asked.status == 0:
        return f"{asked.name}: no answer: {asked.message[:200]}"
    if must_answer and asked.seconds > LATEST_ANSWER:
        return f"{asked.name} answered after {asked.seconds:.2f} s"
    return ""


# --- errors ---


@dataclass(frozen=True)
class Spell:
    """A time in which what depends on some inputs may be answered by errors. `inputs` None: on anything."""

    begin: float
    end: float
    inputs: frozenset[str] | None

    def explains(self, at: float, inputs: frozenset[str]) -> bool:
        return self.begin <= at <= self.end and (self.inputs is None or bool(self.inputs & inputs))


def error_fault(asked: Asked, inputs: frozenset[str], spells: Iterable[Spell], busy: Sequence[Spell]) -> str:
    """Whether a policy answered an error although nothing that it uses was broken. `busy`: its own changes."""
    if asked.status in {0, 200}:
        return ""
    if any(one.explains(asked.at, inputs) for one in (*spells, *busy)):
        return ""
    return f"{asked.name} answered an error while all that it uses was well: {asked.status} {asked.message[:300]}"
