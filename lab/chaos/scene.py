"""The cluster with its services, inputs, adapter and companions, which the scenarios break and mend."""

import contextlib
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from lab.chaos.proxies import FalsifyingProxy, TcpProxy, before_metrics_server, before_prometheus
from lab.chaos.watch import Watch
from lab.harness import objects
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import Response
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
MOST = 20
"""Pods that rises lead to before a fall takes them away again, between two faults: the scene stays as large as it was,
so that what grows in an hour is the adapter.
"""
MAXIMUM = 300
_POLICIES = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/watermarkpolicies.effective-load.io"
QUERY = {
    "name": "load",
    "server": "main",
    "query": "sum by (namespace, pod) (load)",
    "intervalSeconds": 1,
    "maxAgeSeconds": 10,
}


class Scene(Scenery):
    """Use it as a context manager; everything is started on entry and ended on exit."""

    command: tuple[str, ...] = ("-m", "lab.chaos.shim")
    """What runs the adapter; the folder that it shares with the scene and `serve` follow."""
    watch: Watch

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.load = {name: each * PODS for name, each in CALM.items()}
        """The load of each service, which its serving pods share."""
        self.out: set[str] = set()
        """Pods that are pulled out."""
        self.loaded: dict[str, int] = {}
        """How many pods have shared each service's load since it was last set: it is not while the API server fails."""

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="effective-load-chaos-")))
        flags = {"downscale-stabilization": "0s"}
        self.cluster = stack.enter_context(ControlPlane(hpa_sync=1, hpa_flags=flags, prepared=install_crds))
        self.workloads = Workloads(self.cluster, NAMESPACE)
        self.workloads.make_namespace()
        self.exporter = stack.enter_context(Exporter())
        self.prometheus = stack.enter_context(Prometheus([self.exporter]))
        self.consul = stack.enter_context(Consul())
        self._begin_services()
        self._begin_proxies(stack)
        self._begin_processes(stack)
        self._begin_policies()
        self._direct = self.cluster.as_aggregator(self.adapter.port, "admin", "system:masters")
        self._begin_load(stack)
        self.watch = Watch(SERVICES, self.workloads.replicas, self.ask)
        stack.callback(self.watch.close)
        self.until_right(90)

    # --- what there is ---

    def _begin_services(self) -> None:
        counts = {name: PODS + (OUT if name == ROSTER else 0) for name in SERVICES}
        for name, count in counts.items():
            self.workloads.deployment(name, count, usage_cpu="1", wait=False)
        for name, count in counts.items():
            self.workloads.wait_ready(name, count)
        self.out = set(self.workloads.pod_names(ROSTER)[:OUT])
        self.register()
        self.consul.wait_listed("shop", counts[ROSTER])
        self._set_load()

    def register(self) -> None:
        """Registers the pods of the service with a registry; those that are out are critical from the first moment.

        Listed as healthy for some seconds of a busy machine, they would be idle pods that serve.
        """
        for pod in self.workloads.pods(ROSTER):
            name = pod["metadata"]["name"]
            check = {"TTL": "1h", "Status": "critical" if name in self.out else "passing"}
            self.consul.register("shop", name, pod["status"]["podIP"], Check=check)

    def serving(self) -> list[str]:
        """The registered pods that are not pulled out."""
        return sorted(set(self.workloads.pod_names(ROSTER)) - self.out)

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
        direct = f":{self.cluster.layout.port('kube-apiserver')}"
        kubeconfig = self.folder / "kubeconfig"
        text = account_kubeconfig(self.cluster).read_text()
        kubeconfig.write_text(text.replace(direct, f":{self.server_proxy.port}"))
        self.shim, self.small_disk = self.folder / "shim", self.folder / "tmp"
        self.shim.mkdir()
        self.small_disk.mkdir()
        self.settings = self._settings()
        command = (*self.command, str(self.shim), "serve")
        env = {"TMPDIR": str(self.small_disk)}
        self.adapter = AdapterProcess(self.cluster, self.settings, kubeconfig=kubeconfig, command=command, env=env)
        stack.enter_context(self.adapter)
        reset_lease(self.cluster)
        rights = companion_kubeconfig(self.cluster)
        pair = [
            CompanionProcess(self.cluster, self.settings, kubeconfig=rights, name=f"companion-{number}")
            for number in range(2)
        ]
        self.companions = [stack.enter_context(companion) for companion in pair]

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
            load = {"name": "load", "query": {"name": "load"}, "highWatermark": HIGH, "lowWatermark": LOW}
            registry = {"registry": {"name": "consul", "service": "shop"}} if name == ROSTER else {}
            metric = cpu_watermarks(HIGH, LOW) if name == CPU else load
            self.workloads.policy(name, [metric], tolerance="0%", **registry)
            self.workloads.hpa(name, maximum=MAXIMUM)

    def ask(self, service: str, metric: str = "desired_replicas") -> Response:
        """The adapter's own answer about a service."""
        return self._direct.raw(f"{_POLICIES}/{service}/{metric}", timeout=5)

    # --- load ---

    def _begin_load(self, stack: contextlib.ExitStack) -> None:
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(0.5):
                with contextlib.suppress(Exception):  # the API server may be what is broken
                    self._set_load()

        loader = threading.Thread(target=keep, daemon=True)
        loader.start()
        stack.callback(loader.join, 10)
        stack.callback(ended.set)

    def _set_load(self) -> None:
        """The serving pods share the service's load, those that were pulled out have none."""
        series: dict[str, float | str] = {}
        loaded = {}
        for name, load in self.load.items():
            pods = self.workloads.pod_names(name)
            loaded[name] = len([pod for pod in pods if pod not in self.out])
            for pod in pods:
                series[load_series(pod)] = 0 if pod in self.out else load / loaded[name]
        self.exporter.set(series)
        self.loaded = loaded

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

    def fall(self, seconds: float) -> None:
        """Where there are many pods by now: the load of the start, until the count has followed."""
        if self.workloads.replicas(LOAD) < MOST:
            return

        def has_followed() -> bool:
            """Only then no further step is due, the watch has seen the last one, and those that left have no load."""
            count = self.workloads.replicas(LOAD)
            is_seen = self.watch.counts[LOAD] == count == self.loaded[LOAD]
            return is_seen and count <= MOST // 2 and self.watch.answers.get(LOAD) == str(count)

        self.watch.may_fall_to = {LOAD: PODS}
        self.load[LOAD] = CALM[LOAD] * PODS
        try:
            until(has_followed, seconds, lambda: f"{self.watch.counts}, and the answers are {self.watch.answers}")
        finally:
            self.watch.may_fall_to = {}
            self.calm()
        self.until_right(seconds)

    # --- what is seen ---

    def until_right(self, seconds: float) -> None:
        """Waits until each service's answer is right."""
        until(lambda: not self.wrong(), seconds, self.wrong, 0.2)

    def wrong(self) -> str:
        """Which services' answers are not their counts, in words."""
        counts = {name: str(self.workloads.replicas(name)) for name in SERVICES}
        return "; ".join(
            f"{name} has {count} and the answer is {self.watch.answers.get(name)}"
            for name, count in counts.items()
            if self.watch.answers.get(name) != count
        )

    def leader(self) -> CompanionProcess | None:
        """The companion that leads; one that is stopped is not asked."""
        for companion in self.companions:
            with contextlib.suppress(OSError):
                if companion.component.running and companion.leads:
                    return companion
        return None

    def step_clock(self, seconds: float) -> None:
        (self.shim / "offset").write_text(str(seconds))


def load_series(pod: str) -> str:
    """The series of a pod's load."""
    return f'load{{namespace="{NAMESPACE}",pod="{pod}"}}'


def freeze(*processes: Any) -> None:
    for one in processes:
        one.signal(signal.SIGSTOP)


def thaw(*processes: Any) -> None:
    for one in processes:
        one.signal(signal.SIGCONT)
