"""A real control plane on loopback, which tests, demo and benchmarks start, use and stop.

    with ControlPlane(nodes=3) as cluster:
        cluster.client.apply(...)
        cluster.kill("metrics-server")

Only containers are missing: KWOK simulates nodes and pods. All files are in one temporary folder, and all programs end
with this process, however it ends.
"""

import functools
import shutil
import signal
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from lab.harness import binaries, commands, kwok, objects
from lab.harness.client import Client, brief, condition_true, fetch, tls_context
from lab.harness.commands import LOOPBACK, Layout
from lab.harness.hpa_log import HpaLog
from lab.harness.pki import ClusterPki, Pair
from lab.harness.processes import Component, Server, free_ports

CLUSTER_METRICS = "metrics.k8s.io"
_READY = {
    "etcd": "/health",
    "kube-apiserver": "/readyz",
    # Readiness would take two scrapes (20 s); it serves the existing samples before.
    "metrics-server": "/readyz?exclude=metric-storage-ready",
}
"""The path that answers 200 when a program is ready, where it is not /healthz."""


class ControlPlane(Server):
    """etcd, kube-apiserver, and the other programs that the arguments select."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        controller_manager: bool = True,
        scheduler: bool = True,
        kwok: bool = True,
        metrics_server: bool = True,
        hpa_sync: float = 3,
        hpa_flags: Mapping[str, str] | None = None,
        apiserver_flags: Mapping[str, str] | None = None,
        controllers: str = "*",
        gates: str = "",
        announce: Callable[[str], None] = binaries.print_to_stderr,
        prepared: Callable[[Self], None] = lambda _: None,
    ) -> None:
        """`hpa_flags` have no prefix: {"downscale-stabilization": "0s"}. `gates`: feature gates of all programs.

        `controllers` is the controller manager's flag of that name. `prepared` is called when the API server serves,
        before the programs that watch it start: the HPA controller finds a kind that is defined later only within half
        a minute.
        """
        self.announce, self.prepared = announce, prepared
        chosen = (True, True, controller_manager, scheduler, kwok, metrics_server)
        self.wanted = [name for name, is_wanted in zip(binaries.CONTROL_PLANE, chosen, strict=True) if is_wanted]
        self.nodes, self.hpa_sync = nodes, hpa_sync
        gated = {"feature-gates": gates} if gates else {}
        self.hpa_flags = {f"horizontal-pod-autoscaler-{key}": value for key, value in (hpa_flags or {}).items()} | gated
        self.hpa_flags["controllers"] = controllers
        self.apiserver_flags = {**(apiserver_flags or {}), **gated}
        self.components: dict[str, Component] = {}
        self.watched: list[Component] = []
        """Further processes whose logs a failed test reports: adapters."""
        self._clients: list[Client] = []

    @classmethod
    def api_server_only(cls, **more: Any) -> Self:
        """etcd and kube-apiserver only, for tests that need objects but no controllers."""
        off = dict.fromkeys(("controller_manager", "scheduler", "kwok", "metrics_server"), False)
        return cls(nodes=0, **{**off, **more})

    # -- life cycle

    def start(self) -> None:
        """Builds what is missing, starts the programs, and returns when they are ready."""
        programs = binaries.ensure(*self.wanted, announce=self.announce)
        self.folder = Path(tempfile.mkdtemp(prefix="effective-load-cluster-"))
        self.pki = ClusterPki(self.folder / "pki")
        ports = dict(zip(commands.ROLES, free_ports(len(commands.ROLES)), strict=True))
        self.layout = Layout(self.folder, self.pki, ports, programs)
        self.server = self.layout.server
        self.kubeconfig = self.kubeconfig_for("admin", "system:masters", file="kubeconfig")
        self.client = self.client_for("admin", "system:masters")
        self._declare()
        for name in ("etcd", "kube-apiserver"):
            self.start_component(name)
        rest = [name for name in self.wanted if name not in binaries.API_SERVER]
        self._register()
        self.prepared(self)
        for name in rest:  # all at once: each waits for the API server by itself
            self.components[name].start()
        for name in rest:
            self.components[name].wait_ready()
        self._settle()

    def _declare(self) -> None:
        users = {name: self.kubeconfig_for(f"system:{name}") for name in ("kube-controller-manager", "kube-scheduler")}
        sync = {"horizontal-pod-autoscaler-sync-period": f"{self.hpa_sync:g}s"}
        extra = {"kube-apiserver": self.apiserver_flags, "kube-controller-manager": sync | self.hpa_flags}
        for name in self.wanted:
            command = self.layout.command(
                name,
                users.get(name, self.kubeconfig),
                controllers="kube-controller-manager" in self.wanted,
                extra=extra.get(name, {}),
            )
            self.components[name] = Component(name, command, self.folder / f"{name}.log", ready=self._probe(name))

    def _probe(self, name: str) -> Callable[[], bool]:
        path, port = _READY.get(name, "/healthz"), self.layout.port(name)
        if name == "etcd":
            return lambda: fetch(port, path, timeout=5).status == 200
        client = self.client if name == "kube-apiserver" else self.anonymous(port, tls_context(self.pki.cluster.file))
        return lambda: client.raw(path, timeout=5).status == 200

    def _register(self) -> None:
        """Creates nodes and the metrics API before the programs that watch them start."""
        for index in range(self.nodes):
            self.client.create(kwok.node(f"node-{index}"))
        if "metrics-server" in self.wanted:
            port = self.layout.port("metrics-server")
            self.client.apply(objects.external_service("metrics-server", "kube-system", port))
            where = ("kube-system", "metrics-server", port)
            self.client.apply(objects.api_service(CLUSTER_METRICS, "v1beta1", where))

    def _settle(self) -> None:
        """Waits until the programs' effects show in the cluster."""
        if "kwok" in self.wanted:
            node_ready = functools.partial(condition_true, kind="Ready")
            for index in range(self.nodes):
                self.client.wait_for(f"/api/v1/nodes/node-{index}", node_ready, 30, "node ready")
        if "kube-controller-manager" in self.wanted:
            self.client.wait_for("/api/v1/namespaces/default/serviceaccounts/default", timeout=30)
        if "metrics-server" in self.wanted:
            self.wait_api_service(f"v1beta1.{CLUSTER_METRICS}")

    def stop(self) -> None:
        """Ends all programs and removes the folder: clients of the API server first, etcd last."""
        for client in self._clients:
            client.close()
        order = [name for name in reversed(self.components) if name not in binaries.API_SERVER]
        for name in order:  # signal all, then wait for each
            self.components[name].signal(signal.SIGTERM)
        for name in order:
            self.components[name].stop(3)
        for name, grace in (("kube-apiserver", 2.0), ("etcd", 3.0)):
            if name in self.components:
                self.components[name].stop(grace)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- components

    def start_component(self, name: str) -> None:
        """Starts a component (again) on its port, and waits until it is ready."""
        self.components[name].start()
        self.components[name].wait_ready()

    def kill(self, name: str) -> None:
        """Kills a component at once, as a crash would."""
        self.components[name].kill()

    def restore(self) -> None:
        """Starts every component that a test has ended, so that the next test has a whole cluster."""
        for name in self.wanted:
            if not self.running(name):
                self.start_component(name)

    def running(self, name: str) -> bool:
        return name in self.components and self.components[name].running

    def logs(self, name: str, lines: int = 25) -> str:
        return self.components[name].tail(lines)

    # -- identities

    def kubeconfig_for(self, user: str, *groups: str, file: str | None = None) -> Path:
        """A kubeconfig with a client certificate of the cluster's authority for this user and these groups."""
        path = self.folder / (file or f"kubeconfig-{'-'.join((user, *groups)).replace(':', '_').replace('/', '_')}")
        return objects.kubeconfig(path, self.server, self.pki.cluster.certificate, self.pki.client(user, *groups))

    def kubeconfig_with_token(self, token: str, file: str = "kubeconfig-token") -> Path:
        return objects.kubeconfig(self.folder / file, self.server, self.pki.cluster.certificate, token)

    def client_for(self, user: str, *groups: str) -> Client:
        pair = self.pki.client(user, *groups)
        context = tls_context(self.pki.cluster.file, pair.cert_file, pair.key_file)
        return self._track(Client(LOOPBACK, self.layout.port("kube-apiserver"), context))

    def client_with_token(self, token: str) -> Client:
        context = tls_context(self.pki.cluster.file)
        headers = {"Authorization": f"Bearer {token}"}
        return self._track(Client(LOOPBACK, self.layout.port("kube-apiserver"), context, headers))

    def token(self, namespace: str, account: str, *, seconds: int = 21_600) -> str:
        """A service account's token from the TokenRequest API; creates the account if it is missing."""
        base = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.client.find(f"{base}/{account}") is None:
            metadata = {"name": account, "namespace": namespace}
            self.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        spec = {"expirationSeconds": seconds}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self.client.post(f"{base}/{account}/token", request)["status"]["token"])

    def front_proxy_cert(self, name: str = "front-proxy-client") -> Pair:
        """A client certificate like the aggregator's, or one with another name, which is not allowed."""
        return self.pki.front_proxy_client if name == "front-proxy-client" else self.pki.front_proxy.issue(name)

    def as_aggregator(self, port: int, user: str = "", group: str = "", name: str = "front-proxy-client") -> Client:
        """A client that calls a local API server directly, as the aggregator does for this user."""
        pair = self.front_proxy_cert(name)
        context = tls_context(None, pair.cert_file, pair.key_file)
        headers = ({"X-Remote-User": user} if user else {}) | ({"X-Remote-Group": group} if group else {})
        return self._track(Client("localhost", port, context, headers))

    def anonymous(self, port: int, context: ssl.SSLContext | None = None, **headers: str) -> Client:
        """A client without a certificate for any local port."""
        return self._track(Client("localhost", port, context or tls_context(None), headers))

    def _track(self, client: Client) -> Client:
        self._clients.append(client)
        return client

    # -- inspection

    def wait_api_service(self, name: str, timeout: float = 60) -> None:
        """Waits until the aggregator finds the API service available.

        After a failure the aggregator probes only every 5 to 30 s, or when the object changes: so this changes it.
        """
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        version, _, group = name.partition(".")
        deadline = time.monotonic() + timeout
        while True:
            available = condition_true(self.client.get(path), "Available")
            if available and self.client.raw(f"/apis/{group}/{version}").status == 200:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} not available within {timeout:g} s:\n{brief(self.client.get(path))}")
            self.client.patch(path, {"metadata": {"annotations": {"tests.effective-load.io/look": str(time.time())}}})
            time.sleep(0.3)

    @property
    def hpa_log(self) -> HpaLog:
        """The HPA controller's log of its syncs."""
        return HpaLog(self.components["kube-controller-manager"].log)

    @functools.cached_property
    def _kwok(self) -> Client:
        return self.anonymous(self.layout.port("kwok"), tls_context(self.pki.cluster.file), Accept="*/*")

    def counts_usage_of(self, pods: Iterable[str]) -> bool:
        """Whether kwok counts the CPU of these pods: from the first look at its pages on, unlike a kubelet.

        metrics-server's own looks are 10 s apart, and it needs two after that first one.
        """
        pages = [self._kwok.raw(kwok.usage_page(f"node-{index}")).body.decode() for index in range(self.nodes)]
        return all(any(f'pod="{pod}"' in page for page in pages) for pod in pods)

    def pod_metrics(self, namespace: str) -> list[dict[str, Any]]:
        return self.client.list(f"/apis/{CLUSTER_METRICS}/v1beta1/namespaces/{urllib.parse.quote(namespace)}/pods")
