"""Twelve policies over three kinds, three sources and two registries, all real: a failure of one input changes only
the answers of the policies that use it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, cpu_watermarks, until
from tests.e2e.conftest import Laws, MakeAdapter
from tests.e2e.kit import query_watermarks
from tests.e2e.registries import Platform, platform
from tests.e2e.test_blast_radius import CALM, Kind

pytestmark = [pytest.mark.timeout(900), pytest.mark.builds("consul", "polaris")]

PODS = 3
ASKED = "5"
"""The count of three pods at 140 with a high watermark of 100; with one pod pulled out it is 4."""
CAUSES = {"cpu": "metrics.k8s.io", "one": "query one", "two": "query two"}


class Service(NamedTuple):
    """A policy and its inputs."""

    name: str
    kind: str
    source: str
    registry: str = ""


SERVICES = (
    Service("d0", "Deployment", "cpu"),
    Service("d1", "Deployment", "one", "consul"),
    Service("d2", "Deployment", "two", "polaris"),
    Service("d3", "Deployment", "cpu", "consul"),
    Service("s0", "StatefulSet", "cpu", "polaris"),
    Service("s1", "StatefulSet", "one"),
    Service("s2", "StatefulSet", "two", "consul"),
    Service("s3", "StatefulSet", "one", "polaris"),
    Service("w0", "Widget", "cpu", "consul"),
    Service("w1", "Widget", "one", "polaris"),
    Service("w2", "Widget", "two"),
    Service("w3", "Widget", "two", "polaris"),
)


def users(**used: str) -> set[str]:
    """The policies that use this kind, source or registry."""
    return {one.name for one in SERVICES if all(getattr(one, key) == value for key, value in used.items())}


class Scene:
    """The services, and the adapter's answers about them."""

    def __init__(self, workloads: Workloads, kind: Kind, registries: dict[str, Platform]) -> None:
        self.workloads, self.kind, self.registries = workloads, kind, registries

    def begin(self, exporters: dict[str, Exporter]) -> None:
        for one in SERVICES:
            self._workload(one)
        for one in SERVICES:
            until(lambda one=one: len(self._addresses(one.name)) == PODS, 60, lambda: "no pods")  # type: ignore[misc]
            if one.registry:
                self.registries[one.registry].register(f"shop.{one.name}", self._addresses(one.name))
            self._policy(one)
        for name, exporter in exporters.items():
            pods = [pod for one in SERVICES if one.source == name for pod in self._addresses(one.name)]
            exporter.pods(name, self.workloads.namespace, dict.fromkeys(pods, 140))

    def _addresses(self, name: str) -> dict[str, str]:
        pods = {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.workloads.pods(name)}
        return {pod: ip for pod, ip in pods.items() if ip}

    def _workload(self, one: Service) -> None:
        if one.kind != "StatefulSet":
            self.workloads.deployment(one.name, PODS, usage_cpu="140m", wait=False)
            return
        self.workloads.set_usage(one.name, cpu="140m")
        resources = {"requests": {"cpu": "1", "memory": "256Mi"}}
        container = {"name": "app", "image": "example.invalid/app:1", "resources": resources}
        labels = {"app": one.name}
        spec = {
            "replicas": PODS,
            "serviceName": one.name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }
        self.workloads.client.create(self.workloads.item("apps/v1", "StatefulSet", one.name, spec))

    def _policy(self, one: Service) -> None:
        metric = cpu_watermarks("100m", "40m") if one.source == "cpu" else query_watermarks(one.source, "100", "40")
        spec: dict[str, Any] = {}
        if one.registry:
            name = self.registries[one.registry].settings["name"]
            spec = {"registry": {"name": name, "service": f"shop.{one.name}"}, "pulledOut": {"replaceAfterSeconds": 0}}
        self.workloads.policy(one.name, [metric], **spec)
        version = f"{self.kind.group}/v1" if one.kind == "Widget" else "apps/v1"
        if one.kind == "Widget":
            self.widget(one.name)
        self.workloads.hpa(one.name, target=(version, one.kind, one.name), behavior=CALM)

    def widget(self, name: str) -> None:
        version = f"{self.kind.group}/v1"
        self.workloads.client.create(self.workloads.item(version, "Widget", name, {"replicas": PODS}))
        path = f"/apis/{version}/namespaces/{self.workloads.namespace}/widgets/{name}"
        self.workloads.client.patch_status(path, {"replicas": PODS, "podsBy": f"app={name}"})

    def pull(self, registry: str, *, out: bool) -> None:
        """Pulls a pod of every service out in that registry, or puts it back."""
        for name in users(registry=registry):
            self.registries[registry].pull(f"shop.{name}", min(self._addresses(name)), out=out)

    def answers(self) -> dict[str, str]:
        """The count or the error's message, by policy."""
        return {one.name: self.workloads.asked(one.name) for one in SERVICES}

    def until_all_answered(self, seconds: float = 120) -> None:
        until(lambda: set(self.answers().values()) == {ASKED}, seconds, lambda: str(self.answers()), 0.5)

    def until_changed(self, who: set[str], contains: str = "", seconds: float = 90) -> None:
        """Waits until these policies' answers change and contain the text; fails as soon as another's changes."""

        def changed() -> bool:
            found = self.answers()
            others = {name for name, answer in found.items() if answer != ASKED} - who
            assert not others, {name: found[name] for name in others}
            return all(found[name] != ASKED and contains in found[name] for name in who)

        until(changed, seconds, lambda: str(self.answers()), 0.5)

    def hold(self, but: set[str], seconds: float) -> None:
        """Asserts that only these policies' answers change."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert {answer for name, answer in self.answers().items() if name not in but} <= {ASKED}
            time.sleep(0.5)


@pytest.fixture
def kind(workloads: Workloads, crds: None) -> Iterator[Kind]:
    kind = Kind(workloads, "widgets")
    kind.define()
    kind.grant()
    yield kind
    kind.revoke()
    kind.client.delete(kind.definition)


def _settings(servers: dict[str, Prometheus], registries: dict[str, Platform]) -> dict[str, Any]:
    brief = {"intervalSeconds": 1, "maxAgeSeconds": 10}
    queries = [
        {"name": name, "server": name, "query": f"sum by (namespace, pod) ({name})", **brief} for name in servers
    ]
    return {
        "resourceMetrics": {"intervalSeconds": 2, "maxAgeSeconds": 40},
        "prometheus": {"servers": [{"name": n, "url": one.url} for n, one in servers.items()], "queries": queries},
        "registries": [one.settings for one in registries.values()],
    }


def test_a_failure_of_one_input_changes_only_the_answers_of_the_policies_that_use_it(
    control_plane: ControlPlane, make_adapter: MakeAdapter, workloads: Workloads, kind: Kind, laws: Laws
) -> None:
    with (
        Exporter() as first,
        Exporter() as second,
        Prometheus([first]) as one,
        Prometheus([second]) as two,
        platform("consul") as consul,
        platform("polaris") as polaris,
    ):
        servers = {"one": one, "two": two}
        scene = Scene(workloads, kind, {"consul": consul, "polaris": polaris})
        make_adapter(_settings(servers, scene.registries), command=laws.run("serve"))
        scene.begin({"one": first, "two": second})
        scene.until_all_answered()
        for name, server in servers.items():
            _breaks(scene, server.kill, server.resume, users(source=name), CAUSES[name])
        _breaks(scene, kind.remove, lambda: _restored(scene), users(kind="Widget"), "serves no")
        for name, registry in scene.registries.items():
            scene.pull(name, out=True)
            scene.until_changed(users(registry=name))
            scene.pull(name, out=False)
            scene.until_all_answered()
            registry.kill()
            scene.hold(set(), 10)
            registry.resume(wiped=False)
        _breaks(
            scene,
            lambda: control_plane.kill("metrics-server"),
            lambda: control_plane.start_component("metrics-server"),
            users(source="cpu"),
            CAUSES["cpu"],
        )


def _breaks(scene: Scene, stop: Callable[[], None], mend: Callable[[], None], who: set[str], contains: str) -> None:
    stop()
    scene.until_changed(who, contains)
    scene.hold(who, 5)
    mend()
    scene.until_all_answered()


def _restored(scene: Scene) -> None:
    scene.kind.define()
    for name in sorted(users(kind="Widget")):
        scene.widget(name)
