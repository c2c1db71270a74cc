"""The long run itself: what goes on beside the disturbances, and what is recorded."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.endurance.disturbances import CYCLE, disturb
from lab.endurance.scene import LongScene

SAMPLE_SECONDS = 30.0
CHURN_SECONDS = 6.0
ASK_SECONDS = 0.25
DISTURB_SECONDS = 25.0
LAST_SECONDS = 60.0
"""Of a run without a disturbance, so that everything can be right again at its end."""


@dataclass
class Recorded:
    """What came of a run."""

    series: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Of each process: `minute` and its figures, `log` in bytes a minute since the row before."""
    disturbances: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    """`minute`, and of each process how many tasks run which coroutine: what names a leak of tasks."""
    pods_replaced: int = 0
    numbers: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list)
    """What must not be at the end, in words."""


def per_minute(before: Mapping[str, float], now: Mapping[str, float], key: str) -> float:
    """The rate of a total between two rows."""
    return round((now[key] - before[key]) / (now["minute"] - before["minute"]), 1)


class LongRun:
    """Runs on a scene for so many minutes; `tell` gets a line for each disturbance and each row of figures."""

    def __init__(self, scene: LongScene, minutes: float, tell: Callable[[str], None]) -> None:
        self._scene, self._minutes, self._tell = scene, minutes, tell
        self._ended = threading.Event()
        self._recorded = Recorded()
        self._began = 0.0

    def run(self) -> Recorded:
        self._began = time.monotonic()
        beside = [
            threading.Thread(target=self._held, args=(one,), daemon=True)
            for one in (self._churn, self._ask, self._sample)
        ]
        for thread in beside:
            thread.start()
        try:
            self._disturb()
        finally:
            self._ended.wait(max(0.0, self._began + 60 * self._minutes - time.monotonic()))
            self._ended.set()
            for thread in beside:
                thread.join(60)
        self._recorded.faults += self._not_right()
        return self._recorded

    def _held(self, beside: Callable[[], None]) -> None:
        """Runs what goes on beside the disturbances; a run in which it ended too soon has failed."""
        try:
            beside()
        except Exception as error:  # noqa: BLE001 - any
            self._recorded.faults.append(f"{beside.__name__.strip('_')} ended: {type(error).__name__}: {error}"[:300])

    @property
    def _minute(self) -> float:
        return round((time.monotonic() - self._began) / 60, 4)

    def _disturb(self) -> None:
        # The kernel ends a process with the thread that started it; disturbances start servers, so they run here.
        number = 0
        while self._minute < self._minutes - LAST_SECONDS / 60:
            one, began = CYCLE[number % len(CYCLE)], time.monotonic()
            minute, fault = self._minute, disturb(self._scene, one)
            self._recorded.disturbances.append(
                {"minute": minute, "name": one.name, **({"fault": fault} if fault else {})}
            )
            self._tell(f"{minute:6.2f} {one.name}{': ' + fault if fault else ''}")
            number += 1
            self._ended.wait(max(0.0, began + DISTURB_SECONDS - time.monotonic()))

    def _churn(self) -> None:
        while not self._ended.wait(CHURN_SECONDS):
            self._recorded.pods_replaced += bool(self._scene.replace_pod())

    def _ask(self) -> None:
        services = list(self._scene.services)
        number = 0
        while not self._ended.wait(ASK_SECONDS):
            answered = self._scene.answered(services[number % len(services)])
            number += 1
            self._recorded.numbers += answered
            self._recorded.errors += not answered

    def _sample(self) -> None:
        before = {name: {"minute": self._minute, **one} for name, one in self._scene.figures().items()}
        due = time.monotonic() + SAMPLE_SECONDS
        while not self._ended.wait(max(SAMPLE_SECONDS / 2, due - time.monotonic())):
            due += SAMPLE_SECONDS
            now = {name: {"minute": self._minute, **one} for name, one in self._scene.figures().items()}
            for name in now.keys() & before.keys():
                rate = per_minute(before[name], now[name], "log")
                self._recorded.series.setdefault(name, []).append({**now[name], "log": rate})
            self._tell(f"{self._minute:6.2f} {now}")
            self._recorded.tasks.append({"minute": self._minute, **self._scene.kinds_of_tasks()})
            before |= now

    def _not_right(self) -> list[str]:
        ended = [name for name, (one, _) in self._scene.processes.items() if not one.running]
        faults = [f"{name} ended" for name in ended]
        try:
            self._scene.until_right(60)
        except TimeoutError as error:
            faults.append(f"at the end: {error}")
        return faults
