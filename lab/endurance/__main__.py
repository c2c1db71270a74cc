"""`python -m lab.endurance`: an hour on the real control plane; exit status 1 where memory or anything else grows."""

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lab.endurance.scene import LongScene
from lab.faults.scenarios import SCENARIOS, Scenario
from lab.harness import binaries

WARM_UP = 20.0
"""Minutes. A pod that went is remembered for 15, which is longest, and the next full collection comes within 5."""
SAMPLE_SECONDS, CHURN_SECONDS, DISTURB_SECONDS = 30.0, 6.0, 25.0
LAST_SECONDS = 60.0
"""Of a run without a disturbance, so that everything can be right again at its end."""
BOUNDS = {
    "memory": (0.05, 0),
    "blocks": (0.05, 0),
    "tasks": (0, 2),
    "sockets": (0, 2),
    "threads": (0, 3),
    "log": (0.2, 500),
}
"""How much a quantity may grow after the warm-up: a share of its median plus a number. `log` is in bytes a minute. 5 %
of 80 MiB in 40 minutes is a leak of 1.7 KB a second. Tasks, sockets and threads come and go with connections that are
open at a time, and a pool of threads for files grows to six.
"""
Series = Sequence[tuple[float, float]]
"""Minutes since the begin, and a figure."""


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
    yield
    scene.take_back()


@contextmanager
def _guest(scene: LongScene) -> Iterator[None]:
    name = scene.invite()
    yield
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
    _FAULTS["leader-frozen"],
    _GUEST,
    _FAULTS["requests-delayed"],
    _FAULTS["settings-broken"],
    _FAULTS["prometheus-frozen"],
    replace(_FAULTS["etcd-paused"], hold=5),
)
"""One begins every 25 s or so. Tokens live ten minutes and are read every five: three times a cycle is often enough."""


class LongRun:
    """Runs on a scene for so many minutes. `series`: by process and quantity; `faults`: what went wrong, in words."""

    def __init__(self, scene: LongScene, minutes: float) -> None:
        self.series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self.faults: list[str] = []
        self._scene, self._minutes = scene, minutes
        self._ended = threading.Event()
        self._began = time.monotonic()

    @property
    def _minute(self) -> float:
        return (time.monotonic() - self._began) / 60

    def run(self) -> None:
        beside = [threading.Thread(target=self._held, args=(one,), daemon=True) for one in (self._churn, self._sample)]
        for thread in beside:
            thread.start()
        # The kernel ends a process with the thread that started it; disturbances start servers, so they run here.
        for disturbance in itertools.cycle(CYCLE):
            if self._minute >= self._minutes - LAST_SECONDS / 60:
                break
            began = time.monotonic()
            print(f"{self._minute:6.2f} {disturbance.name}", flush=True)
            try:
                with disturbance.broken(self._scene):
                    time.sleep(disturbance.hold)
            except Exception as error:  # noqa: BLE001 - the run goes on; what the next one needs may be broken
                print(f"       {type(error).__name__}: {error}"[:300], flush=True)
            self._ended.wait(max(0.0, began + DISTURB_SECONDS - time.monotonic()))
        self._ended.wait(max(0.0, self._began + 60 * self._minutes - time.monotonic()))
        self._ended.set()
        for thread in beside:
            thread.join(60)
        self.faults += [f"{name} ended" for name, (process, _) in self._scene.processes.items() if not process.running]
        try:
            self._scene.until_right(60)
        except TimeoutError as error:
            self.faults.append(f"at the end: {error}")

    def _held(self, beside: Callable[[], None]) -> None:
        """Runs what goes on beside the disturbances; a run in which it ended too soon has failed."""
        try:
            beside()
        except Exception as error:  # noqa: BLE001 - any
            self.faults.append(f"{beside.__name__.strip('_')} ended: {type(error).__name__}: {error}"[:300])

    def _churn(self) -> None:
        while not self._ended.wait(CHURN_SECONDS):
            self._scene.replace_pod()

    def _sample(self) -> None:
        before: dict[str, tuple[float, float]] = {}
        while not self._ended.wait(SAMPLE_SECONDS):
            minute, figures = self._minute, self._scene.figures()
            print(f"{minute:6.2f} {figures}", flush=True)
            for name, one in figures.items():
                at, size = before.get(name, (minute, 0.0))
                before[name] = minute, one["log"]
                one["log"] = (one["log"] - size) / (minute - at) if minute > at else 0.0
                for quantity, value in one.items() if minute > at else ():
                    self.series[name, quantity].append((minute, value))


def growth(series: Series) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen), over the whole time."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(series, 2) if b[0] != a[0]]
    return statistics.median(slopes) * (series[-1][0] - series[0][0])


def judge(process: str, quantity: str, series: Series) -> bool:
    """Prints a line about a quantity after the warm-up; whether it is flat."""
    median = statistics.median(value for _, value in series)
    share, more = BOUNDS[quantity]
    trend, bound = growth(series), share * median + more
    verdict = "flat   " if trend <= bound else "GROWS  "
    print(f"{verdict}{process:12} {quantity:8} median {median:,.1f}, trend {trend:+,.2f}, at most {bound:,.2f}")
    return trend <= bound


def together(series: Sequence[Series]) -> Series:
    """The sums of several series, figure by figure, at the minutes of the first."""
    return [(rows[0][0], sum(value for _, value in rows)) for rows in zip(*series, strict=False)]


def main() -> int:
    """Runs, and prints a line for each quantity of each process."""
    parser = argparse.ArgumentParser(prog="python -m lab.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="default: %(default)g")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP, help="minutes that do not count (default: %(default)g)"
    )
    options = parser.parse_args()
    if (options.minutes - options.warm_up) * 60 < 12 * SAMPLE_SECONDS:
        parser.error(f"after the warm-up there must be {12 * SAMPLE_SECONDS / 60:g} minutes for a verdict")
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    with LongScene() as scene:
        run = LongRun(scene, options.minutes)
        run.run()
    after = {key: [one for one in rows if one[0] >= options.warm_up] for key, rows in run.series.items()}
    flat = []
    for quantity in BOUNDS:
        flat.append(judge("adapter", quantity, after["adapter", quantity]))
        # The one that leads has more tasks and connections than the other; which one leads changes.
        companions = [rows for (name, of), rows in after.items() if of == quantity and name != "adapter"]
        flat.append(judge("companions", quantity, together(companions)))
    for fault in run.faults:
        print(f"FAILED  {fault}")
    return 0 if all(flat) and not run.faults else 1


if __name__ == "__main__":
    sys.exit(main())
