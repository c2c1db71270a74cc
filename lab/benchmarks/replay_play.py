"""Plays a load on the real control plane for the closed-loop check, and keeps what its Prometheus recorded.

The load is stretches of load and pull-outs whose counts depend on no instant of a sync. Loads are in units of which one
pod carries at most HIGH and at least LOW before the count changes.
"""

import json
import random
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from lab.harness import objects
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.binaries import print_to_stderr
from lab.harness.client import ApiError, condition_true
from lab.harness.control_plane import ControlPlane
from lab.harness.hpa_log import logged_at
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads

HIGH, LOW = 100, 50
FIRST_LOAD, FIRST_COUNT = 401, 5
UP_SECONDS, DOWN_SECONDS = 9.0, 25.0
"""A ramp takes this long for each pod that it asks for or releases: each count is seen at several syncs."""
_LEAST, _MOST = 250, 2100
_RAMPS = (-200, -150, 200, 300, 400)
NAMESPACE, NAME = "replay-check", "web"
PULLED_OUT = "effective-load.io/pulled-out"
HPA_SYNC = 3.0
STILL_SECONDS = 25.0
"""The next stretch begins when the count has not changed for so long: longer than cooldown and stabilization."""
POLICY: dict[str, Any] = {
    "pulledOut": {"replaceAfterSeconds": 5},
    "velocity": {"scaleUpPercent": 100, "scaleDownPercent": 40},
    "cooldown": {"scaleDownSeconds": 12},
}
DOWN_WINDOW = 10
SETTLED_SECONDS = 6.0
"""Every pod has a sample by then, and the policy keeps the count."""
QUERY = {"name": "load", "server": "main", "query": "sum by (namespace, pod) (load)", "intervalSeconds": 1}


def settings(url: str) -> dict[str, Any]:
    """The settings of the adapter, and of the replay: they name the query."""
    queries = [{**QUERY, "maxAgeSeconds": 10}]
    return {"prometheus": {"servers": [{"name": "main", "url": url}], "queries": queries}}


@dataclass(frozen=True, slots=True)
class Stretch:
    """The load moves to `load` within `ramp` seconds (0: at once), and `pulled_out` pods are pulled out."""

    load: int
    ramp: float = 0.0
    pulled_out: int = 0


