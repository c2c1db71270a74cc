"""What is watched all the time of a run: answers, documents, the controller's log. Findings go into one list."""

import copy
import json
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from adapter.commands.decide import decision, reader
from lab.faults.scene import NAMESPACE
from lab.faults.watch import LATEST_ANSWER
from lab.harness.client import ApiError
from lab.harness.hpa_log import logged_at
from lab.soak.plan import Invariant
from lab.soak.stage import Stage
from tests.literal import compare, memory, model

ASK_SECONDS = 0.5
DOCUMENT_SECONDS = 0.25
PULSE_SECONDS = 0.1
ENOUGH = 2.0
"""Processes for each processor with which the limits still hold."""
RIPE_SECONDS = 3.0
MOST_SECONDS_TO_SYNC = 3.0
"""The controller logs its decision this long after it got the answer, at most."""
STARVED = ("no answer within", "live replica count", "no fresh sample", "last assessed", "not confirmed", "too old")
"""What an error says that too slow a machine may bring about."""
BUSY_SECONDS = {"metrics": 80.0, "prometheus": 25.0, "consul": 0.0}
"""For how long a change of a service itself may leave its policy without an answer."""
_ANSWER = ("current", "desiredReplicas", "served", "error", "verdict", "heldBy")
_SYNCED = re.compile(
    rf'"Successfully rescaled" HPA="{NAMESPACE}/([a-z0-9-]+)".* currentReplicas=(\d+) desiredReplicas=(\d+)'
    rf'|"Decided not to scale" scaleTarget="Deployment/{NAMESPACE}/([a-z0-9-]+)" desiredReplicas=(\d+)'
)


@dataclass(frozen=True)
class Finding:
    """A broken invariant: which, in words, and the document where there is one."""

    invariant: Invariant
    text: str
    document: dict[str, Any] | None = None


@dataclass(frozen=True)
class Given:
    """An answer that the controller got: when (seconds), about whom, and the count where it had one."""

    at: float
    name: str
    status: int
    desired: int | None = None


@dataclass(frozen=True)
class Synced:
    """A look of the controller at an HPA: when, the count before, and the count that it kept or set."""

    at: float
    name: str
    current: int
    desired: int
    rescaled: bool


@dataclass(frozen=True)
class Spell:
    """A time in which what depends on some inputs may be answered by errors. `inputs` None: on anything."""

    begin: float
    end: float
    inputs: frozenset[str] | None

    def explains(self, at: float, inputs: frozenset[str]) -> bool:
        return self.begin <= at <= self.end and (self.inputs is None or bool(self.inputs & inputs))


class Machine:
    """How many processes share one processor of this machine. What is late on that account is counted, not judged."""

    def __init__(self) -> None:
        self._shared: deque[tuple[float, float]] = deque(maxlen=1200)

    def look(self) -> None:
        """Notes how many processes want to run now (the fourth field of /proc/loadavg, this one among them)."""
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1
        self._shared.append((time.monotonic(), running / (os.cpu_count() or 1)))

    def sharing(self, begin: float, end: float) -> float:
        """The average of this time and the three seconds before it (`time.monotonic`); at least 1."""
        seen = [shared for at, shared in list(self._shared) if begin - 3 <= at <= end + PULSE_SECONDS]
        return max(1.0, sum(seen) / len(seen)) if seen else 1.0


