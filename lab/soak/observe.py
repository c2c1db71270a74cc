"""What is watched all the time of a run: answers, documents, the controller's log. Findings go into one list."""

import json
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from lab.faults.scene import NAMESPACE
from lab.faults.watch import LATEST_ANSWER
from lab.harness.client import ApiError
from lab.harness.hpa_log import logged_at
from lab.soak import checks
from lab.soak.checks import Asked, Given, Spell, Synced
from lab.soak.plan import Invariant
from lab.soak.stage import REACH, Stage

ASK_SECONDS = 0.5
DOCUMENT_SECONDS = 0.25
PULSE_SECONDS = 0.1
ENOUGH = 2.0
"""Processes for each processor with which the limits still hold."""
RIPE_SECONDS = 3.0
STARVED = ("no answer within", "live replica count", "no fresh sample", "last assessed", "not confirmed", "too old")
"""What an error says that too slow a machine may bring about."""
BUSY_SECONDS = {"metrics": REACH["resource"], "prometheus": REACH["query"]}
"""For how long a change of a service itself may leave its policy without an answer."""
_SYNCED = re.compile(
    rf'"Successfully rescaled" HPA="{NAMESPACE}/([a-z0-9-]+)".* currentReplicas=(\d+) desiredReplicas=(\d+)'
    rf'|"Decided not to scale" scaleTarget="Deployment/{NAMESPACE}/([a-z0-9-]+)" desiredReplicas=(\d+)'
)


@dataclass(frozen=True)
class Finding:
    """A broken invariant: which, when (seconds), in words, and the document where there is one."""

    invariant: Invariant
    at: float
    text: str
    document: dict[str, Any] | None = None


@dataclass
class Counted:
    """What was looked at: `counts` of documents, answers, errors, syncs, rescaled, shrunk, and not_judged (late answers
    and errors while this machine had no processor to spare); the changes of counts; the slowest answer in seconds.
    """

    counts: Counter[str] = field(default_factory=Counter)
    changes: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, other: "Counted") -> None:
        """Adds what was counted later; changes are not kept."""
        self.counts.update(other.counts)
        self.slowest = max(self.slowest, other.slowest)


