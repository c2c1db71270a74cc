"""Plays the groups of a plan on a stage, judges what was seen, and tells a line about each."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from lab.faults.scenarios import SCENARIOS, Scenario, may_run
from lab.faults.watch import Size
from lab.soak.actions import Actions
from lab.soak.checks import Spell
from lab.soak.observe import Counted, Finding, Observer
from lab.soak.plan import Group, Invariant, Step, groups
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
    """What came of a run; `counted` has its groups and steps besides."""

    counted: Counted = field(default_factory=Counted)
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[float, Size]] = field(default_factory=list)
    """Seconds since the beginning, and what the adapter used, a minute after its start and later."""
    findings: list[Finding] = field(default_factory=list)
    growth: str = "not measured"

    def add(self, group: Group, counted: Counted) -> None:
        self.counted.add(counted)
        self.counted.counts.update(groups=1, steps=len(group.steps))
        self.kinds.update(step.kind for step in group.steps)
        self.faults.update(str(step.arguments["name"]) for step in group.steps if step.kind == "fault")

    def figures(self) -> dict[str, object]:
        """The figures of a run for its stored result."""
        names = ("groups", "steps", "documents", "answers", "syncs", "rescaled", "shrunk", "not_judged")
        return {
            **{name: self.counted.counts[name] for name in names},
            "seconds": self.seconds,
            "slowest": self.counted.slowest,
            "differences": len(self.findings),
            "kinds": dict(sorted(self.kinds.items())),
            "faults": dict(sorted(self.faults.items())),
            "reached": dict(sorted(self.reached.items())),
            "sizes": [{"seconds": round(at), **vars(size)} for at, size in self.sizes[::10]],
        }

    def summary(self, seed: int) -> str:
        """The last lines of a run."""
        counts, slowest = self.counted.counts, self.counted.slowest * 1e3
        done = f"{counts['groups']} groups of {counts['steps']} steps"
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        broken = ", ".join(sorted({finding.invariant for finding in self.findings}))
        return f"""\
{"FAILED" if self.findings else "ok"}  seed {seed}: {done} in {self.seconds / 60:.1f} minutes
    {counts["documents"]} documents compared with the model
    {counts["syncs"]} looks of the controller, {counts["rescaled"]} rescales of them, compared with its answers
    {counts["answers"]} answers in at most {slowest:.0f} ms; {counts["not_judged"]} late or errors on a busy machine
    growth since a minute after the adapter's last start: {self.growth}
    faults: {faults or "none"}
    {len(self.findings)} unexplained differences{broken and f": {broken}"}"""


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
        self.result.seconds = time.monotonic() - self._began
        self.result.findings, self.result.reached = list(self.observer.findings), self.observer.reached
        return self.result

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
            self.observer.report(Invariant.ITSELF, f"{scenario.name}: {type(error).__name__}: {error}")
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
        self.observer.report(Invariant.GROWS, "; ".join(growth.beyond(MOST_GROWTH)))

    # --- lines ---

    def _line(self, group: Group, counted: Counted, found: list[Finding]) -> str:
        passed, counts = int(time.monotonic() - self._began), counted.counts
        steps = ", ".join(map(str, group.steps))
        seen = (
            f"{counts['documents']} documents, {counts['answers']} answers ({counts['errors']} errors, at most "
            f"{counted.slowest * 1e3:.0f} ms), {counts['syncs']} looks of the controller"
        )
        seen += f", {counts['not_judged']} not judged" if counts["not_judged"] else ""
        changes = f"; {', '.join(counted.changes[:8])}" if counted.changes else ""
        head = f"{'FAILED' if found else 'ok    '} {group.number:4} {passed // 60:02}:{passed % 60:02}"
        return "\n".join([f"{head}  {steps}: {seen}{changes}", *foremost(found)])


def foremost(found: list[Finding]) -> Iterator[str]:
    """Lines for the first two findings of each invariant."""
    told: Counter[str] = Counter()
    for finding in found:
        told[finding.invariant] += 1
        if told[finding.invariant] <= 2:
            yield f"        {finding.invariant}: {finding.text}"