class Observer:
    """Watches a stage until it is closed. `counts`: documents, answers, syncs, rescaled, and not_judged."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        """Seconds of the slowest answer."""
        self.spells: list[Spell] = []
        """When faults were under way or had just ended."""
        self.must_answer = True
        self._busy: dict[str, list[Spell]] = {name: [] for name in stage.truths}
        self._changes: list[str] = []
        self._machine = Machine()
        self._given: deque[Given] = deque(maxlen=5000)
        self._ended = threading.Event()
        self._log, self._answers = Appended(stage.cluster.hpa_log.path), Appended(stage.shim / "answers.jsonl")
        self._synced: list[Synced] = []
        watchers: list[tuple[float, Callable[[], None]]] = [
            (PULSE_SECONDS, self._machine.look),
            (0.0, self._fetch_documents),
            (0.3, self._read_log),
            *((ASK_SECONDS, partial(self._ask, name)) for name in stage.truths),
        ]
        self._threads = [threading.Thread(target=self._keep, args=watcher, daemon=True) for watcher in watchers]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10)

    def take_changes(self) -> list[str]:
        """The counts that changed since the last time."""
        changes, self._changes = self._changes, []
        return changes

    def changed(self, name: str, seconds: float = 0.0) -> None:
        """Notes that a service itself is changed now: for a while its policy may have no answer."""
        now, seconds = time.time(), seconds or max(BUSY_SECONDS[one] for one in self.stage.truths[name].service.inputs)
        self._busy[name] = [one for one in self._busy[name] if one.end > now - 60][-200:]
        self._busy[name].append(Spell(now - 1, now + seconds, None))

    def report(self, invariant: Invariant, text: str, document: dict[str, Any] | None = None) -> None:
        if text:
            self.findings.append(Finding(invariant, text, document))

    # --- threads ---

    def _keep(self, period: float, act: Callable[[], None]) -> None:
        while not self._ended.wait(period):
            try:
                act()
            except (OSError, HTTPException):  # the servers may be what is broken
                time.sleep(0.1)
            except Exception as error:  # noqa: BLE001 - a check that fails is a finding
                self.report(Invariant.ITSELF, f"{type(error).__name__}: {error}")
                return

    def _ask(self, name: str) -> None:
        truth, must = self.stage.truths[name], self.must_answer
        at, began = time.time(), time.monotonic()
        try:
            answer = self.stage.ask(name)
            status, message = answer.status, "" if answer.status == 200 else ApiError(answer, name).message[:300]
            if "retry-after" in map(str.lower, answer.headers):
                self.report(
                    Invariant.IN_TIME, f"{name}: the answer has Retry-After, so the controller waits: {message}"
                )
        except (OSError, HTTPException) as error:
            status, message = 0, f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        seconds = ended - began
        self.counts["answers"] += 1
        if truth.x == 0:
            self.changed(name)
        if self._starved(began, ended, status, message):
            self.counts["not_judged"] += 1
        elif must and self.must_answer:
            self.slowest = max(self.slowest, seconds)
            if status == 0 or seconds > LATEST_ANSWER:
                self.report(Invariant.IN_TIME, f"{name} after {seconds:.2f} s: {message or status}")
            excuses = (*list(self.spells), *list(self._busy[name]))
            if status not in {0, 200} and not any(one.explains(at, truth.service.inputs) for one in excuses):
                text = f"{name} answered an error while all that it uses was well: {status} {message}"
                self.report(Invariant.OTHERS, text)

    def _starved(self, began: float, ended: float, status: int, message: str) -> bool:
        """Whether an answer may be late, or an error, because too many share this machine's processors."""
        sharing = self._machine.sharing(began, ended)
        if sharing <= ENOUGH:
            return False
        is_late = LATEST_ANSWER < ended - began < LATEST_ANSWER * sharing
        return is_late or (status not in {0, 200} and any(part in message for part in STARVED))

    def _fetch_documents(self) -> None:
        for name in self.stage.truths:
            if self._ended.wait(DOCUMENT_SECONDS):
                return
            answer = self.stage.ask(name, "decision")
            if answer.status == 200:
                found = answer.json()
                self.counts["documents"] += 1
                self.report(Invariant.ANSWER, document_difference(found), found)

    def _read_log(self) -> None:
        self._given.extend(Given(**json.loads(line)) for line in self._answers.lines())
        self._synced += [synced for synced in map(synced_in, self._log.lines()) if synced is not None]
        # The answer is noted a moment after it was sent.
        ripe_at = time.time() - RIPE_SECONDS
        ripe = [synced for synced in self._synced if synced.at < ripe_at]
        self._synced = [synced for synced in self._synced if synced.at >= ripe_at]
        for synced in ripe:
            self._judge(synced)

    def _judge(self, synced: Synced) -> None:
        truth = self.stage.truths.get(synced.name)
        if truth is None:
            return
        self.counts.update(syncs=1, rescaled=synced.rescaled)
        if synced.rescaled:
            self._changes.append(f"{synced.name} {synced.current}→{synced.desired}")
            self.changed(synced.name, 8.0)
        own = [given for given in self._given if given.name == synced.name]
        differences = [sync_difference(synced, own, bounds) for bounds in truth.bounds[-2:]]
        self.report(Invariant.SETS, differences[-1] if all(differences) else "")


def document_difference(found: Mapping[str, Any]) -> str:
    """How the decision that a server handed out differs from its document, decided again by both implementations."""
    document = found["document"]
    own = decision.decision_json(reader.read_document(json.dumps(document)))
    for name in _ANSWER:
        if own[name] != found["decision"][name]:
            return f"replay: {name}: the document says {own[name]}, the server said {found['decision'][name]}"
    literal, _ = model.answer(copy.deepcopy(document), memory.load(document.get("memory")))
    return compare.difference(literal, compare.reduced(own))


def sync_difference(synced: Synced, answers: Iterable[Given], bounds: tuple[int, int]) -> str:
    """How a count that the controller kept or set differs from the last answer that it got. `bounds`: the HPA's."""
    before = [one for one in answers if synced.at - MOST_SECONDS_TO_SYNC <= one.at <= synced.at]
    if not before or before[-1].desired is None:
        return ""  # it decided without a metric: the count was outside the HPA's bounds, or the answer an error
    desired = before[-1].desired
    if synced.desired in {desired, min(max(desired, bounds[0]), bounds[1])}:
        return ""
    return f"{synced.name}: the answer was {desired}, the controller made it {synced.desired}"


def synced_in(line: str) -> Synced | None:
    """The look of the controller that a line of its log is about; None for any other line."""
    at, match = logged_at(line), _SYNCED.search(line)
    if at is None or match is None:
        return None
    if match[1]:
        return Synced(at, match[1], int(match[2]), int(match[3]), rescaled=True)
    return Synced(at, match[4], int(match[5]), int(match[5]), rescaled=False)


class Appended:
    """What is appended to a file from now on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._since = file.stat().st_size if file.exists() else 0

    def lines(self) -> Sequence[str]:
        """The whole lines since the last time."""
        if not self._file.exists():
            return ()
        with self._file.open("rb") as opened:
            opened.seek(self._since)
            whole = opened.read().rpartition(b"\n")[0]
        self._since += len(whole) + 1 if whole else 0
        return whole.decode(errors="replace").splitlines()
