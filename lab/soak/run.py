"""Plays the groups of a plan on a stage, and prints a line about each."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.soak.actions import Actions
from lab.soak.observe import Finding, Observer, Spell
from lab.soak.plan import Group, Invariant, Step, groups
from lab.soak.stage import Stage

RECOVERY_SECONDS = 20.0
"""How long after a fault the answers may still be errors, beyond what its scenario says."""
PREFIXES = {"prometheus": "prometheus", "metrics-server": "metrics", "consul": "consul", "all-pulled-out": "consul"}
HARMLESS = {"leader-lost", "leader-frozen", "settings-broken", "disk-full"}
LONG = {"front-proxy-rotated", "certificate-rotated", "leader-lost", "leader-frozen"}
"""Faults that take most of a minute by themselves; `python -m lab.faults` has them."""


def inputs_of(fault: str) -> frozenset[str] | None:
    """The inputs that a fault breaks; None where it may break all."""
    if fault in HARMLESS:
        return frozenset()
    return next((frozenset({name}) for prefix, name in PREFIXES.items() if fault.startswith(prefix)), None)


def fault_names() -> list[str]:
    """The scenarios of `python -m lab.faults` that a run picks from."""
    return [one.name for one in SCENARIOS if may_run(one) and one.name not in LONG]


class Run:
    """One run of a plan. `keep_going`: a finding does not end it."""

    def __init__(self, stage: Stage, tell: Callable[[str], None], folder: Path, *, keep_going: bool = False) -> None:
        self.stage, self._tell, self._folder, self._keep_going = stage, tell, folder, keep_going
        self.observer = Observer(stage)
        self._actions = Actions(stage)
        self._began = time.monotonic()
        self._played: Counter[str] = Counter()

    def play(self, seed: int, seconds: float, faults: list[str] | None = None) -> None:
        """Plays the groups of a seed for so long, or until something is found."""
        for group in groups(seed, fault_names() if faults is None else faults):
            self._play_group(group)
            found = self.observer.findings
            if (found and not self._keep_going) or time.monotonic() - self._began > seconds:
                break
        self.observer.close()
        if self.observer.findings:
            self._tell(f"the adapter's log:\n{self.stage.adapter.logs(25)}")

    def summary(self, seed: int) -> str:
        """The last lines of a run."""
        counts, observer = self.observer.counts, self.observer
        broken = ", ".join(sorted({finding.invariant for finding in observer.findings}))
        return f"""\
{"FAILED" if observer.findings else "ok"}  seed {seed}: {self._played["groups"]} groups of {self._played["steps"]} \
steps, {self._played["faults"]} faults in {(time.monotonic() - self._began) / 60:.1f} minutes
    {counts["documents"]} documents compared with the model
    {counts["syncs"]} looks of the controller, {counts["rescaled"]} rescales of them, compared with its answers
    {counts["answers"]} answers in at most {observer.slowest * 1e3:.0f} ms; {counts["not_judged"]} late or errors on a \
busy machine
    {len(observer.findings)} unexplained differences{broken and f": {broken}"}"""

    def _play_group(self, group: Group) -> None:
        before = len(self.observer.findings)
        faults: list[Future[None]] = []
        for step in group.steps:
            if step.kind == "fault":
                scenario = next(one for one in SCENARIOS if one.name == step.arguments["name"])
                faults.append(self.stage.workers.submit(self._fault, scenario))
            else:
                self._take(step)
            time.sleep(group.seconds / len(group.steps))
            if self.observer.findings and not self._keep_going:
                break
        wait(faults, 180)
        self._played.update(groups=1, steps=len(group.steps), faults=len(faults))
        found = self.observer.findings[before:]
        self._tell(self._line(group, found))
        for number, finding in enumerate(found[:5]):
            if finding.document is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                file = self._folder / f"group-{group.number}-{number}.json"
                file.write_text(json.dumps(finding.document.get("document", finding.document), indent=1))
                self._tell(f"        its document: effective-load decide {file}")

    def _take(self, step: Step) -> None:
        names = [step.service] if step.service else list(self.stage.truths) if step.kind == "reload" else []
        for name in names:
            self.observer.changed(name)
        self._actions.take(step)
        for name in names:
            self.observer.changed(name)

    def _fault(self, scenario: Scenario) -> None:
        inputs = inputs_of(scenario.name)
        begun = Spell(time.time() - 0.5, float("inf"), inputs)
        self.observer.spells.append(begun)
        if not scenario.answers:
            self.observer.must_answer = False
        try:
            with scenario.broken(self.stage):
                time.sleep(scenario.hold)
        except Exception as error:  # noqa: BLE001 - a fault that cannot be made is a finding
            self.observer.report(Invariant.ITSELF, f"{scenario.name}: {type(error).__name__}: {error}")
        self.observer.must_answer = True
        self.observer.spells.remove(begun)
        self.observer.spells.append(Spell(begun.begin, time.time() + scenario.recovery + RECOVERY_SECONDS, inputs))

    def _line(self, group: Group, found: list[Finding]) -> str:
        passed = int(time.monotonic() - self._began)
        head = f"{'FAILED' if found else 'ok    '} {group.number:4} {passed // 60:02}:{passed % 60:02}"
        changes = ", ".join(self.observer.take_changes()[:8]) or "no count changed"
        first = {finding.invariant: finding for finding in reversed(found)}.values()
        lines = [f"        {finding.invariant}: {finding.text}" for finding in first]
        return "\n".join([f"{head}  {', '.join(map(str, group.steps))}: {changes}", *lines])