class Machine:
    """How many processes share one processor of this machine, pulse by pulse.

    An answer takes so many times as long, and a limit of its sources' is passed as early. What is late on that account
    is not judged, but counted.
    """

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
    """Watches a stage until it is closed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.findings: list[Finding] = []
        self.counted = Counted()
        self.spells: list[Spell] = []
        """When faults were under way or had just ended."""
        self.busy: dict[str, list[Spell]] = {name: [] for name in stage.truths}
        self.must_answer = True
        self.machine = Machine()
        self.reached: Counter[str] = Counter()
        """How many documents had each verdict, each reason to hold, and pods of each state."""
        self._given: deque[Given] = deque(maxlen=5000)
        self._last: dict[str, Given] = {}
        self._documents: dict[str, deque[tuple[float, dict[str, Any]]]] = {}
        """The latest documents of each policy, with the times (seconds) at which they were read."""
        self._ended = threading.Event()
        self._log, self._answers = Appended(stage.cluster.hpa_log.path), Appended(stage.shim / "answers.jsonl")
        self._synced: list[Synced] = []
        watchers: list[tuple[float, Callable[[], None]]] = [
            (PULSE_SECONDS, self.machine.look),
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

    def take(self) -> Counted:
        """What was counted since the last time."""
        counted, self.counted = self.counted, Counted()
        return counted

    def changed(self, name: str, seconds: float = 0.0) -> None:
        """Notes that a service itself is changed now: for a while its policy may have no answer."""
        truth, now = self.stage.truths[name], time.time()
        seconds = seconds or max(BUSY_SECONDS[one] for one in truth.service.rules.inputs)
        self.busy[name] = [one for one in self.busy[name] if one.end > now - 60][-200:]
        self.busy[name].append(Spell(now - 1, now + seconds, None))

    def report(self, invariant: Invariant, text: str, document: dict[str, Any] | None = None) -> None:
        if text:
            self.findings.append(Finding(invariant, time.time(), text, document))

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
            status, retry_after = answer.status, "retry-after" in map(str.lower, answer.headers)
            message = "" if status == 200 else ApiError(answer, name).message
        except (OSError, HTTPException) as error:
            status, message, retry_after = 0, f"{type(error).__name__}: {error}", False
        ended = time.monotonic()
        asked = Asked(at, name, ended - began, status, message, retry_after)
        must = must and self.must_answer
        self.counted.counts.update(answers=1, errors=status != 200)
        if self._starved(asked, began, ended) and not retry_after:
            self.counted.counts["not_judged"] += 1
            return
        if must:
            self.counted.slowest = max(self.counted.slowest, asked.seconds)
        self.report(Invariant.IN_TIME, checks.answer_fault(asked, must_answer=must))
        if truth.x == 0:
            self.changed(name)
        if must:
            fault = checks.error_fault(asked, truth.service.inputs, list(self.spells), list(self.busy[name]))
            self.report(Invariant.OTHERS, fault)

    def _starved(self, asked: Asked, began: float, ended: float) -> bool:
        """Whether an answer may be late, or an error, because too many share this machine's processors."""
        sharing = self.machine.sharing(began, ended)
        if sharing <= ENOUGH:
            return False
        is_late = LATEST_ANSWER < asked.seconds < LATEST_ANSWER * sharing
        return is_late or (asked.status not in {0, 200} and any(part in asked.message for part in STARVED))

    def _fetch_documents(self) -> None:
        for name in self.stage.truths:
            if self._ended.wait(DOCUMENT_SECONDS):
                return
            answer = self.stage.ask(name, "decision")
            if answer.status != 200:
                continue
            found = answer.json()
            self._documents.setdefault(name, deque(maxlen=10)).append((time.time(), found))
            self.counted.counts["documents"] += 1
            difference, reached = checks.document_difference(found)
            self.reached.update(reached)
            self.report(Invariant.ANSWER, difference, found)

    # --- the controller ---

    def _read_log(self) -> None:
        for line in self._answers.lines():
            given = Given(**json.loads(line))
            self._given.append(given)
            before = self._last.get(given.name)
            if before is not None and self.stage.truths[given.name].may_not_shrink_twice:
                self.report(Invariant.ONCE, checks.shrunk_twice(before, given))
            self._last[given.name] = given
        self._synced += [synced for synced in map(synced_in, self._log.lines()) if synced is not None]
        # The answer is noted a moment after it was sent, and where the load went when the pods are looked at next.
        ripe_at = time.time() - RIPE_SECONDS
        ripe = [synced for synced in self._synced if synced.at < ripe_at]
        self._synced = [synced for synced in self._synced if synced.at >= ripe_at]
        for synced in ripe:
            self._judge(synced)

    def _judge(self, synced: Synced) -> None:
        truth = self.stage.truths.get(synced.name)
        if truth is None:
            return
        self.counted.counts["syncs"] += 1
        if synced.rescaled:
            self.counted.changes.append(f"{synced.name} {synced.current}→{synced.desired}")
            self.counted.counts.update(rescaled=1, shrunk=synced.desired < synced.current)
            self.changed(synced.name, 8.0)
        own = [given for given in self._given if given.name == synced.name and given.at <= synced.at]
        differences = [checks.sync_difference(synced, own, bounds) for bounds in truth.recent_bounds(synced.at)]
        self.report(Invariant.SETS, differences[-1] if all(differences) else "")
        fault = checks.shrink_difference(synced, truth.fewest(synced.at))
        self.report(Invariant.SHRINKS, fault, self._document(synced) if fault else None)
        self.report(Invariant.RISES, checks.rise_difference(synced, truth.most(synced.at)))

    def _document(self, synced: Synced) -> dict[str, Any] | None:
        """The last one before the controller's look, which led to it more likely than any later one."""
        known = list(self._documents.get(synced.name, ()))
        return next((found for at, found in reversed(known) if at <= synced.at), None)


def synced_in(line: str) -> Synced | None:
    """The look of the controller that a line of its log tells of; None for any other line."""
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
