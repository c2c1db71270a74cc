"""Plays the groups of a plan on a stage while every document is decided again, and prints a line about each group."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from http.client import HTTPException
from pathlib import Path
from typing import Any

from adapter.commands.decide import decision, reader
from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.soak.actions import Actions
from lab.soak.plan import Group, groups
from lab.soak.stage import Stage

DOCUMENT_SECONDS = 0.25
LONG = {"front-proxy-rotated", "certificate-rotated", "leader-lost", "leader-frozen"}
"""Faults that take most of a minute by themselves; `python -m lab.faults` has them."""
_ANSWER = ("current", "desiredReplicas", "served", "error", "verdict", "heldBy")


def fault_names() -> list[str]:
    """The scenarios of `python -m lab.faults` that a run picks from."""
    return [one.name for one in SCENARIOS if may_run(one) and one.name not in LONG]


class Run:
    """One run of a plan. `keep_going`: a difference does not end it. `documents`: how many were compared."""

    def __init__(self, stage: Stage, tell: Callable[[str], None], folder: Path, *, keep_going: bool = False) -> None:
        self.stage, self._tell, self._folder, self._keep_going = stage, tell, folder, keep_going
        self.differences: list[str] = []
        self.documents = 0
        self._actions = Actions(stage)
        self._played: Counter[str] = Counter()
        self._began = time.monotonic()

    def play(self, seed: int, seconds: float, faults: list[str] | None = None) -> None:
        """Plays the groups of a seed for so long, or until there is a difference."""
        ended = threading.Event()
        thread = threading.Thread(target=self._compare, args=(ended,), daemon=True)
        thread.start()
        for group in groups(seed, fault_names() if faults is None else faults):
            self._play_group(group)
            if (self.differences and not self._keep_going) or time.monotonic() - self._began > seconds:
                break
        ended.set()
        thread.join(10)
        if self.differences:
            self._tell(f"the adapter's log:\n{self.stage.adapter.logs(25)}")

    def summary(self, seed: int) -> str:
        """The last line of a run."""
        played = f"{self._played['groups']} groups of {self._played['steps']} steps, {self._played['faults']} faults"
        return (
            f"{'FAILED' if self.differences else 'ok'}  seed {seed}: {played} in "
            f"{(time.monotonic() - self._began) / 60:.1f} minutes; {self.documents} documents decided again, "
            f"{len(self.differences)} differences"
        )

    def _play_group(self, group: Group) -> None:
        before = len(self.differences)
        faults: list[Future[None]] = []
        for step in group.steps:
            if step.kind == "fault":
                scenario = next(one for one in SCENARIOS if one.name == step.arguments["name"])
                faults.append(self.stage.workers.submit(self._fault, scenario))
            else:
                self._actions.take(step)
            time.sleep(group.seconds / len(group.steps))
            if self.differences and not self._keep_going:
                break
        wait(faults, 180)
        self._played.update(groups=1, steps=len(group.steps), faults=len(faults))
        passed, found = int(time.monotonic() - self._began), self.differences[before:]
        head = f"{'FAILED' if found else 'ok    '} {group.number:4} {passed // 60:02}:{passed % 60:02}"
        self._tell("\n        ".join([f"{head}  {', '.join(map(str, group.steps))}", *found[:5]]))

    def _fault(self, scenario: Scenario) -> None:
        try:
            with scenario.broken(self.stage):
                time.sleep(scenario.hold)
        except Exception as error:  # noqa: BLE001 - the next step may need what is still broken
            self._tell(f"        {scenario.name}: {type(error).__name__}: {error}")

    def _compare(self, ended: threading.Event) -> None:
        """Fetches each policy's decision in turn, and decides its document again."""
        while not ended.is_set():
            for name in self.stage.truths:
                if ended.wait(DOCUMENT_SECONDS):
                    return
                try:
                    answer = self.stage.ask(name, "decision")
                except (OSError, HTTPException):  # the adapter may be what is broken
                    continue
                if answer.status == 200:
                    self.documents += 1
                    self._decide(name, answer.json())

    def _decide(self, name: str, found: Mapping[str, Any]) -> None:
        try:
            difference = document_difference(found)
        except Exception as error:  # noqa: BLE001 - a document that cannot be read is a difference
            difference = f"{type(error).__name__}: {error}"
        if difference:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / f"{len(self.differences)}.json"
            file.write_text(json.dumps(found["document"], indent=1))
            self.differences.append(f"{name}: {difference}; its document: effective-load decide {file}")


def document_difference(found: Mapping[str, Any]) -> str:
    """How the decision that a server handed out differs from its document, decided again."""
    document = found["document"]
    own = decision.decision_json(reader.read_document(json.dumps(document)))
    for name in _ANSWER:
        if own[name] != found["decision"][name]:
            return f"replay: {name}: the document says {own[name]}, the server said {found['decision'][name]}"
    return ""
