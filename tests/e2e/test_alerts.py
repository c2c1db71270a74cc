"""The alerting rules on the real control plane: a real Prometheus scrapes server and companion, the faults are made.

A minute of a rule's `for` is a second here, and five at most; monitoring/alerts/tests.yaml has the rules in their own
times.
"""

import base64
import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.apiserver.certificates import DAY, CertificateBundle, KeyPair, renewed
from lab.harness.adapter import NAMESPACE, AdapterProcess, account_kubeconfig
from lab.harness.companion import LEASE_PATH, CompanionProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import free_ports
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from monitoring.alerts import rule_file
from tests.e2e.conftest import MakeAdapter, MakeCompanion
from tests.e2e.kit import CALM, PULLED_OUT, Load, prometheus_settings, query_watermarks
from tests.e2e.registries import Platform, platform

pytestmark = [pytest.mark.timeout(400), pytest.mark.builds("consul")]

SERVICES = {"calm": 3, "gone": 2, "stale": 4, "pulled": 4, "top": 3, "hidden": 4, "alone": 2, "strayed": 2}
"""The pods of each service; all but `calm` get a fault."""
SCALES = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/effective-load-scales"
FAULTS = {
    ("NoDesiredReplicas", "gone"),
    ("InputStale", "stale"),
    ("MassPullOut", "pulled"),
    ("AboveHighAtMax", "top"),
    ("PulledOutPodsHideOverload", "hidden"),
    ("PolicyInvalid", "alone"),
    ("RegistryDataInvalid", "strayed"),
    ("RegistryUnreachable", "consul"),
    ("UpstreamDown", "custom.metrics.k8s.io"),
    ("ScaleReadsFailing", ""),
    ("NotFollowed", "calm"),
    ("CompanionWithoutLeader", ""),
    ("SettingsRejected", ""),
    ("CertExpiring", "serving"),
}
"""Each alert, and the policy, registry, API group or certificate that it names."""
EFFECTS = {("NotFollowed", name) for name in SERVICES}
"""No HPA gets an answer while live scales cannot be read."""


class Alerts:
    """The alerts that a Prometheus has ever fired."""

    def __init__(self, server: Prometheus) -> None:
        self.server = server

    def fired(self) -> set[tuple[str, str]]:
        found = self.server.query('max_over_time(ALERTS{alertstate="firing"}[10m])')
        return {(one["metric"]["alertname"].removeprefix("EffectiveLoad"), _named(one["metric"])) for one in found}

    def settle(self) -> None:
        """Waits until nothing is pending, so that nothing will fire either, and asserts that nothing has."""
        until(lambda: not self.server.query("ALERTS"), 20, lambda: f"still {self.server.query('ALERTS')}")
        assert self.fired() == set()

    def wait(self, expected: set[tuple[str, str]], seconds: float) -> None:
        """Waits until these have fired; one that is neither of them nor their effect ends the wait at once."""

        def complete() -> bool:
            fired = self.fired()
            assert fired <= expected | EFFECTS, f"fired, and should not: {fired - expected}"
            return expected <= fired

        until(complete, seconds, lambda: f"not fired: {expected - self.fired()}")


def _named(labels: dict[str, str]) -> str:
    return next((labels[key] for key in ("policy", "registry", "group", "certificate") if key in labels), "")


@contextlib.contextmanager
def alerting(folder: Path, *ports: int, companion: int) -> Iterator[Alerts]:
    """A Prometheus with the rules, their `for` shortened, that scrapes these telemetry ports."""
    rules = folder / "rules.yaml"
    rules.write_text(re.sub(r"for: (\d+)m", lambda found: f"for: {min(int(found[1]), 5)}s", rule_file()))
    jobs = {"effective-load": ports, "effective-load-companion": (companion,)}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in numbers]}],
            }
            for job, numbers in jobs.items()
        ],
    }
    with Prometheus(config=config) as server:
        yield Alerts(server)


