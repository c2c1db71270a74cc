"""The stage of the benchmark: a real API server with the scene, usage and the adapter."""

import http.client
import itertools
import ssl
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from lab.benchmarks import scene, store
from lab.benchmarks.load import Plan
from lab.benchmarks.processes import favour
from lab.harness import objects
from lab.harness.adapter import NAMESPACE, AdapterProcess, as_in_a_pod, install_crds
from lab.harness.binaries import print_to_stderr
from lab.harness.client import tls_context
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Scenery, free_ports

ROOT = Path(__file__).resolve().parents[2]
USAGE_GROUP = "metrics.k8s.io"
_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"

HEADERS = [
    ("Host", f"{NAMESPACE}.{NAMESPACE}.svc"),
    ("User-Agent", f"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0000000/{_USER}"),
    ("Accept", "application/vnd.kubernetes.protobuf, */*"),
    ("Accept-Encoding", "gzip"),
    ("Audit-Id", "5b2d3f6e-9a51-4a4f-8c43-0d6f4f6f2d11"),
    ("X-Forwarded-For", "10.0.0.1"),
    ("X-Forwarded-Host", "kubernetes.default.svc"),
    ("X-Forwarded-Proto", "https"),
    ("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=1f6cf1a6-8d55-4a0b-9d37-1a4de9a0a0c2"),
    ("X-Remote-Group", "system:serviceaccounts"),
    ("X-Remote-Group", "system:serviceaccounts:kube-system"),
    ("X-Remote-Group", "system:authenticated"),
    ("X-Remote-User", _USER),
]
"""The headers of a request of the HPA controller, as the aggregator forwards it."""


class Stage(Scenery):
    """Starts everything; `policies`, `pods` and `namespaces` are the numbers of objects.

    `python` is the interpreter of the adapter, `command` what it runs, `policy` makes the policy of a service.
    """

    policy = staticmethod(scene.policy)
    command: tuple[str, ...] = ("-m", "adapter.cli", "serve")

    def __init__(self, policies: int, pods: int, namespaces: int, python: str) -> None:
        self.services = scene.services(policies, pods, namespaces)
        self._counts = (policies, pods, namespaces)
        self._python = python

    def _start(self, stack: ExitStack) -> None:
        self.cluster = stack.enter_context(ControlPlane.api_server_only(announce=print_to_stderr))
        for name in ("etcd", "kube-apiserver"):
            favour(self.cluster.components[name].pid or 0)
        self._fill()
        self._start_usage()
        self.adapter = self._adapter()
        self._begin_churn()

    # -- the scene

    def _fill(self) -> None:
        client, began = self.cluster.client, time.monotonic()
        install_crds(self.cluster)
        for name in sorted({service.namespace for service in self.services}):
            client.create(objects.namespace(name))
        for service in self.services:
            client.create(self.policy(service))
        etcd = self.cluster.layout.port("etcd")
        count = sum(store.put(etcd, scene.stored(service)) for service in self.services)
        print_to_stderr(f"{count} objects and {len(self.services)} policies made in {time.monotonic() - began:.0f} s")

    def _begin_churn(self) -> None:
        """Changes a pod each second: without changes the API server's cache cannot continue a paged list."""
        over = threading.Event()
        etcd = self.cluster.layout.port("etcd")

        def churn() -> None:
            for beat in itertools.count():
                if over.wait(1):
                    return
                service = self.services[beat % len(self.services)]
                key, pod = next(scene.pods(service))
                pod["metadata"]["annotations"]["benchmark.example.com/beat"] = str(beat)
                store.put(etcd, [(key, pod)])

        thread = threading.Thread(target=churn, daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(over.set)

    def _start_usage(self) -> None:
        port = free_ports(1)[0]
        pair = self.cluster.pki.serving
        line = [sys.executable, "-m", "lab.benchmarks.usage", str(port), str(pair.cert_file), str(pair.key_file)]
        line += map(str, self._counts)
        self._component("usage", line).start()
        self.cluster.client.apply(objects.external_service("usage", "kube-system", port))
        where = ("kube-system", "usage", port)
        self.cluster.client.apply(objects.api_service(USAGE_GROUP, "v1beta1", where))
        self.cluster.wait_api_service(f"v1beta1.{USAGE_GROUP}")

    def _adapter(self) -> AdapterProcess:
        """The adapter with exactly the rights of the manifests."""
        adapter = AdapterProcess(self.cluster, command=self.command)
        adapter.component.command[0] = self._python
        as_in_a_pod(adapter)
        adapter.register()
        self._stack.callback(adapter.stop)
        return adapter

    def _component(self, name: str, line: list[str]) -> Component:
        component = Component(name, line, self.cluster.folder / f"{name}.log", cwd=ROOT)
        self._stack.callback(component.stop)
        return component

    # -- requests

    def plan(self, metric: str, *, seconds: float, rate: float) -> Plan:
        """A plan of requests for a metric of all policies in turn."""
        pair = self.cluster.front_proxy_cert()
        return Plan(
            port=self.adapter.port,
            certificate=str(pair.cert_file),
            key=str(pair.key_file),
            headers=HEADERS,
            requests=[request(service, metric) for service in self.services],
            connections=8,
            seconds=seconds,
            rate=rate,
        )

    def plan_through_api_server(self, requests: list[tuple[str, str]], *, seconds: float, rate: float) -> Plan:
        """A plan of the administrator's requests to the API server."""
        pair = self.cluster.pki.client("admin", "system:masters")
        return Plan(
            port=self.cluster.layout.port("kube-apiserver"),
            certificate=str(pair.cert_file),
            key=str(pair.key_file),
            headers=[("Host", "127.0.0.1"), ("Accept", "application/json")],
            requests=requests,
            connections=8,
            seconds=seconds,
            rate=rate,
        )

    @property
    def pid(self) -> int:
        return self.adapter.component.pid or 0

    def first_answer(self, patience: float = 60) -> float:
        """Starts the adapter; returns the seconds from the start of its process to the first correct answer."""
        service = self.services[len(self.services) // 2]
        component, pair = self.adapter.component, self.cluster.front_proxy_cert()
        context = tls_context(None, pair.cert_file, pair.key_file)
        return first_answer(component, self.adapter.port, context, request(service, "effective_cpu"), patience)


def request(service: scene.Service, metric: str) -> tuple[str, str]:
    """The path of a metric of a service's policy, and what its answer contains."""
    base = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{service.namespace}/watermarkpolicies.effective-load.io"
    value = {"desired_replicas": str(service.replicas)}.get(metric, f"{service.milli}m")
    return f"{base}/{service.name}/{metric}", f'"value":"{value}"'


def first_answer(
    component: Component, port: int, context: ssl.SSLContext, wanted: tuple[str, str], patience: float
) -> float:
    """Starts an adapter; returns the seconds until it answers a `request` as wanted. `context`: the front proxy's."""
    target, expected = wanted
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    began = time.monotonic()
    component.start()
    favour(component.pid or 0)
    last = b""
    while time.monotonic() - began < patience:
        try:
            # Only one group is kept; the account itself has the rights.
            connection.request("GET", target, headers=dict(HEADERS))
            last = connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            last = str(error).encode()
            connection.close()
        if expected.encode() in last:
            connection.close()
            return time.monotonic() - began
        time.sleep(0.05)
    raise TimeoutError(f"no correct answer within {patience:g} s: {last!r}{component.tail()}")
