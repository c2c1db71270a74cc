"""The command lines of the control plane's programs, and the addresses and files that connect them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.harness import kwok
from lab.harness.pki import ClusterPki

LOOPBACK = "127.0.0.1"
ROLES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "metrics-server")

Flags = Mapping[str, str]


@dataclass(frozen=True)
class Layout:
    """Folder, keys, ports and programs of one control plane."""

    folder: Path
    pki: ClusterPki
    ports: Mapping[str, int]
    binaries: Mapping[str, Path]

    def port(self, role: str) -> int:
        return self.ports[role]

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.port('kube-apiserver')}"

    def serving(self) -> dict[str, str]:
        return {
            "tls-cert-file": str(self.pki.serving.cert_file),
            "tls-private-key-file": str(self.pki.serving.key_file),
        }


def _line(program: Path, *flags: Flags) -> list[str | Path]:
    merged: dict[str, str] = {}
    for group in flags:
        merged.update(group)
    return [program, *(f"--{name}={value}" for name, value in merged.items())]


def etcd(layout: Layout) -> list[str | Path]:
    client, peer = (f"http://{LOOPBACK}:{layout.port(role)}" for role in ("etcd", "etcd-peer"))
    flags = {
        "name": "only",
        "data-dir": str(layout.folder / "etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"only={peer}",
        "unsafe-no-fsync": "true",  # no data has to survive the machine
        "log-level": "warn",
    }
    return _line(layout.binaries["etcd"], flags)


def api_server(layout: Layout, extra: Flags, *, controllers: bool) -> list[str | Path]:
    pki = layout.pki
    flags = {
        "etcd-servers": f"http://{LOOPBACK}:{layout.port('etcd')}",
        "bind-address": LOOPBACK,
        "advertise-address": LOOPBACK,
        "secure-port": str(layout.port("kube-apiserver")),
        **layout.serving(),
        "client-ca-file": str(pki.cluster.file),
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(pki.folder / "service-account.pub"),
        "service-account-signing-key-file": str(pki.account_key),
        "service-cluster-ip-range": "10.0.0.0/16",
        "endpoint-reconciler-type": "none",  # the API server refuses a loopback address as an endpoint
        "requestheader-client-ca-file": str(pki.front_proxy.file),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": str(pki.front_proxy_client.cert_file),
        "proxy-client-key-file": str(pki.front_proxy_client.key_file),
        # Without it the aggregator reaches a program on this machine through a Service of type ExternalName.
        "enable-aggregator-routing": "false",
        "shutdown-delay-duration": "0s",
    }
    if not controllers:  # no controller creates the namespaces' default account, which pods need
        flags["disable-admission-plugins"] = "ServiceAccount"
    return _line(layout.binaries["kube-apiserver"], flags, extra)


def controller_manager(layout: Layout, kubeconfig: Path, hpa_sync: float, extra: Flags) -> list[str | Path]:
    pki = layout.pki
    flags = {
        "kubeconfig": str(kubeconfig),
        "bind-address": LOOPBACK,
        "secure-port": str(layout.port("kube-controller-manager")),
        **layout.serving(),
        # Tests read the metrics without an identity.
        "authorization-always-allow-paths": "/healthz,/readyz,/livez,/metrics",
        "use-service-account-credentials": "true",
        "leader-elect": "false",
        "controllers": "*",
        "service-account-private-key-file": str(pki.account_key),
        "root-ca-file": str(pki.cluster.file),
        "cluster-signing-cert-file": str(pki.cluster.file),
        "cluster-signing-key-file": str(pki.cluster.key_file),
        "horizontal-pod-autoscaler-sync-period": f"{hpa_sync:g}s",
        "kube-api-qps": "200",  # a hundred pods at once stay below the client's own limit
        "kube-api-burst": "400",
        "vmodule": "horizontal=4",  # the controller logs one line for each sync of an HPA
    }
    return _line(layout.binaries["kube-controller-manager"], flags, extra)


def scheduler(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    flags = {
        "kubeconfig": str(kubeconfig),
        "bind-address": LOOPBACK,
        "secure-port": str(layout.port("kube-scheduler")),
        **layout.serving(),
        "authorization-always-allow-paths": "/healthz,/readyz,/livez,/metrics",
        "leader-elect": "false",
        "kube-api-qps": "200",
        "kube-api-burst": "400",
    }
    return _line(layout.binaries["kube-scheduler"], flags)


def kwok_controller(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    config = layout.folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all(kwok.configuration(), sort_keys=False))
    port = str(layout.port("kwok"))
    flags = {
        "kubeconfig": str(kubeconfig),
        "config": str(config),
        "manage-all-nodes": "true",
        "server-address": f"{LOOPBACK}:{port}",
        "node-ip": LOOPBACK,
        "node-port": port,
        "node-lease-duration-seconds": "40",
        "cidr": "10.244.0.1/16",
        **layout.serving(),
    }
    return _line(layout.binaries["kwok"], flags)


def metrics_server(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    flags = {
        "kubeconfig": str(kubeconfig),
        "authentication-kubeconfig": str(kubeconfig),
        "authorization-kubeconfig": str(kubeconfig),
        "bind-address": LOOPBACK,
        "secure-port": str(layout.port("metrics-server")),
        **layout.serving(),
        "kubelet-insecure-tls": "true",
        "kubelet-use-node-status-port": "true",
        "kubelet-preferred-address-types": "InternalIP",  # no DNS server knows the nodes
        "metric-resolution": "10s",  # the allowed minimum, and longer than the request timeout
        "kubelet-request-timeout": "5s",
    }
    return _line(layout.binaries["metrics-server"], flags)