def stretches(seed: int) -> Iterator[Stretch]:
    """Endless stretches: jumps, ramps and pull-outs in random order, none that hides another."""
    source, load, pulled_out = random.Random(seed), FIRST_LOAD, 0
    while True:
        kind = source.choice(("jump", "jump", "ramp", "pull out"))
        if kind == "pull out":
            pulled_out = 0 if pulled_out else source.randint(1, max(1, load // HIGH // 3))
            yield Stretch(load, 0.0, pulled_out)
            continue
        change = source.choice(_RAMPS) if kind == "ramp" else source.randint(_LEAST, _MOST) - load
        wanted = min(max(load + change, _LEAST), _MOST) // 10 * 10 + 3  # at no whole number of pods
        ramp = (wanted - load) / HIGH * UP_SECONDS if wanted > load else (load - wanted) / LOW * DOWN_SECONDS
        yield Stretch(wanted, ramp if kind == "ramp" else 0.0, pulled_out)
        load = wanted


Record = dict[str, Any]


class Driver:
    """Shares the load equally among the pods that serve, as a load balancer does; pulled-out ones carry nothing."""

    def __init__(self, workloads: Workloads, exporter: Exporter) -> None:
        self._workloads, self._exporter = workloads, exporter
        self._out: list[str] = []
        self.count = FIRST_COUNT

    def pull_out(self, count: int) -> None:
        """Pulls out the oldest pods, or lets all serve again."""
        wanted = [pod["metadata"]["name"] for pod in self._pods()][:count]
        for name in {*wanted, *self._out}:
            self._annotate(name, "true" if name in wanted else None)
        self._out = wanted

    def share(self, load: float) -> None:
        """Gives each serving pod its share, in one step."""
        pods = self._pods()
        self.count = self._workloads.replicas(NAME)
        serving = [pod["metadata"]["name"] for pod in pods if condition_true(pod, "Ready")]
        serving = [name for name in serving if name not in self._out]
        loads = {name: load / len(serving) for name in serving} | dict.fromkeys(self._out, 0.0)
        self._exporter.pods("load", self._workloads.namespace, loads)

    def _pods(self) -> list[dict[str, Any]]:
        return [pod for pod in self._workloads.pods(NAME) if "deletionTimestamp" not in pod["metadata"]]

    def _annotate(self, pod: str, value: str | None) -> None:
        try:
            self._workloads.annotate(pod, {PULLED_OUT: value})
        except ApiError as error:
            if error.status != 404:  # deleted meanwhile
                raise


def play(seconds: float, folder: Path, seed: int) -> Record:
    """Plays for so long; leaves `record.json` and the data of Prometheus in the folder, and returns the record."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(hpa_sync=HPA_SYNC, metrics_server=False, announce=print_to_stderr))
        install_crds(cluster)
        exporter = stack.enter_context(Exporter())
        prometheus = Prometheus([exporter], announce=print_to_stderr)
        adapter = AdapterProcess(cluster, settings(prometheus.url), kubeconfig=account_kubeconfig(cluster))
        scrape(prometheus, exporter, adapter)
        stack.enter_context(prometheus)
        stack.enter_context(adapter)
        cluster.client.create(objects.namespace(NAMESPACE))
        cluster.client.wait_for(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", timeout=30)
        until = time.time() + seconds
        record = play_on(
            Workloads(cluster, NAMESPACE), exporter, takewhile(lambda _: time.time() < until, stretches(seed))
        )
        prometheus.pause()
        shutil.copytree(prometheus.folder / "data", folder / "prometheus", dirs_exist_ok=True)
    (folder / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def scrape(prometheus: Prometheus, exporter: Exporter, adapter: AdapterProcess) -> None:
    """Has a Prometheus that is yet to start scrape the pods and the adapter."""
    targets = [{"targets": [exporter.address, f"127.0.0.1:{adapter.metrics_port}"]}]
    prometheus.config["scrape_configs"] = [{"job_name": "check", "static_configs": targets}]


def play_on(
    workloads: Workloads, exporter: Exporter, played: Iterable[Stretch], still: float = STILL_SECONDS
) -> Record:
    """Plays these stretches in a namespace without workloads. `still`: the time that the count must hold (seconds)."""
    workloads.deployment(NAME, FIRST_COUNT)
    driver = Driver(workloads, exporter)
    driver.share(FIRST_LOAD)
    metric = {"name": "load", "query": {"name": "load"}, "highWatermark": str(HIGH), "lowWatermark": str(LOW)}
    policy = workloads.policy(NAME, [metric], **POLICY)
    hpa = workloads.hpa(NAME, down_window=DOWN_WINDOW, minimum=2)
    workloads.wait_condition(NAME, "ScalingActive")
    _settle(driver, FIRST_LOAD, SETTLED_SECONDS)
    began = time.time()
    moments = [*_stretches(driver, played, still)]
    ended = time.time()
    syncs = [(logged_at(sync.line) or 0.0, sync) for sync in workloads.syncs(NAME)]
    inside = [(at, sync) for at, sync in syncs if began <= at <= ended]
    return {
        "namespace": workloads.namespace,
        "name": NAME,
        "began": began,
        "ended": ended,
        "firstSync": min(at for at, _ in inside),
        "syncSeconds": HPA_SYNC,
        "syncs": len(inside),
        "replicas": FIRST_COUNT,
        "changes": [{"at": at, "replicas": sync.desired} for at, sync in inside if sync.outcome == "rescaled"],
        "failed": sum(sync.outcome == "failed" for _, sync in inside),
        "stretches": moments,
        "policy": policy,
        "hpa": hpa,
    }


def _stretches(driver: Driver, played: Iterable[Stretch], still: float) -> Iterator[Record]:
    load = FIRST_LOAD
    for stretch in played:
        at = time.time()
        driver.pull_out(stretch.pulled_out)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < stretch.ramp:
            driver.share(load + (stretch.load - load) * passed / stretch.ramp)
            time.sleep(0.2)
        _settle(driver, stretch.load, still)
        load = stretch.load
        print_to_stderr(f"{time.time() - at:5.1f} s: {stretch}: {driver.count} replicas")
        yield {"at": at, "load": stretch.load, "ramp": stretch.ramp, "pulledOut": stretch.pulled_out}


def _settle(driver: Driver, load: int, still: float) -> None:
    since, count = time.monotonic(), driver.count
    while time.monotonic() - since < still:
        driver.share(load)
        if driver.count != count:
            since, count = time.monotonic(), driver.count
        time.sleep(0.2)
