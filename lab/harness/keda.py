"""The real KEDA on a control plane: its operator, and its metrics adapter for external.metrics.k8s.io.

    with Keda(cluster) as keda:
        cluster.client.apply(scaled_object(...))
        keda.adapter.signal(signal.SIGSTOP)

Both speak mutual TLS with each other. Nothing registers the adapter with the aggregator: a test chooses who does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.harness import binaries, objects
from lab.harness.adapter import established
from lab.harness.client import Client
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Server, free_ports

PROGRAMS = ("keda-operator", "keda-adapter")
NAMESPACE = "keda"
SERVICE = "keda-metrics-apiserver"
LOOPBACK = "127.0.0.1"


class Keda(Server):
    """KEDA's two programs with the rights of the administrator."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.port, self._plain, self._grpc, self._health = free_ports(4)
        self._certificates = _certificates(cluster)
        kubeconfig = str(cluster.kubeconfig)
        places = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}
        env = {**os.environ, "KUBECONFIG": kubeconfig, **places}
        built = {name: binaries.path_of(name) for name in PROGRAMS}
        self.operator = Component(
            "keda-operator",
            [built["keda-operator"], *_flags(self._operator_flags())],
            cluster.folder / "keda-operator.log",
            env=env,
        )
        self.adapter = Component(
            "keda-adapter",
            [built["keda-adapter"], *_flags(self._adapter_flags(kubeconfig))],
            cluster.folder / "keda-adapter.log",
            ready=lambda: self._direct.raw("/readyz", timeout=3).status == 200,
            env=env,
        )
        self._direct: Client = cluster.anonymous(self.port)

    def _operator_flags(self) -> Mapping[str, object]:
        return {
            "metrics-bind-address": "0",
            "health-probe-bind-address": f"{LOOPBACK}:{self._health}",
            "metrics-service-bind-address": f"{LOOPBACK}:{self._grpc}",
            "cert-dir": self._certificates,
            "zap-log-level": "info",
        }

    def _adapter_flags(self, kubeconfig: str) -> Mapping[str, object]:
        return {
            "secure-port": self.port,
            "bind-address": LOOPBACK,
            "port": self._plain,
            "cert-dir": self._certificates,
            "tls-cert-file": self._certificates / "tls.crt",
            "tls-private-key-file": self._certificates / "tls.key",
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "lister-kubeconfig": kubeconfig,
            "metrics-service-address": f"{LOOPBACK}:{self._grpc}",
        }

    @property
    def url(self) -> str:
        """Where the adapter serves; its certificate is the cluster CA's."""
        return f"https://localhost:{self.port}"

    def start(self) -> None:
        """Installs the CRDs, starts both, and waits until the adapter is ready."""
        self.cluster.client.apply(objects.namespace(NAMESPACE))
        self.cluster.client.apply(objects.external_service(SERVICE, NAMESPACE, self.port))
        for path in sorted(binaries.folder_of("keda-operator").glob("*.yaml")):
            for item in yaml.safe_load_all(path.read_text()):
                established(self.cluster, item)
        self.operator.start()
        self.adapter.start()
        self.cluster.watched.extend((self.operator, self.adapter))
        self.adapter.wait_ready(60)

    def stop(self) -> None:
        for component in (self.operator, self.adapter):
            component.kill()
            if component in self.cluster.watched:
                self.cluster.watched.remove(component)


def _certificates(cluster: ControlPlane) -> Path:
    """A folder with the files that KEDA's own rotation would write: both programs use one certificate."""
    folder = cluster.folder / "keda-certs"
    folder.mkdir(exist_ok=True)
    pair = cluster.pki.cluster.issue("keda", hosts=[LOOPBACK, "localhost", f"{SERVICE}.{NAMESPACE}.svc"], mutual=True)
    (folder / "ca.crt").write_bytes(cluster.pki.cluster.certificate)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return folder


def _flags(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def scaled_object(namespace: str, name: str, trigger: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A ScaledObject of a Deployment of the same name."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": {"name": name}, "triggers": [dict(trigger)], **spec},
    }
