"""What is watched all the time of a run: answers, documents, the controller's log. Findings go into one list."""

import json
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from lab.faults.scene import NAMESPACE
from lab.faults.watch import LATEST_ANSWER
from lab.harness.hpa_log import logged_at
from lab.soak import checks
from lab.soak.checks import Asked, Given, Spell, Synced
from lab.soak.stage import DECISION, REACH, Stage

ASK_SECONDS = 0.5
DOCUMENT_SECONDS = 0.25
PULSE_SECONDS = 0.1
LOAD = Path("/proc/loadavg")
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

    invariant: str
    at: float
    text: str
    document: dict[str, Any] | None = None


@dataclass
class Counted:
    """What was looked at since the last line."""

    documents: int = 0
    answers: int = 0
    errors: int = 0
    syncs: int = 0
    rescaled: list[str] = field(default_factory=list)
    shrunk: int = 0
    slowest: float = 0.0
    not_judged: int = 0
    """Late answers and errors while this machine had no processor to spare."""


class Machine:
    """How many processes share one processor of this machine, pulse by pulse.

    An answer takes so many times as long, and a limit of its sources' is passed as early. What is late on that account
    is not judged, but counted.
    """

    def __init__(self) -> None:
        self._shared: deque[tuple[float, float]] = deque(maxlen=1200)
        self._processors = os.cpu_count() or 1

    def look(self) -> None:
        """Notes how many processes want to run now (the fourth field of /proc/loadavg, this one among them)."""
        running = int(LOAD.read_text().split()[3].partition("/")[0]) - 1
        self._shared.append((time.monotonic(), running / self._processors))

    def sharing(self, begin: float, end: float) -> float:
        """The average of this time and the three seconds before it (`time.monotonic`); at least 1."""
        seen = [shared for at, shared in list(self._shared) if begin - 3 <= at <= end + PULSE_SECONDS]
        return max(1.0, sum(seen) / len(seen)) if seen else 1.0

    @property
    def typical(self) -> float:
        """The average of the last minutes."""
        return sum(shared for _, shared in self._shared) / max(1, len(self._shared))


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
        askers = [lambda name=name: self._keep(ASK_SECONDS, lambda: self._ask(name)) for name in stage.truths]
        watchers: list[Callable[[], None]] = [
            lambda: self._keep(PULSE_SECONDS, self.machine.look),
            lambda: self._keep(0.0, self._fetch_documents),
            lambda: self._keep(0.3, self._read_log),
            *askers,
        ]
        self._log, self._answers = stage.cluster.hpa_log.path, stage.shim / "answers.jsonl"
        self._log_at = self._log.stat().st_size
        self._answers_at = self._answers.stat().st_size if self._answers.exists() else 0
        self._synced: list[Synced] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in watchers]
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

    def report(self, invariant: str, text: str, document: dict[str, Any] | None = None) -> None:
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
                self.report("the soak itself", f"{type(error).__name__}: {error}")
                return

    def _ask(self, name: str) -> None:
        truth, must = self.stage.truths[name], self.must_answer
        at, began = time.time(), time.monotonic()
        try:
            status, body, retry_after = self.stage.ask(name)
            message = "" if status == 200 else str(json.loads(body).get("message", body))
        except (OSError, HTTPException) as error:
            status, message, retry_after = 0, f"{type(error).__name__}: {error}", False
        ended = time.monotonic()
        asked = Asked(at, name, ended - began, status, message, retry_after)
        must = must and self.must_answer
        self.counted.answers += 1
        self.counted.errors += status != 200
        if self._starved(asked, began, ended) and not retry_after:
            self.counted.not_judged += 1
            return
        if must:
            self.counted.slowest = max(self.counted.slowest, asked.seconds)
        self.report("answers in time", checks.answer_fault(asked, must_answer=must))
        if truth.x == 0:
            self.changed(name)
        if must:
            fault = checks.error_fault(asked, truth.service.inputs, list(self.spells), list(self.busy[name]))
            self.report("a fault of one input is an error of those who use it", fault)

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
            status, body, _ = self.stage.ask(name, DECISION)
            if status != 200:
                continue
            found = json.loads(body)
            self._documents.setdefault(name, deque(maxlen=10)).append((time.time(), found))
            self.counted.documents += 1
            difference, reached = checks.document_difference(found)
            self.reached.update(reached)
            self.report("the answer is the model's", difference, found)

    # --- the controller ---

    def _read_log(self) -> None:
        self._answers_at, lines = _appended(self._answers, self._answers_at)
        for line in lines:
            given = Given(**json.loads(line))
            self._given.append(given)
            before = self._last.get(given.name)
            if before is not None and self.stage.truths[given.name].may_not_shrink_twice:
                self.report("the same samples shrink once", checks.shrunk_twice(before, given))
            self._last[given.name] = given
        self._log_at, lines = _appended(self._log, self._log_at)
        self._synced += [one for one in map(synced_in, lines) if one is not None]
        now = time.time()
        # The answer is noted a moment after it was sent, and where the load went when the pods are looked at next.
        ripe = [one for one in self._synced if one.at < now - RIPE_SECONDS]
        self._synced = [one for one in self._synced if one.at >= now - RIPE_SECONDS]
        for one in ripe:
            self._judge(one)

    def _judge(self, synced: Synced) -> None:
        truth = self.stage.truths.get(synced.name)
        if truth is None:
            return
        self.counted.syncs += 1
        if synced.rescaled:
            self.counted.rescaled.append(f"{synced.name} {synced.current}→{synced.desired}")
            self.counted.shrunk += synced.desired < synced.current
            self.changed(synced.name, 8.0)
        own = [one for one in self._given if one.name == synced.name and one.at <= synced.at]
        differences = [checks.sync_difference(synced, own, bounds) for bounds in truth.recent_bounds(synced.at)]
        self.report("the controller sets the answer", differences[-1] if all(differences) else "")
        fault = checks.shrink_difference(synced, truth.fewest(synced.at))
        self.report("no count shrinks below its need", fault, self._document(synced) if fault else None)
        self.report("no count rises beyond its load", checks.rise_difference(synced, truth.most(synced.at)))

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


def _appended(file: Path, since: int) -> tuple[int, Sequence[str]]:
    """The whole lines that a file got since an offset, and the new offset."""
    if not file.exists():
        return since, ()
    with file.open("rb") as opened:
        opened.seek(since)
        found = opened.read()
    end = found.rfind(b"\n") + 1
    return since + end, found[:end].decode(errors="replace").splitlines()