class Scene:
    """The services, and what befalls them."""

    def __init__(self, workloads: Workloads, load: Load, registry: Platform) -> None:
        self.workloads, self.load, self.registry = workloads, load, registry
        self.client = workloads.client

    def begin(self) -> None:
        for name, count in SERVICES.items():
            self.workloads.deployment(name, count, wait=False)
        for name, count in SERVICES.items():
            self.workloads.wait_ready(name, count)
            self.load.each(name, 70)
            spec: dict[str, Any] = {}
            if name == "strayed":
                pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.workloads.pods(name)}
                self.registry.register(name, pods)
                spec = {"registry": {"name": "consul", "service": name, "registrationGraceSeconds": 0}}
            self.workloads.policy(name, [query_watermarks("load", "100", "40")], **spec)
            self.workloads.hpa(name, behavior=CALM, maximum=3 if name == "top" else 100)
        for name in SERVICES:
            self.workloads.wait_condition(name, "ScalingActive")

    def roll_out(self, name: str) -> None:
        """A rollout whose new pods have their load as soon as they run."""
        before = set(self.workloads.pod_names(name))
        self.workloads.rollout(name)

        def done() -> bool:
            self.load.each(name, 70)
            names = self.workloads.pod_names(name)
            return len(names) == SERVICES[name] and not before & set(names)

        until(done, 60, lambda: f"{name} still has {before & set(self.workloads.pod_names(name))}")
        self.workloads.wait_ready(name, SERVICES[name])

    def break_services(self) -> None:
        self.client.delete(self.workloads.path("gone"))
        first, second, *_ = self.workloads.pod_names("stale")
        self.load.each("stale", 70, but={first: None, second: None})
        for pod in self.workloads.pod_names("pulled")[:3]:
            self.workloads.annotate(pod, {PULLED_OUT: "true"})
        self.load.each("top", 150)
        idle = self.workloads.pod_names("hidden")[0]
        self.workloads.annotate(idle, {PULLED_OUT: "true"})
        self.load.each("hidden", 120, but={idle: 0.001})
        self.client.delete(self.workloads.hpa_path("alone"))
        path = f"/apis/effective-load.io/v1alpha1/namespaces/{self.workloads.namespace}/watermarkpolicies/strayed"
        self.client.patch(path, {"spec": {"registry": {"service": "nobody"}}})


class ServingFiles:
    """Certificate files from the server's own CA, so that the aggregator accepts whoever serves them."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self.settings = {"mode": "Files", "certFile": str(folder / "tls.crt"), "keyFile": str(folder / "tls.key")}
        data = control_plane.client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/effective-load-tls")["data"]
        own = {name: base64.b64decode(value).decode() for name, value in data.items()}
        self._bundle = CertificateBundle(KeyPair(own["tls.crt"], own["tls.key"]), KeyPair(own["ca.crt"], own["ca.key"]))

    def write(self, days: float) -> None:
        """A certificate that ends in so many days, of 90."""
        names = [f"effective-load.{NAMESPACE}.svc", f"of-{days:g}-days"]
        pair = renewed(self._bundle, names, time.time() - (90 - days) * DAY).serving
        Path(self.settings["certFile"]).write_text(pair.certificate)
        Path(self.settings["keyFile"]).write_text(pair.key)


@contextlib.contextmanager
def prepared(control_plane: ControlPlane, settings: dict[str, Any], kubeconfig: Path) -> Iterator[AdapterProcess]:
    """Another server that is not started yet."""
    process = AdapterProcess(control_plane, settings, external=True, kubeconfig=kubeconfig, name="adapter-next")
    try:
        yield process
    finally:
        process.stop()
        control_plane.watched.remove(process.component)


@pytest.fixture
def scales(control_plane: ControlPlane) -> Iterator[str]:
    """The binding by which the server may read scales; it is there again afterwards."""
    yield SCALES
    account_kubeconfig(control_plane)


def test_each_alert_fires_for_its_fault_and_none_in_a_rollout_or_a_restart(
    control_plane: ControlPlane,
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    adapter_kubeconfig: Path,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    scales: str,
    tmp_path: Path,
) -> None:
    with platform("consul") as consul:
        settings = {**prometheus_settings(prometheus), "registries": [consul.settings]}
        settings["prometheus"]["queries"][0]["maxAgeSeconds"] = 5
        server, companion = make_adapter(settings), make_companion(settings)
        scene = Scene(workloads, Load(exporter, workloads), consul)
        scene.begin()
        companion.wait_leading()
        files = ServingFiles(control_plane, tmp_path)
        files.write(days=60)
        settings["server"] = {"tls": files.settings}
        with (
            prepared(control_plane, settings, adapter_kubeconfig) as successor,
            alerting(tmp_path, server.metrics_port, successor.metrics_port, companion=companion.metrics_port) as alerts,
        ):
            successor.take_over()
            server.stop()
            scene.roll_out("calm")
            alerts.server.wait_value("sum(up)", 2)
            alerts.settle()
            files.write(days=10)
            scene.break_services()
            successor.configure({**settings, "upstreams": {"custom": {"url": f"https://127.0.0.1:{free_ports(1)[0]}"}}})
            _break_processes(control_plane, companion, scales)
            alerts.wait(FAULTS - {("RegistryUnreachable", "consul")}, 60)
            consul.kill()
            successor.kill()
            alerts.wait(FAULTS | {("Down", "")}, 30)


def _break_processes(control_plane: ControlPlane, companion: CompanionProcess, scales: str) -> None:
    control_plane.client.delete(scales)
    control_plane.client.delete(LEASE_PATH)
    companion.settings_file.write_text("servre: {}\n")
