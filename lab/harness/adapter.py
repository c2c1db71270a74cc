"""The adapter as a subprocess against a control plane, behind the aggregator like any other metrics API."""

import copy
import functools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.harness import objects
from lab.harness.client import Response, condition_true, fetch
from lab.harness.commands import LOOPBACK
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Server, free_ports

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
NAMESPACE = SERVICE = ACCOUNT = "effective-load"
IMAGE_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""As the Dockerfile sets it: memory that is measured here is that of the image."""
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret")

Settings = dict[str, Any]


def merged(base: Settings, over: Mapping[str, Any]) -> Settings:
    """Merges the settings `over` into `base`, section by section; lists are replaced."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return result


class ProgramProcess(Server):
    """The server or the companion as a subprocess: its settings file, its telemetry, its life cycle.

    A subclass sets `defaults`, the settings that every test starts from besides those of telemetry and logging, and
    `metrics_port`, before its own `__init__` calls this one. `alive` is the path that answers 200 once it has started.
    """

    defaults: Settings
    metrics_port: int

    def __init__(
        self,
        cluster: ControlPlane,
        name: str,
        command: Iterable[str],
        alive: str,
        settings: Mapping[str, Any] | None,
        kubeconfig: Path | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self.cluster, self.name = cluster, name
        self.settings_file = cluster.folder / f"{name}-settings.yaml"
        self.configure(settings or {})
        arguments = ["--kubeconfig", kubeconfig or cluster.kubeconfig, "--settings", self.settings_file]
        inherited = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        self.component = Component(
            name,
            [sys.executable, *command, *arguments],
            cluster.folder / f"{name}.log",
            ready=lambda: self.get(alive).status == 200,
            env={**inherited, **IMAGE_ENVIRONMENT, "POD_NAMESPACE": NAMESPACE, **(env or {})},
            cwd=ROOT,
        )
        cluster.watched.append(self.component)

    def stop(self) -> None:
        self.component.stop(10)

    def kill(self) -> None:
        """Kills the process at once, as a crash would; what it holds in the cluster (registration, Lease) stays."""
        self.component.kill()

    # -- settings

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings file anew, merged over the defaults; a running process reloads it within 5 s."""
        telemetry = {"address": "127.0.0.1", "port": self.metrics_port}
        self.settings = merged({"telemetry": telemetry, "logging": {"level": "info"}, **self.defaults}, settings)
        self.write_settings(yaml.safe_dump(self.settings))

    def write_settings(self, text: str) -> None:
        """Writes this exact text as the settings file, in one step as a ConfigMap update does; it may be invalid."""
        staged = self.settings_file.with_suffix(".new")
        staged.write_text(text)
        staged.replace(self.settings_file)

    # -- inspection

    def get(self, path: str) -> Response:
        """Sends a request to the telemetry port, as the kubelet does."""
        return fetch(self.metrics_port, path, timeout=15)

    def metrics(self) -> str:
        """The page of metrics."""
        return self.get("/metrics").text

    def metric(self, series: str) -> float | None:
        """The value of one series of the metrics, written as on the page; None if it is absent."""
        for line in self.metrics().splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return None

    def logs(self, lines: int = 40) -> str:
        return self.component.tail(lines)


class AdapterProcess(ProgramProcess):
    """One adapter process: its settings file, its registration with the aggregator, its life cycle.

    with AdapterProcess(cluster, {"resourceMetrics": {"intervalSeconds": 2}}) as adapter:
        adapter.kill()
        adapter.restart()
    """

    def __init__(
        self,
        cluster: ControlPlane,
        settings: Mapping[str, Any] | None = None,
        *,
        external: bool = False,
        kubeconfig: Path | None = None,
        name: str = "adapter",
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("-m", "adapter.cli", "serve"),
        register: bool = True,
    ) -> None:
        """`kubeconfig` defaults to the admin's. The adapter writes its own CA into the API services."""
        self.external, self.register_it = external, register
        self.port, self.metrics_port = free_ports(2)
        tls = {"namespace": NAMESPACE, "service": SERVICE}
        server = {"address": "127.0.0.1", "port": self.port, "externalMetrics": external, "tls": tls}
        self.defaults = {"server": server}
        super().__init__(cluster, name, command, "/readyz", settings, kubeconfig, env)

    # -- life cycle

    def start(self, timeout: float = 60) -> None:
        """Registers with the aggregator, starts, and waits until ready and available."""
        if self.register_it:
            self.register()
        self.component.start()
        self.component.wait_ready(timeout)
        self.wait_available()

    def restart(self, timeout: float = 60) -> None:
        """Stops the running process and starts again on the same port with the current settings."""
        self.component.stop()
        self.component.start()
        self.component.wait_ready(timeout)
        self.wait_available()

    def close(self) -> None:
        """Stops the process and removes its registration."""
        self.stop()
        if self.register_it:
            self.unregister()

    # -- registration

    @property
    def api_services(self) -> dict[str, tuple[str, str, int]]:
        """Each API service by name: group, version, priority."""
        services = {f"v1beta2.{CUSTOM}": (CUSTOM, "v1beta2", 200), f"v1beta1.{CUSTOM}": (CUSTOM, "v1beta1", 100)}
        return {**services, f"v1beta1.{EXTERNAL}": (EXTERNAL, "v1beta1", 100)} if self.external else services

    @property
    def registered(self) -> bool:
        """Whether its API services exist."""
        return all(self.cluster.client.find(f"{API_SERVICES}/{name}") for name in self.api_services)

    def register(self) -> None:
        """Points the Service and the API services to this process, also where they point to another one."""
        client = self.cluster.client
        client.apply(objects.namespace(NAMESPACE))
        client.apply(objects.external_service(SERVICE, NAMESPACE, self.port))
        for group, version, priority in self.api_services.values():
            where = (NAMESPACE, SERVICE, self.port)
            item = objects.api_service(group, version, where, priority=priority, skip=False)
            client.apply(item)

    def unregister(self) -> None:
        for name in self.api_services:
            self.cluster.client.delete(f"{API_SERVICES}/{name}")

    def wait_available(self, timeout: float = 60) -> None:
        for name in self.api_services if self.register_it else ():
            self.cluster.wait_api_service(name, timeout)


def manifests(*kinds: str, folders: Iterable[str] = ("base", "crd")) -> Iterator[dict[str, Any]]:
    """The objects of these kinds in the project's own manifests."""
    for folder in folders:
        for path in sorted((MANIFESTS / folder).rglob("*.yaml")):
            for item in yaml.safe_load_all(path.read_text()):
                if isinstance(item, dict) and item.get("kind") in kinds:
                    yield item


def established(cluster: ControlPlane, definition: dict[str, Any]) -> None:
    """Applies a custom resource definition and waits until it is served."""
    cluster.client.apply(definition)
    is_served = functools.partial(condition_true, kind="Established")
    cluster.client.wait_for(cluster.client.path(definition), is_served, 30, "CRD established")


def install_crds(cluster: ControlPlane) -> None:
    """Applies the project's custom resource definitions and waits until they are served."""
    for item in manifests("CustomResourceDefinition"):
        established(cluster, item)


def account_kubeconfig(cluster: ControlPlane) -> Path:
    """A kubeconfig with exactly the rights of the adapter's account in the manifests, so that a missing right fails."""
    return cluster.kubeconfig_with_token(_token_with_rights(cluster), f"kubeconfig-{ACCOUNT}")


def as_in_a_pod(adapter: AdapterProcess) -> AdapterProcess:
    """Gives it the account's token and CA where a pod has them, in a mount namespace of its own, and no kubeconfig.

    A kubeconfig is read by a package whose import no pod pays for: 0.2 s and 10 MiB. The namespace's /run holds nothing
    else; Linux with user namespaces is needed.
    """
    cluster, component = adapter.cluster, adapter.component
    run = cluster.folder / f"{adapter.name}-run"
    files = run / "secrets/kubernetes.io/serviceaccount"
    files.mkdir(parents=True, exist_ok=True)
    (files / "token").write_text(_token_with_rights(cluster))
    shutil.copy(cluster.pki.cluster.file, files / "ca.crt")
    line, at = list(component.command), component.command.index("--kubeconfig")
    del line[at : at + 2]
    mounted = ["sh", "-c", 'mount --bind "$0" /run && exec "$@"', str(run)]
    component.command = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount", *mounted, *line]
    where = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(cluster.layout.port("kube-apiserver"))}
    component.env = {**(component.env or {}), **where}
    return adapter


def _token_with_rights(cluster: ControlPlane) -> str:
    """Gives the adapter's account its rights; a token of it."""
    cluster.client.apply(objects.namespace(NAMESPACE))
    for kind in RIGHTS:  # this order: a binding's subject and role must exist first
        for item in manifests(kind, folders=("base", "components/external-metrics")):
            if item["kind"] in {"ServiceAccount", "Role", "RoleBinding", "Secret"}:
                item["metadata"].setdefault("namespace", NAMESPACE)
            for subject in item.get("subjects", []):
                if subject["kind"] == "ServiceAccount":
                    subject.setdefault("namespace", NAMESPACE)
            cluster.client.apply(item)
    return cluster.token(NAMESPACE, ACCOUNT)
