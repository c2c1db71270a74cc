"""Runs scenarios on one scene, and judges what was seen."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.faults.scenarios import Scenario
from lab.faults.scene import Scene
from lab.faults.watch import Seen, Size

MOST_GROWTH = Size(memory=24.0, tasks=16, sockets=16, threads=4)
"""How much more a process may use after a fault than before it. Idle connections of the aggregator, each a socket and a
task, last 90 s. What leaks less in one fault than this is for the long run to find.
"""
SETTLE_SECONDS = 10.0


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
    growth: Size | None = None

    def line(self) -> str:
        """One line for a terminal."""
        if self.faults:
            return f"FAILED  {self.scenario.name:24} {'; '.join(self.faults)}"
        late = max(self.seen.delays, default=0.0)
        middle = statistics.median(self.seen.delays) if self.seen.delays else 0.0
        answers = f"{self.seen.numbers} numbers, {self.seen.errors} errors"
        times = f"answers in {middle * 1e3:.0f} ms, at most {late * 1e3:.0f}"
        back = f"right after {self.recovered or 0:.1f} s, a rise is followed in {self.followed or 0:.1f} s"
        size = f", {self.growth.memory:+.1f} MiB" if self.growth else ""
        return f"ok      {self.scenario.name:24} no count fell; {answers}; {times}; {back}{size}"


def play(scene: Scene, scenario: Scenario) -> Outcome:
    """Breaks, waits, mends, and waits for the right answers and for a real rise to be followed."""
    outcome = Outcome(scenario)
    scene.until_right(60)
    before = None if scenario.restarts else scene.size()
    scene.watch.seen = Seen()
    scene.watch.must_answer = scenario.answers
    with scenario.broken(scene):
        time.sleep(scenario.hold)  # how long a fault lasts is part of it: there is no event to wait for
    outcome.recovered = _timed(outcome, lambda: scene.until_right(scenario.recovery))
    scene.watch.must_answer = True
    if not outcome.faults:
        outcome.followed = _timed(outcome, lambda: scene.rise(scenario.recovery))
        scene.until_right(60)
    outcome.seen = scene.watch.seen
    if before is not None:
        # What ends by itself, such as idle connections, has ended by then.
        deadline = time.monotonic() + SETTLE_SECONDS
        while (growth := scene.size().growth(before)).beyond(MOST_GROWTH) and time.monotonic() < deadline:
            time.sleep(0.5)
        outcome.growth = growth
    seen = outcome.seen
    shrunk = [f"a count fell: {one}" for one in seen.shrunk]
    late = [f"{len(seen.late)} answers were late or missing, first {seen.late[0]}"] if seen.late else []
    silent = [] if seen.numbers else ["no number was answered"]
    outcome.faults += [*shrunk, *late, *silent, *(outcome.growth.beyond(MOST_GROWTH) if outcome.growth else [])]
    return outcome


def _timed(outcome: Outcome, step: Callable[[], None]) -> float | None:
    began = time.monotonic()
    try:
        step()
    except TimeoutError as error:
        outcome.faults.append(str(error))
        return None
    return time.monotonic() - began
