"""The command lines of the control plane's programs, and the addresses and files that connect them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.harness import kwok
from lab.harness.pki import ClusterPki

LOOPBACK = "127.0.0.1"
ROLES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "metrics-server")


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

    def command(self, name: str, kubeconfig: Path, *, controllers: bool, extra: Mapping[str, str]) -> list[str | Path]:
        """The command of a program, with further flags; `controllers`: whether there is a controller manager."""
        flags = {**self._flags(name, kubeconfig, controllers=controllers), **extra}
        return [self.binaries[name], *(f"--{flag}={value}" for flag, value in flags.items())]

    def _flags(self, name: str, kubeconfig: Path, *, controllers: bool) -> dict[str, str]:
        pki, port = self.pki, str(self.port(name))
        serving = {"tls-cert-file": str(pki.serving.cert_file), "tls-private-key-file": str(pki.serving.key_file)}
        secure = {"bind-address": LOOPBACK, "secure-port": port, **serving}
        controller = {
            "kubeconfig": str(kubeconfig),
            **secure,
            # Tests read the metrics without an identity.
            "authorization-always-allow-paths": "/healthz,/readyz,/livez,/metrics",
            "leader-elect": "false",
            "kube-api-qps": "200",  # a hundred pods at once stay below the client's own limit
            "kube-api-burst": "400",
        }
        match name:
            case "etcd":
                client, peer = (f"http://{LOOPBACK}:{self.port(role)}" for role in ("etcd", "etcd-peer"))
                return {
                    "name": "only",
                    "data-dir": str(self.folder / "etcd"),
                    "listen-client-urls": client,
                    "advertise-client-urls": client,
                    "listen-peer-urls": peer,
                    "initial-advertise-peer-urls": peer,
                    "initial-cluster": f"only={peer}",
                    "unsafe-no-fsync": "true",  # no data has to survive the machine
                    "log-level": "warn",
                }
            case "kube-apiserver":
                return {
                    "etcd-servers": f"http://{LOOPBACK}:{self.port('etcd')}",
                    **secure,
                    "advertise-address": LOOPBACK,
                    "client-ca-file": str(pki.cluster.file),
                    "authorization-mode": "RBAC",
                    "service-account-issuer": "https://kubernetes.default.svc",
                    "service-account-key-file": str(pki.account_public),
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
                    # So the aggregator reaches a program on this machine by a Service of type ExternalName.
                    "enable-aggregator-routing": "false",
                    "shutdown-delay-duration": "0s",
                    # No controller creates the namespaces' default account, which pods need.
                    **({} if controllers else {"disable-admission-plugins": "ServiceAccount"}),
                }
            case "kube-controller-manager":
                return {
                    **controller,
                    "use-service-account-credentials": "true",
                    "service-account-private-key-file": str(pki.account_key),
                    "root-ca-file": str(pki.cluster.file),
                    "cluster-signing-cert-file": str(pki.cluster.file),
                    "cluster-signing-key-file": str(pki.cluster.key_file),
                    "vmodule": "horizontal=4",  # the controller logs one line for each sync of an HPA
                }
            case "kwok":
                return {
                    "kubeconfig": str(kubeconfig),
                    "config": str(kwok.CONFIGURATION),
                    "manage-all-nodes": "true",
                    "server-address": f"{LOOPBACK}:{port}",
                    "node-ip": LOOPBACK,
                    "node-port": port,
                    "node-lease-duration-seconds": "40",
                    "cidr": "10.244.0.1/16",
                    **serving,
                }
            case "metrics-server":
                kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
                return {
                    **dict.fromkeys(kinds, str(kubeconfig)),
                    **secure,
                    "kubelet-insecure-tls": "true",
                    "kubelet-use-node-status-port": "true",
                    "kubelet-preferred-address-types": "InternalIP",  # no DNS server knows the nodes
                    "metric-resolution": "10s",  # the allowed minimum, and longer than the request timeout
                    "kubelet-request-timeout": "5s",
                }
        return controller  # the scheduler
