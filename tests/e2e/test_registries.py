"""Pods pulled out in real registries, on the real control plane: counts and their delay; no disturbance lowers one."""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeAdapter, MakeCompanion
from tests.e2e.kit import CALM, Load, condition, prometheus_settings, query_watermarks, wait_asked
from tests.e2e.registries import DISTURBANCES, KINDS, LACKS, Platform
from tests.registries.kit import TYPES

PODS, OUT = 10, 4
BUSY = 3
"""So many times as long a change may take beside five other workers; `test_contract.py` has the delay of each."""
RETURN_SECONDS = 60
SLOW_SERVER = "no answer within 0.5 s; and no watched count"
"""The answer while the API server of a busy machine does not give the live scale: no registry's fault."""
DOWN_ONLY = {**CALM, "scaleDown": {"selectPolicy": "Max", "tolerance": "0", "stabilizationWindowSeconds": 0}}
"""The HPA follows a wrong answer down at once. It does not follow the right one up, so that the pods stay these."""


class Scene:
    """Ten pods of a service in one registry: four are out, one (the probe) is idle, and five are busy.

    The right count is ten while the probe serves, and eleven when it is out: the busy ones alone are above the
    watermark. If all ten served, their average would be below the low watermark: who forgets the four scales down.
    """

    def __init__(self, workloads: Workloads, load: Load, adapter: AdapterProcess, registry: Platform) -> None:
        self._workloads, self._load, self._adapter, self.registry = workloads, load, adapter, registry
        self.name = registry.name

    def begin(self) -> None:
        work, name = self._workloads, self.name
        work.wait_ready(name, PODS)
        self.pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in work.pods(name)}
        *self.out, self.probe = list(self.pods)[: OUT + 1]
        self._load.each(name, 1.3, but=dict.fromkeys((*self.out, self.probe), 0.02))
        self.register()
        registered = {"name": name, "service": self.registry.service, "registrationGraceSeconds": 0}
        out = {"replaceAfterSeconds": 0, "minAgeSeconds": 0}
        work.policy(name, [query_watermarks("load", "1200m", "800m")], registry=registered, pulledOut=out)
        work.hpa(name, behavior=DOWN_ONLY)

    def register(self) -> None:
        self.registry.register(self.pods, *self.out)

    def change(self, seconds: float) -> None:
        """Pulls the probe out and puts it back, and waits for each changed answer."""
        for out in (True, False):
            self.registry.pull(self.probe, out=out)
            wait_asked(self._workloads, self.name, str(PODS + out), seconds)

    def suffer(self, disturbance: str) -> None:
        """The disturbance is logged once and a condition names it; the right counts are back within a minute."""
        cause, since = re.compile(self.registry.causes[disturbance]), self._adapter.component.log.stat()
        # A condition that stays False has another message with the next refresh: a wiped server is first a killed one.
        named = re.compile(f"{cause.pattern}|cannot be reached") if disturbance == "wiped" else cause
        with getattr(self.registry, disturbance)():
            until(lambda: self._logged(cause, since.st_size), 60, lambda: self._found(disturbance))
            until(lambda: named.search(self._condition("False")), 60, lambda: self._found(disturbance))
            assert len(found := self._logged(cause, since.st_size)) == 1, found
        began = time.monotonic()
        if disturbance in self.registry.loses:
            self.register()
        self.change(RETURN_SECONDS)
        until(lambda: self._condition("True"), RETURN_SECONDS, lambda: self._found(disturbance))
        assert time.monotonic() - began < RETURN_SECONDS

    def suffer_all(self) -> None:
        for disturbance in self.registry.causes:
            began = time.monotonic()
            self.suffer(disturbance)
            print(f"{self.name} {disturbance}: {time.monotonic() - began:.1f} s")

    def _logged(self, cause: re.Pattern[str], since: int) -> list[str]:
        """The lines of the adapter's log since then with this cause."""
        with self._adapter.component.log.open("rb") as log:
            log.seek(since)
            lines = [json.loads(line) for line in log.read().decode().splitlines() if line.startswith("{")]
        mine = [line for line in lines if line.get("registry") == self.name]
        return [text for line in mine if cause.search(text := f"{line['event']} {line.get('error', '')}")]

    def _condition(self, state: str) -> str:
        """The message of the condition while it has this state."""
        found = condition(self._workloads, "RegistryDataValid", self.name)
        return str(found["message"]) if found.get("status") == state else ""

    def _found(self, disturbance: str) -> str:
        said = condition(self._workloads, "RegistryDataValid", self.name)
        return f"{self.name} {disturbance}: {self._logged(re.compile(''), 0)[-5:]}, {said}"


@contextmanager
def never_below(workloads: Workloads, scenes: list[Scene]) -> Iterator[None]:
    """Asserts that meanwhile no answer is below the right count or an error of a registry, and that no HPA scales."""
    ended, wrong, since = threading.Event(), set[str](), workloads.cluster.hpa_log.mark()

    def watch() -> None:
        while not ended.wait(0.3):
            for scene in scenes:
                asked = workloads.asked(scene.name)
                if SLOW_SERVER not in asked and (not asked.isdecimal() or int(asked) < PODS):
                    wrong.add(f"{scene.name}: {asked}")

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
    assert not wrong
    for scene in scenes:
        assert workloads.rescaled(scene.name, since) == []
        assert len(workloads.syncs(scene.name, since)) >= 3 * len(scene.registry.causes)
        assert workloads.replicas(scene.name) == PODS


def test_every_type_of_registry_has_a_platform() -> None:
    assert {kind.type for kind in KINDS} == TYPES.keys()


def test_what_registries_cannot_suffer_is_said_with_the_reason() -> None:
    assert {(kind, one) for kind in KINDS for one in DISTURBANCES if one not in kind.causes} == LACKS.keys()


@pytest.mark.long
@pytest.mark.builds("consul", "polaris")
@pytest.mark.timeout(600)
def test_pull_outs_count_in_time_and_no_disturbance_of_a_registry_lowers_a_count(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    workloads: Workloads,
    load: Load,
    shared_prometheus: Prometheus,
    laws: Laws,
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        registries = []
        for kind in KINDS:
            (folder := tmp_path / kind.type).mkdir()
            registries.append(stack.enter_context(kind.run(folder)))
        entries = [registry.settings for registry in registries]
        settings = laws.over({**prometheus_settings(shared_prometheus), "registries": entries})
        adapter = make_adapter(settings, command=laws.run("serve"))
        make_companion(settings, command=laws.run("companion"))
        scenes = [Scene(workloads, load, adapter, registry) for registry in registries]
        for scene in scenes:
            workloads.deployment(scene.name, PODS, wait=False)
        for scene in scenes:
            scene.begin()
        for scene in scenes:
            wait_asked(workloads, scene.name, str(PODS))
            scene.change(BUSY * scene.registry.bound)
        # A server dies with the thread that starts it.
        with never_below(workloads, scenes), ThreadPoolExecutor(len(scenes)) as threads:
            ended = [threads.submit(scene.suffer_all) for scene in scenes]
            failed = [repr(failure) for each in ended if (failure := each.exception()) is not None]
            assert not failed, "\n".join(failed)
