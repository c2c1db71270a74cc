"""Scale on the real API server: three registries, churn, requests beside the constant server's, relists."""

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from lab.benchmarks import scene
from lab.benchmarks.churn import Churn
from lab.benchmarks.measure import Load, Measured
from lab.benchmarks.probed import Probed
from lab.benchmarks.processes import cpu_seconds, memory, share_of_processor
from lab.benchmarks.registered import Registries
from lab.benchmarks.stage import Moments, Stage
from lab.harness.binaries import print_to_stderr

CHURN_PER_MINUTE = 0.05
SYNC_SECONDS = 15.0
"""How often the stock controller asks for each policy."""
_RELIST_SECONDS = 60.0
_AGE = "effective_load_policy_decision_age_seconds{"


class Cluster:
    """The stage with registries."""

    def __init__(self, policies: int, pods: int, namespaces: int, python: str) -> None:
        self._counts = {"policies": policies, "pods": pods, "namespaces": namespaces}
        self._python = python

    @contextlib.contextmanager
    def _stage(self, *, registered: bool) -> Iterator[tuple[Stage, Registries | None, Probed]]:
        services = scene.services(**self._counts)
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            registries = stack.enter_context(Registries(services)) if registered else None
            print_to_stderr(f"registries filled after {time.monotonic() - began:.0f} s")
            policy = registries.policy if registries else scene.policy
            settings = {"registries": registries.settings} if registries else None
            stage = stack.enter_context(
                Stage(**self._counts, python=self._python, announce=print_to_stderr, policy=policy, settings=settings)
            )
            probed = Probed.of(stage.adapter.component, stage.cluster.folder)
            print_to_stderr(f"ready after {time.monotonic() - began:.0f} s")
            yield stage, registries, probed

    def run(self, seconds: float, part: str) -> Iterator[dict[str, Any]]:
        """`steady` (start, rest, churn), `relists` (without registries), or both, one on each stage.

        Requests go to the constant server as well.
        """
        if part != "relists":
            with self._stage(registered=True) as (stage, registries, probed):
                for figures in self._steady(stage, registries, probed, seconds):
                    yield {"steady": {"scene": self._counts, **figures, "mib": memory(stage.pid)}}
        if part != "steady":
            with self._stage(registered=False) as (stage, _, probed):
                _started(stage)
                for figures in _relists(stage, probed):
                    yield {"relists": {"scene": self._counts, **figures, "mib": memory(stage.pid)}}

    def _steady(
        self, stage: Stage, registries: Registries | None, probed: Probed, seconds: float
    ) -> Iterator[dict[str, Any]]:
        """The figures so far: at rest, then with churn."""
        figures: dict[str, Any] = {"start": _started(stage), "rest": _phase(stage, probed, seconds)}
        yield figures
        per_second = self._counts["pods"] * CHURN_PER_MINUTE / 60
        with Churn(stage.services, stage.cluster.layout.port("etcd"), registries, per_second) as churn:
            time.sleep(8)
            figures["churn"] = _phase(stage, probed, seconds)
            figures["churn"]["replaced"] = churn.replaced
        yield figures


def _started(stage: Stage) -> dict[str, float]:
    """Starts the adapter; the seconds and processor time until its first correct answer."""
    seconds = stage.first_answer(180)
    cpu = cpu_seconds(stage.pid)
    time.sleep(5)  # then every path once, which fills the cache of access reviews
    plan = stage.plan("effective_cpu", seconds=len(stage.services) / 250, rate=250)
    Load(replace(plan, tolerant=True), stage.pid).finish()
    time.sleep(5)
    return {"seconds": round(seconds, 2), "cpu_seconds": cpu}


def _relists(stage: Stage, probed: Probed) -> Iterator[dict[str, Any]]:
    """Full relists: nothing changed, then every pod changed as well."""
    share = share_of_processor(stage.pid, 15)
    figures: dict[str, Any] = {"rest_cpu_share": share}
    for name, changed in (("relist", False), ("relist_changed", True)):
        figures[name] = _relist(stage, probed, share, changed=changed)
        yield figures


def _phase(stage: Stage, probed: Probed, seconds: float) -> dict[str, Any]:
    """Processor time and memory without requests; the event loop; latencies beside the constant server's; ages."""
    figures: dict[str, Any] = {"cpu_share": share_of_processor(stage.pid, seconds), "mib": memory(stage.pid)["now"]}
    figures["loop"] = probed.timed(lambda: time.sleep(seconds / 2))
    loads = _loads(stage, seconds / 2)
    figures["requests"] = _latencies({metric: load.finish() for metric, load in loads.items()})
    figures["decision_age_seconds"] = _ages(stage)
    return figures


def _loads(stage: Stage, seconds: float) -> dict[str, Load]:
    """The stock controller's rate to both servers at the same time."""
    rate = len(stage.services) / SYNC_SECONDS
    pids = {"effective_cpu": stage.pid, "": stage.constant.pid or 0}
    plans = {metric: stage.plan(metric, seconds=seconds, rate=rate) for metric in pids}
    return {metric: Load(replace(plan, tolerant=True), pids[metric]) for metric, plan in plans.items()}


def _latencies(done: dict[str, Measured]) -> dict[str, Any]:
    figures: dict[str, Any] = {metric or "constant": one.trace.summary for metric, one in done.items()}
    figures["p99_beyond_ms"] = round(figures["effective_cpu"]["p99_ms"] - figures["constant"]["p99_ms"], 3)
    figures["refused"] = sum(one.refused for one in done.values())
    return figures


def _ages(stage: Stage) -> dict[str, float]:
    """The age of each policy's decision, looked at three times."""
    ages: list[float] = []
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", stage.adapter.metrics_port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        ages += [float(line.rpartition(" ")[2]) for line in lines if line.startswith(_AGE)]
        time.sleep(3)
    ages.sort()
    return {"p50": round(ages[len(ages) // 2], 2), "p99": round(ages[int(len(ages) * 0.99)], 2), "max": ages[-1]}


def _relist(stage: Stage, probed: Probed, rest: float, *, changed: bool) -> dict[str, Any]:
    """The adapter is led to another API server that does not know its resource versions."""

    def measured(roll: Callable[[], Moments | None]) -> dict[str, Any]:
        loads = _loads(stage, _RELIST_SECONDS / 3)
        time.sleep(1)
        moments: list[Moments | None] = []
        before = cpu_seconds(stage.pid)
        loop = probed.timed(lambda: moments.append(roll()))
        cpu = cpu_seconds(stage.pid) - before
        done = {metric: load.finish() for metric, load in loads.items()}
        began, ended = moments[0] or (0.0, 0.0)
        within = {metric: replace(one, trace=one.trace.within(began, ended + 0.5)) for metric, one in done.items()}
        seconds = ended + 0.5 - began
        figures = {"seconds": round(seconds, 2), "cpu_seconds": round(cpu - rest * seconds, 2), "loop": loop}
        return {**figures, "requests": _latencies(within), "mib": memory(stage.pid)}

    return stage.relist(measured, changed=changed, patience=_RELIST_SECONDS)
