"""The cluster with its services, inputs, adapter and companions, which the scenarios break and mend."""

import contextlib
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from lab.faults.proxies import FalsifyingProxy, TcpProxy, before_metrics_server, before_prometheus
from lab.faults.watch import Size, Watch
from lab.harness import objects
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import Client
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import CLUSTER_METRICS, ControlPlane
from lab.harness.processes import Scenery
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.registries.consul import Consul
from lab.harness.workloads import Workloads, cpu_watermarks, until

NAMESPACE = "faults"
CPU, LOAD, ROSTER = "by-cpu", "by-load", "by-roster"
SERVICES = (CPU, LOAD, ROSTER)
PODS = 6
OUT = 2
"""Pods of the service with a registry that are pulled out; without that knowledge it would shrink."""
HIGH, LOW = "1200m", "800m"
CALM = {LOAD: 1.1, ROSTER: 0.9}
"""Load of a serving pod within the watermarks. On the way up a new pod's first samples add to older ones of the others,
so that a count may go a pod or two beyond its need: at 1.1 those pods stay. At 0.9 a service that forgets who is pulled
out shrinks.
"""
ONE_MORE = 1.2
"""What a service needs one more pod for: load of half a pod at the high watermark beyond what its pods take."""
MAXIMUM = 300
_POLICIES = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/watermarkpolicies.effective-load.io"
METRIC = _POLICIES + "/{}/desired_replicas"
QUERY = {
    "name": "load",
    "server": "main",
    "query": "sum by (namespace, pod) (load)",
    "intervalSeconds": 1,
    "maxAgeSeconds": 10,
}


