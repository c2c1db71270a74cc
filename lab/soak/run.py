"""Plays the groups of a plan on a stage, judges what was seen, and tells a line about each."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.faults.watch import Size
from lab.soak.actions import Actions
from lab.soak.checks import Spell
from lab.soak.observe import Counted, Finding, Observer
from lab.soak.plan import Group, Step, groups
from lab.soak.stage import Stage

MOST_GROWTH = Size(memory=40.0, tasks=40, sockets=40, threads=6)
"""How much more the adapter may use than a minute after its start: its memory of pods fills for 15 minutes."""
WARM_SECONDS = 60.0
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
    for prefix, name in PREFIXES.items():
        if fault.startswith(prefix):
            return frozenset({name})
    return None


def fault_names() -> list[str]:
    """The scenarios of `python -m lab.faults` that a run picks from."""
    return [one.name for one in SCENARIOS if may_run(one) and one.name not in LONG]


@dataclass
class Result:
    """What came of a run."""

    groups: int = 0
    steps: int = 0
    documents: int = 0
    answers: int = 0
    syncs: int = 0
    rescaled: int = 0
    shrunk: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    not_judged: int = 0
    sharing: float = 0.0
    """Processes that wanted to run, for each processor."""
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[float, Size]] = field(default_factory=list)
    """Seconds since the beginning, and what the adapter used, a minute after its start and later."""
    findings: list[Finding] = field(default_factory=list)
    growth: str = ""

    def add(self, group: Group, counted: Counted) -> None:
        self.groups += 1
        self.steps += len(group.steps)
        self.documents += counted.documents
        self.answers += counted.answers
        self.syncs += counted.syncs
        self.rescaled += len(counted.rescaled)
        self.not_judged += counted.not_judged
        self.slowest = max(self.slowest, counted.slowest)
        self.shrunk += counted.shrunk
        self.kinds.update(step.kind for step in group.steps)
        self.faults.update(str(step.arguments["name"]) for step in group.steps if step.kind == "fault")


class Run:
    """One run of a plan. `keep_going`: a finding does not end it."""

    def __init__(
        self,
        stage: Stage,
        tell: Callable[[str], None],
        folder: Path,
        *,
        keep_going: bool = False,
        warm: float = WARM_SECONDS,
    ) -> None:
        self.stage, self._tell, self._folder, self._keep_going = stage, tell, folder, keep_going
        self.observer = Observer(stage)
        self.result = Result()
        self._actions = Actions(stage)
        self._began = time.monotonic()
        self._size: tuple[int, Size] | None = None
        self._warm = warm
        self._settled = time.monotonic() + warm

    def play(self, seed: int, seconds: float, faults: list[str] | None = None) -> Result:
        """Plays the groups of a seed for so long, or until something is found."""
        for group in groups(seed, fault_names() if faults is None else faults):
            self.play_group(group)
            found = self.observer.findings
            if (found and not self._keep_going) or time.monotonic() - self._began > seconds:
                break
        return self.end()

    def end(self) -> Result:
        """Ends the watching."""
        self.observer.close()
        if self.observer.findings:
            self._tell(f"the adapter's log:\n{self.stage.adapter.logs(25)}")
        result = self.result
        result.seconds, result.sharing = time.monotonic() - self._began, self.observer.machine.typical
        result.findings = list(self.observer.findings)
        result.reached = self.observer.reached
        return result

    def play_group(self, group: Group) -> None:
        """Takes the steps of a group, and tells a line."""
        before = len(self.observer.findings)
        pause = group.seconds / len(group.steps)
        faults: list[Future[None]] = []
        for step in group.steps:
            if step.kind == "fault":
                scenario = next(one for one in SCENARIOS if one.name == step.arguments["name"])
                faults.append(self.stage.workers.submit(self._fault, scenario))
            else:
                self._take(step)
            time.sleep(pause)
            self._compare_sizes()
            if self.observer.findings and not self._keep_going:
                break
        wait(faults, 180)
        counted = self.observer.take()
        self.result.add(group, counted)
        found = self.observer.findings[before:]
        self._tell(self._line(group, counted, found))
        for number, finding in enumerate(found[:5]):
            self._save(finding, f"group-{group.number}-{number}.json")

    def _save(self, finding: Finding, name: str) -> None:
        if finding.document is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / name
            file.write_text(json.dumps(finding.document.get("document", finding.document), indent=1))
            self._tell(f"        its document: effective-load decide {file}")

    def _take(self, step: Step) -> None:
        names = [step.service] if step.service else list(self.stage.truths) if step.kind == "reload" else []
        for name in names:
            self.observer.changed(name)
        self._actions.take(step)
        for name in names:
            self.observer.changed(name)

    # --- faults ---

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
            self.observer.report("the soak itself", f"{scenario.name}: {type(error).__name__}: {error}")
        self.observer.must_answer = True
        if scenario.restarts:
            self._size, self._settled = None, time.monotonic() + self._warm
        self.observer.spells.remove(begun)
        self.observer.spells.append(Spell(begun.begin, time.time() + scenario.recovery + RECOVERY_SECONDS, inputs))
        del self.observer.spells[:-20]

    # --- the process ---

    def _compare_sizes(self) -> None:
        if time.monotonic() < self._settled:
            return
        try:
            pid, size = self.stage.adapter.component.pid, self.stage.size()
        except (OSError, ValueError, KeyError):  # it is being restarted
            return
        assert pid is not None
        self.result.sizes.append((time.monotonic() - self._began, size))
        if self._size is None or self._size[0] != pid:
            self._size = (pid, size)
            return
        growth = size.growth(self._size[1])
        self.result.growth = f"{growth.memory:+.1f} MiB, {growth.tasks:+d} tasks, {growth.sockets:+d} sockets"
        self.observer.report("the process does not grow", "; ".join(growth.beyond(MOST_GROWTH)))

    # --- lines ---

    def _line(self, group: Group, counted: Counted, found: list[Finding]) -> str:
        passed = int(time.monotonic() - self._began)
        steps = ", ".join(map(str, group.steps))
        head = f"{'FAILED' if found else 'ok    '} {group.number:4} {passed // 60:02}:{passed % 60:02}"
        seen = (
            f"{counted.documents} documents, {counted.answers} answers ({counted.errors} errors, at most "
            f"{counted.slowest * 1e3:.0f} ms), {counted.syncs} looks of the controller"
        )
        seen += f", {counted.not_judged} not judged" if counted.not_judged else ""
        moved = f"; {', '.join(counted.rescaled[:8])}" if counted.rescaled else ""
        wrong = "".join(f"\n        {one.invariant}: {one.text}" for one in foremost(found))
        return f"{head}  {steps}: {seen}{moved}{wrong}"


def foremost(found: list[Finding]) -> list[Finding]:
    """The first two findings of each invariant."""
    shown: list[Finding] = []
    for one in found:
        if sum(other.invariant == one.invariant for other in shown) < 2:
            shown.append(one)
    return shown
