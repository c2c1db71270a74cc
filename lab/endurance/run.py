"""The long run: a cycle of disturbances, most of them those of `faults`, what goes on beside, and what is recorded."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from lab.endurance.scene import LongScene
from lab.faults.scenarios import SCENARIOS, Scenario

SAMPLE_SECONDS = 30.0
CHURN_SECONDS = 6.0
ASK_SECONDS = 0.25
DISTURB_SECONDS = 25.0
LAST_SECONDS = 60.0
"""Of a run without a disturbance, so that everything can be right again at its end."""


@contextmanager
def _tokens_renewed(scene: LongScene) -> Iterator[None]:
    scene.renew_tokens()
    yield


@contextmanager
def _registry_token_renewed(scene: LongScene) -> Iterator[None]:
    scene.renew_registry_token()
    yield


@contextmanager
def _pods_pulled_out(scene: LongScene) -> Iterator[None]:
    scene.pull_out()
    try:
        yield
    finally:
        scene.take_back()


@contextmanager
def _guest(scene: LongScene) -> Iterator[None]:
    name = scene.invite()
    try:
        yield
    finally:
        scene.dismiss(name)


@contextmanager
def _rollout(scene: LongScene) -> Iterator[None]:
    for name in list(scene.services)[::4]:
        scene.workloads.rollout(name)
    yield


_FAULTS = {scenario.name: scenario for scenario in SCENARIOS}
_TOKENS = Scenario("tokens-renewed", "new tokens of ten minutes", _tokens_renewed, hold=0)
_REGISTRY_TOKEN = Scenario("registry-token-renewed", "the former one is deleted", _registry_token_renewed, hold=0)
_GUEST = Scenario("guest-service", "a service with policy and HPA comes and goes", _guest, hold=20)
CYCLE: tuple[Scenario, ...] = (
    _TOKENS,
    _FAULTS["connections-cut"],
    _GUEST,
    _FAULTS["prometheus-gone"],
    Scenario("pods-pulled-out", "two pods of each service in maintenance", _pods_pulled_out, hold=20),
    replace(_FAULTS["certificate-rotated"], hold=0),
    _TOKENS,
    replace(_FAULTS["api-server-restarted"], hold=2),
    _REGISTRY_TOKEN,
    _FAULTS["consul-restarted"],
    _FAULTS["metrics-server-gone"],
    Scenario("rollout", "of every fourth service", _rollout, hold=10),
    _TOKENS,
    _FAULTS["front-proxy-rotated"],
    _FAULTS["connections-cut"],
    _FAULTS["leader-frozen"],
    _GUEST,
    _FAULTS["requests-delayed"],
    _FAULTS["settings-broken"],
    _FAULTS["prometheus-frozen"],
    replace(_FAULTS["etcd-paused"], hold=5),
)
"""One begins every 25 s or so. Tokens live ten minutes and are read every five: three times a cycle is often enough."""


def disturb(scene: LongScene, disturbance: Scenario) -> str:
    """Plays one; what went wrong in words, or nothing."""
    try:
        with disturbance.broken(scene):
            time.sleep(disturbance.hold)
    except Exception as error:  # noqa: BLE001 - the run goes on, and its record says so
        return f"{type(error).__name__}: {error}"[:300]
    return ""


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
        for disturbance in itertools.cycle(CYCLE):
            if self._minute >= self._minutes - LAST_SECONDS / 60:
                break
            minute, began = self._minute, time.monotonic()
            fault = disturb(self._scene, disturbance)
            row = {"minute": minute, "name": disturbance.name, **({"fault": fault} if fault else {})}
            self._recorded.disturbances.append(row)
            self._tell(f"{minute:6.2f} {disturbance.name}{': ' + fault if fault else ''}")
            self._ended.wait(max(0.0, began + DISTURB_SECONDS - time.monotonic()))

    def _churn(self) -> None:
        while not self._ended.wait(CHURN_SECONDS):
            self._recorded.pods_replaced += bool(self._scene.replace_pod())

    def _ask(self) -> None:
        for service in itertools.cycle(self._scene.services):
            if self._ended.wait(ASK_SECONDS):
                break
            answered = self._scene.answered(service)
            self._recorded.numbers += answered
            self._recorded.errors += not answered

    def _figures(self) -> dict[str, dict[str, float]]:
        return {name: {"minute": self._minute, **figures} for name, figures in self._scene.figures().items()}

    def _sample(self) -> None:
        before = self._figures()
        due = time.monotonic() + SAMPLE_SECONDS
        while not self._ended.wait(max(SAMPLE_SECONDS / 2, due - time.monotonic())):
            due += SAMPLE_SECONDS
            now = self._figures()
            for name in now.keys() & before.keys():
                rate = per_minute(before[name], now[name], "log")
                self._recorded.series.setdefault(name, []).append({**now[name], "log": rate})
            self._tell(f"{self._minute:6.2f} {now}")
            self._recorded.tasks.append({"minute": self._minute, **self._scene.kinds_of_tasks()})
            before |= now

    def _not_right(self) -> list[str]:
        faults = [f"{name} ended" for name, (process, _) in self._scene.processes.items() if not process.running]
        try:
            self._scene.until_right(60)
        except TimeoutError as error:
            faults.append(f"at the end: {error}")
        return faults