class Scene(Scenery):
    """Use it as a context manager; everything is started on entry and ended on exit."""

    command: tuple[str, ...] = ("-m", "lab.faults.shim")
    """What runs the adapter; the folder that it shares with the scene and `serve` follow."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="effective-load-faults-")))
        self.cluster = stack.enter_context(ControlPlane(hpa_sync=1, hpa_flags={"downscale-stabilization": "0s"}))
        install_crds(self.cluster)
        self.cluster.client.create(objects.namespace(NAMESPACE))
        self.cluster.client.wait_for(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", timeout=30)
        self.workloads = Workloads(self.cluster, NAMESPACE)
        self.exporter = stack.enter_context(Exporter())
        self.prometheus = stack.enter_context(Prometheus([self.exporter]))
        self.consul = stack.enter_context(self._registry())
        self._begin_services()
        self._begin_proxies(stack)
        self._begin_processes(stack)
        self._begin_watch(stack)
        self.until_right(90)

    # --- what there is ---

    def _registry(self) -> Consul:
        return Consul()

    def _begin_services(self) -> None:
        self.load = {name: each * PODS for name, each in CALM.items()}
        """The load of each service, which its serving pods share."""
        self.out: dict[str, list[str]] = {}
        for name in SERVICES:
            count = PODS + (OUT if name == ROSTER else 0)
            self.workloads.deployment(name, count, usage_cpu="1", wait=False)
        for name in SERVICES:
            self.workloads.wait_ready(name, PODS + (OUT if name == ROSTER else 0))
        pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.workloads.pods(ROSTER)}
        for name, ip in pods.items():
            self.consul.register("shop", name, ip)
        self.consul.wait_listed("shop", len(pods))
        self.out[ROSTER] = sorted(pods)[:OUT]
        self.pull_out()
        self._set_load()

    def pull_out(self) -> None:
        for pod in self.out[ROSTER]:
            self.consul.maintenance(pod, on=True)

    def register_again(self) -> None:
        """Tells a Consul that lost its data what it knew."""
        for pod in self.workloads.pods(ROSTER):
            self.consul.register("shop", pod["metadata"]["name"], pod["status"]["podIP"])
        self.pull_out()

    def registered_in(self) -> list[str]:
        """The pods that Consul has and that are not pulled out."""
        return [pod for pod in self.workloads.pod_names(ROSTER) if pod not in self.out[ROSTER]]

    def _begin_proxies(self, stack: contextlib.ExitStack) -> None:
        pair = self.cluster.pki.cluster.issue("metrics-proxy", hosts=["localhost", "127.0.0.1"])
        asked = self.cluster.as_aggregator(self.cluster.layout.port("metrics-server"), "admin", "system:masters")
        self.metrics_proxy: FalsifyingProxy = stack.enter_context(
            before_metrics_server(asked, pair.cert_file, pair.key_file)
        )
        port = self.metrics_proxy.port
        self.cluster.client.apply(objects.external_service("metrics-server", "kube-system", port))
        self.cluster.client.apply(
            objects.api_service(CLUSTER_METRICS, "v1beta1", ("kube-system", "metrics-server", port))
        )
        self.prometheus_proxy: FalsifyingProxy = stack.enter_context(before_prometheus(self.prometheus.port))
        self.server_proxy = stack.enter_context(TcpProxy(self.cluster.layout.port("kube-apiserver"), self.seed))

    def _begin_processes(self, stack: contextlib.ExitStack) -> None:
        kubeconfig = self.folder / "kubeconfig"
        account = account_kubeconfig(self.cluster).read_text()
        port = self.cluster.layout.port("kube-apiserver")
        kubeconfig.write_text(account.replace(f":{port}", f":{self.server_proxy.port}"))
        self.shim = self.folder / "shim"
        self.shim.mkdir()
        self.small_disk = self.folder / "tmp"
        self.small_disk.mkdir()
        self.settings = self._settings()
        command = (*self.command, str(self.shim), "serve")
        env = {"TMPDIR": str(self.small_disk)}
        self.adapter = AdapterProcess(self.cluster, self.settings, kubeconfig=kubeconfig, command=command, env=env)
        stack.enter_context(self.adapter)
        reset_lease(self.cluster)
        rights = companion_kubeconfig(self.cluster)
        self.companions = [stack.enter_context(self._companion(f"companion-{number}", rights)) for number in range(2)]
        self._begin_policies()

    def _companion(self, name: str, rights: Path) -> CompanionProcess:
        return CompanionProcess(self.cluster, self.settings, kubeconfig=rights, name=name)

    def _settings(self) -> dict[str, Any]:
        return {
            "resourceMetrics": {"intervalSeconds": 2},
            "prometheus": {
                "servers": [{"name": "main", "url": f"http://127.0.0.1:{self.prometheus_proxy.port}"}],
                "queries": [QUERY],
            },
            "registries": [{"name": "consul", "type": "Consul", "servers": [self.consul.url]}],
        }

    def _begin_policies(self) -> None:
        for name in SERVICES:
            metric = (
                cpu_watermarks(HIGH, LOW)
                if name == CPU
                else {"name": "load", "query": {"name": "load"}, "highWatermark": HIGH, "lowWatermark": LOW}
            )
            registry: dict[str, Any] = {"registry": {"name": "consul", "service": "shop"}} if name == ROSTER else {}
            self.workloads.policy(name, [metric], tolerance="0%", **registry)
            self.workloads.hpa(name, maximum=MAXIMUM)

    def _begin_watch(self, stack: contextlib.ExitStack) -> None:
        self._direct: Client = self.cluster.as_aggregator(self.adapter.port, "admin", "system:masters")
        self._begin_load(stack)
        self.watch = Watch(SERVICES, self.workloads.replicas, self._ask)
        stack.callback(self.watch.close)

    def _ask(self, service: str) -> tuple[int, bytes]:
        answer = self._direct.raw(METRIC.format(service), timeout=5)
        return answer.status, answer.body

    # --- load ---

    def _begin_load(self, stack: contextlib.ExitStack) -> None:
        stack.callback(self._end_load)
        self._ended = threading.Event()
        self._loader = threading.Thread(target=self._keep_load, daemon=True)
        self._loader.start()

    def _end_load(self) -> None:
        self._ended.set()
        self._loader.join(10)

    def _keep_load(self) -> None:
        while not self._ended.wait(0.5):
            with contextlib.suppress(Exception):  # the API server may be what is broken
                self._set_load()

    def _set_load(self) -> None:
        """The serving pods share the service's load, those that were pulled out have none."""
        series: dict[str, float | str] = {}
        for name, load in self.load.items():
            pods, out = self.workloads.pod_names(name), self.out.get(name, [])
            each = load / (len(pods) - len(out))
            for pod in pods:
                series[f'load{{namespace="{NAMESPACE}",pod="{pod}"}}'] = 0 if pod in out else each
        self.exporter.set(series)

    def rise(self, seconds: float) -> None:
        """So much load that one more pod is needed, until the count follows; then less, within the watermarks."""
        before = self.workloads.replicas(LOAD)
        self.load[LOAD] = ONE_MORE * (before + 0.5)
        try:
            until(
                lambda: self.workloads.replicas(LOAD) > before,
                seconds,
                lambda: f"{LOAD} stays at {before}; the answer is {self.watch.answers.get(LOAD)}",
            )
        finally:
            self.calm()

    def calm(self) -> None:
        """A load within the watermarks of the count that there is."""
        self.load[LOAD] = CALM[LOAD] * self.workloads.replicas(LOAD)

    # --- what is seen ---

    def until_right(self, seconds: float) -> None:
        """Waits until each service's answer is its count."""

        def wrong() -> str:
            counts = {name: str(self.workloads.replicas(name)) for name in SERVICES}
            return "; ".join(
                f"{name} has {count} and the answer is {self.watch.answers.get(name)}"
                for name, count in counts.items()
                if self.watch.answers.get(name) != count
            )

        until(lambda: not wrong(), seconds, wrong)

    def size(self) -> Size:
        return size_of(self._process(), self.shim)

    def _process(self) -> int:
        """The adapter's process: the component's own, or the child of the shim that started it."""
        pid = self.adapter.component.pid
        assert pid is not None
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else pid

    def leader(self) -> CompanionProcess | None:
        """The companion that leads; one that is stopped is not asked."""
        for one in self.companions:
            with contextlib.suppress(OSError):
                if one.component.running and one.leads:
                    return one
        return None

    def step_clock(self, seconds: float) -> None:
        (self.shim / "offset").write_text(str(seconds))


def size_of(pid: int, shim: Path) -> Size:
    """What a process uses; `shim` is its folder of lab.faults.shim."""
    links = [_link(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Size(
        memory=int(status["VmRSS"].split()[0]) / 1024,
        tasks=int((shim / "tasks").read_text()),
        sockets=sum(link.startswith("socket:") for link in links),
        threads=int(status["Threads"]),
    )


def _link(path: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - the text, also where it leads nowhere
    return ""


def freeze(*processes: Any) -> None:
    for one in processes:
        one.signal(signal.SIGSTOP)


def thaw(*processes: Any) -> None:
    for one in processes:
        one.signal(signal.SIGCONT)
