"""Runs scenarios on one scene, and judges what was seen."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.chaos.scenarios import Scenario
from lab.chaos.scene import Scene
from lab.chaos.watch import Seen


@dataclass
class Outcome:
    """What came of one scenario; `faults` are the invariants that broke, in words."""

    scenario: Scenario
    faults: list[str] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    recovered: float | None = None
    """Seconds until all answers were right again."""
    followed: float | None = None
    """Seconds from then until a real rise had changed a count."""

    def line(self) -> str:
        """One line for a terminal."""
        if self.faults:
            return f"FAILED  {self.scenario.name:24} {'; '.join(self.faults)}"
        late = max(self.seen.delays, default=0.0)
        middle = statistics.median(self.seen.delays) if self.seen.delays else 0.0
        answers = f"{self.seen.numbers} numbers, {self.seen.errors} errors"
        times = f"answers in {middle * 1e3:.0f} ms, at most {late * 1e3:.0f}"
        back = f"right after {self.recovered or 0:.1f} s, a rise is followed in {self.followed or 0:.1f} s"
        return f"ok      {self.scenario.name:24} no count fell; {answers}; {times}; {back}"


def play(scene: Scene, scenario: Scenario) -> Outcome:
    """Breaks, waits, mends, and waits for the right answers and for a real rise to be followed."""
    outcome = Outcome(scenario)
    scene.until_right(60)
    scene.watch.seen = Seen()
    scene.fall(60)
    scene.watch.must_answer = scenario.answers
    with scenario.broken(scene):
        time.sleep(scenario.hold)  # how long a fault lasts is part of it: there is no event to wait for
    outcome.recovered = _timed(outcome, lambda: scene.until_right(scenario.recovery))
    scene.watch.must_answer = True
    if not outcome.faults:
        outcome.followed = _timed(outcome, lambda: scene.rise(scenario.recovery))
        scene.until_right(60)
    outcome.seen = scene.watch.seen
    seen = outcome.seen
    shrunk = [f"a count fell: {one}" for one in seen.shrunk]
    late = [f"{len(seen.late)} answers were late or missing, first {seen.late[0]}"] if seen.late else []
    silent = [] if seen.numbers else ["no number was answered"]
    outcome.faults += [*shrunk, *late, *silent]
    return outcome


def _timed(outcome: Outcome, step: Callable[[], None]) -> float | None:
    began = time.monotonic()
    try:
        step()
    except TimeoutError as error:
        outcome.faults.append(str(error))
        return None
    return time.monotonic() - began
