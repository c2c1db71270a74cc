"""Faults in random order for half an hour on one scene: `make chaos` (CHAOS_ARGS="--seed 7 --minutes 60").

Whatever order they come in: no count falls below what the load needs, each request is answered within a second, each
decision that is served is what its document decides again, and the process does not grow.
"""

import itertools
import json
import os
import random
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from adapter.commands.decide import reader
from lab.chaos.run import Outcome, play
from lab.chaos.scenarios import SCENARIOS, Scenario, may_run
from lab.chaos.scene import SERVICES, Scene

pytestmark = [pytest.mark.builds("consul", "prometheus"), pytest.mark.timeout(0)]
ENDS_THE_ADAPTER = {"adapter-killed", "adapter-restarted"}
"""They come in the first third; after it one process lives to the end, which must not grow."""
GROWTH = {"memory": (0.05, 0.0), "blocks": (0.05, 0.0), "tasks": (0.0, 2.0), "sockets": (0.0, 2.0)}
"""How much a quantity may grow in the last two thirds: a share of its median, plus a number. 5 % of 80 MiB in 40
minutes is a leak of 1.7 KB a second. Tasks and sockets come and go with connections. Blocks
rise by a tenth until all garbage is collected, each five to eight minutes: of that, a median of slopes shows little."""
ANSWER = ("current", "desiredReplicas", "served", "error", "heldBy", "lowerBound", "upperBound")


def test_faults_in_random_order_shrink_nothing_and_nothing_grows(seed: int, minutes: float) -> None:
    order = random.Random(seed)
    rows = [scenario for scenario in SCENARIOS if may_run(scenario)]
    began = time.monotonic()
    with Scene(seed) as scene, Beside(scene) as beside:
        played = failed = 0
        while (share := (time.monotonic() - began) / (60 * minutes)) < 1:
            scenario = order.choice([one for one in rows if share < 1 / 3 or one.name not in ENDS_THE_ADAPTER])
            outcome = played_scenario(scene, scenario)
            print(f"{share * minutes:6.1f}  {outcome.line()}", flush=True)
            played, failed = played + 1, failed + bool(outcome.faults)
    grown = beside.grown(began + 20 * minutes)
    documents = f"{beside.documents} documents, {len(beside.different)} decided otherwise"
    print(f"seed {seed}: {played} faults, {failed} failed; {documents}; {len(grown)} quantities grew")
    for line in (*beside.different[:5], *grown):
        print(line)
    assert (failed, beside.different, grown, beside.documents > 0) == (0, [], [], True)


def played_scenario(scene: Scene, scenario: Scenario) -> Outcome:
    """A fault whose own steps time out is a failed one, and the next begins."""
    try:
        return play(scene, scenario)
    except TimeoutError as error:
        return Outcome(scenario, [str(error)])


class Beside:
    """What goes on beside the faults: each decision's document is decided again, and the adapter is measured."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.documents = 0
        self.different: list[str] = []
        self._figures: list[tuple[float, dict[str, float]]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._decide, self._measure)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10)

    def _decide(self) -> None:
        for service in itertools.cycle(SERVICES):
            if self._ended.wait(0.25):
                return
            try:
                answer = self._scene.ask(service, "decision")
            except OSError:  # the adapter may be what is broken
                continue
            if answer.status == 200:
                found = answer.json()
                again = reader.decision_json(reader.read_document(json.dumps(found["document"])))
                self.documents += 1
                self.different += [
                    f"{service}: {key}: the server said {found['decision'][key]}, its document says {again[key]}"
                    for key in ANSWER
                    if again[key] != found["decision"][key]
                ]

    def _measure(self) -> None:
        while not self._ended.wait(5):
            try:
                self._figures.append((time.monotonic(), used(self._scene)))
            except (OSError, ValueError):  # the process is not there now
                continue

    def grown(self, since: float) -> list[str]:
        """A line for each quantity that grew since then."""
        lines = []
        for quantity, (share, more) in GROWTH.items():
            series = [(at, figures[quantity]) for at, figures in self._figures if at >= since]
            median = statistics.median(value for _, value in series)
            if (trend := growth(series[:: len(series) // 200 + 1])) > share * median + more:
                lines.append(f"{quantity} grows by {trend:.1f}, median {median:.1f}")
        return lines


def used(scene: Scene) -> dict[str, float]:
    """Resident memory (MiB), memory blocks of Python, tasks and sockets of the adapter."""
    pid = scene.adapter.component.pid or 0
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if os.path.lexists(link)]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "memory": int(status["VmRSS"].split()[0]) / 1024,
        "sockets": sum(link.startswith("socket:") for link in links),
        "tasks": int((scene.shim / "tasks").read_text()),
        "blocks": int((scene.shim / "blocks").read_text()),
    }


def growth(series: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen), over the whole time."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(series, 2) if b[0] != a[0]]
    return statistics.median(slopes) * (series[-1][0] - series[0][0])
