"""Pods pulled out in real registries, on the real control plane: the counts, their delay, and that a failing registry
changes nothing.
"""

import contextlib
import functools
import time

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import CALM, Load, prometheus_settings, query_watermarks
from tests.e2e.registries import Platform, platform

PODS = 10
NAMES = ("consul", "zookeeper", "polaris", "eureka", "nacos")
FAILING = ("consul", "zookeeper", "polaris")
BUSY = 3
"""So many times as long a change may take beside five other workers; `test_contract.py` has the delay of each."""
OUTAGE_SECONDS = 10
AFTERWARDS_SECONDS = 8
FREE = {way: {"selectPolicy": "Max", "tolerance": "0", "stabilizationWindowSeconds": 0} for way in CALM}


class Scene:
    """Ten pods of a service in one registry, one of them nearly idle; the other nine alone are just above the
    watermark, all ten below it. So the count is ten while it serves, and eleven when it is pulled out.
    """

    def __init__(self, workloads: Workloads, load: Load, name: str, registry: Platform) -> None:
        self._workloads, self._load, self.name, self.registry = workloads, load, name, registry
        self.service = f"shop.{name}"

    def begin(self) -> None:
        work, name = self._workloads, self.name
        work.wait_ready(name, PODS)
        pods = work.pods(name)
        self.registry.register(self.service, {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods})
        self.idle = pods[0]["metadata"]["name"]
        self._load.each(name, 1.3, but={self.idle: 0.02})
        work.policy(
            name,
            [query_watermarks("load", "1200m", "400m")],
            registry={"name": self.registry.settings["name"], "service": self.service},
            pulledOut={"replaceAfterSeconds": 0, "minAgeSeconds": 0},
        )
        work.hpa(name, behavior=CALM)

    def scale(self) -> None:
        """Its HPA acts from now on."""
        self._workloads.client.patch(self._workloads.hpa_path(self.name), {"spec": {"behavior": FREE}})

    def change(self, *, out: bool) -> None:
        """Pulls the idle pod out or puts it back, and waits for the changed answer."""
        self.registry.pull(self.service, self.idle, out=out)
        self.wait_asked(PODS + 1 if out else PODS, BUSY * self.registry.bound)

    def wait_asked(self, count: int, seconds: float = 60) -> None:
        asked = functools.partial(self._workloads.asked, self.name)
        until(lambda: asked() == str(count), seconds, lambda: f"{self.name} is answered {asked()}", 0.1)


@pytest.mark.long
@pytest.mark.builds("consul", "polaris")
@pytest.mark.timeout(600)
def test_pull_outs_count_in_time_and_an_outage_changes_no_count(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, shared_prometheus: Prometheus
) -> None:
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(platform(name)) for name in NAMES}
        settings = {**prometheus_settings(shared_prometheus), "registries": [one.settings for one in found.values()]}
        adapter = make_adapter(settings)
        scenes = {name: Scene(workloads, load, name, registry) for name, registry in found.items()}
        for name in scenes:
            workloads.deployment(name, PODS, wait=False)
        for scene in scenes.values():
            scene.begin()
        for scene in scenes.values():
            scene.wait_asked(PODS)
            scene.change(out=True)
            scene.change(out=False)
        failing = [scenes[name] for name in FAILING]
        for scene in failing:
            scene.change(out=True)
            scene.scale()
        for scene in failing:
            workloads.wait_replicas(scene.name, PODS + 1)
            scene.registry.kill()
        hold_all(workloads, failing, OUTAGE_SECONDS)
        for scene in failing:
            [address] = scene.registry.settings["servers"]
            assert logged(adapter, "registry_failed", scene.name, address)
            scene.registry.resume(wiped=True)
        hold_all(workloads, failing, AFTERWARDS_SECONDS)


def logged(adapter: AdapterProcess, *words: str) -> list[str]:
    """The lines of the adapter's log with all of these words."""
    return [line for line in adapter.logs(5000).splitlines() if all(word in line for word in words)]


def hold_all(workloads: Workloads, scenes: list[Scene], seconds: float) -> None:
    """Asserts that no count changes for `seconds` while the HPAs keep syncing."""
    until_then = time.monotonic() + seconds
    before = {scene.name: len(workloads.syncs(scene.name)) for scene in scenes}
    while time.monotonic() < until_then:
        counts = {scene.name: workloads.replicas(scene.name) for scene in scenes}
        assert counts == dict.fromkeys(counts, PODS + 1)
        time.sleep(0.2)
    for scene in scenes:
        assert len(workloads.syncs(scene.name)) >= before[scene.name] + 3
