"""The scene for the cost of a Prometheus source: a real Prometheus, a control plane, and HPAs that follow its series.

    with PrometheusScene(controller=True) as scene:
        scene.put_policies()
        with AdapterProcess(scene.cluster, scene.settings("requests")) as adapter: ...

Prometheus scrapes 1,000 services of 20 pods (`lab/benchmarks/prometheus_page.py`), namespace by namespace. 300 of them
are objects as well: Deployments, pods and EndpointSlices, and the HPAs of one adapter at a time, which keep 20 pods at
this load. The controller manager, where there is one, is the stock one: a sync every 15 s, its own limit of requests.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.benchmarks import scene, store
from lab.benchmarks.load import Plan
from lab.benchmarks.prometheus_page import requests_per_second
from lab.benchmarks.stage import HEADERS
from lab.harness import keda, objects
from lab.harness.adapter import install_crds
from lab.harness.binaries import print_to_stderr
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Scenery, free_ports
from lab.harness.prometheus import Prometheus

ROOT = Path(__file__).resolve().parents[2]
CONTROLLERS = "horizontal-pod-autoscaler-controller,serviceaccount-controller"
"""No other one may run: the pods and Deployments belong to no ReplicaSet that exists."""
STOCK_LIMITS = {"kube-api-qps": "20", "kube-api-burst": "30"}
RATE = "rate(http_requests_total{selector}[1m])"
QUERIES: dict[str, dict[str, Any]] = {
    "requests": {"query": f"sum by (namespace, pod) ({RATE.format(selector='')})"},
    "service_requests": {"query": f"sum by (namespace, service) ({RATE.format(selector='')})", "scope": "Service"},
    "sample_time": {"query": "max by (namespace, service) (sample_time_seconds)", "scope": "Service"},
}
"""Named queries for our settings, by name: by pod, by service, and the time of the newest sample."""
_HPAS = "/apis/autoscaling/v2"
_PATIENCE_SECONDS = 180

Object = dict[str, Any]
Services = Sequence[scene.Service] | None
"""Some of the services with objects; None is all of them."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Numbers of services, of pods of each, of those with objects and HPAs, of namespaces, and the scrape interval."""

    services: int = 1000
    pods: int = 20
    scaled: int = 300
    namespaces: int = 20
    scrape_seconds: int = 15


class PrometheusScene(Scenery):
    """Prometheus and a control plane with the objects; `controller` is whether a controller manager runs.

    The rates are right a minute after the start. With `wait` false the caller does something else meanwhile, and calls
    `wait_rates` itself.
    """

    def __init__(self, size: Size | None = None, *, controller: bool = False, wait: bool = True) -> None:
        self.size = size or Size()
        self.services = scene.services(self.size.services, self.size.services * self.size.pods, self.size.namespaces)
        self.scaled = self.services[: self.size.scaled]
        self._controller, self._wait = controller, wait

    def _start(self, stack: ExitStack) -> None:
        began = time.monotonic()
        self._start_prometheus()
        self.cluster = self._control_plane()
        stack.enter_context(self.cluster)
        counts = (self.size.services, self.size.pods, self.size.namespaces)
        line = [sys.executable, "-m", "lab.benchmarks.prometheus_page", str(self._page_port), *map(str, counts)]
        self.page = Component("page", line, self.cluster.folder / "page.log", cwd=ROOT)
        self._stack.callback(self.page.stop)
        self.page.start()
        self._fill()
        if self._wait:
            self.wait_rates()
        print_to_stderr(f"the scene is there after {time.monotonic() - began:.0f} s")

    def _control_plane(self) -> ControlPlane:
        cluster = ControlPlane(
            nodes=0,
            controller_manager=self._controller,
            scheduler=False,
            kwok=False,
            metrics_server=False,
            hpa_sync=15,
            controllers=CONTROLLERS,
            announce=print_to_stderr,
        )
        cluster.hpa_flags |= STOCK_LIMITS
        return cluster

    def _start_prometheus(self) -> None:
        [self._page_port] = free_ports(1)
        target = {"targets": [f"127.0.0.1:{self._page_port}"]}
        jobs = [
            {"job_name": namespace, "params": {"namespace": [namespace]}, "static_configs": [target]}
            for namespace in self.namespaces
        ]
        self.prometheus = Prometheus(
            interval=f"{self.size.scrape_seconds}s", config={"scrape_configs": jobs}, announce=print_to_stderr
        )
        self._stack.enter_context(self.prometheus)

    def _fill(self) -> None:
        client = self.cluster.client
        install_crds(self.cluster)
        for namespace in self.namespaces:
            client.create(objects.namespace(namespace))
        for service in self.scaled:
            self._put((f"/registry/deployments/{service.namespace}/{service.name}", scene.deployment(service)))
            store.put(self._etcd, [item for item in scene.stored(service) if "horizontalpod" not in item[0]])

    @property
    def namespaces(self) -> list[str]:
        return sorted({service.namespace for service in self.services})

    @property
    def _etcd(self) -> int:
        return self.cluster.layout.port("etcd")

    def _put(self, *items: tuple[str, Object]) -> None:
        store.put(self._etcd, items)

    def wait_rates(self) -> None:
        """Waits until the rate of each service is right: a minute of samples."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        wanted = {service.name: self.size.pods * requests_per_second(service) for service in self.services}
        while True:
            result = self.prometheus.query(f"sum by (service) ({RATE.format(selector='')})")
            rates = {one["metric"]["service"]: float(one["value"][1]) for one in result}
            right = sum(abs(rates.get(name, 0) / load - 1) < 0.06 for name, load in wanted.items())
            if right == len(wanted):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{right} of {len(wanted)} rates are right after {_PATIENCE_SECONDS} s")
            time.sleep(1)

    # -- processes

    def processes(self) -> dict[str, int]:
        """The processes of the scene, by name; for `lab.benchmarks.attribution.Meter`."""
        running = [component for component in self.cluster.components.values() if component.running]
        found = {component.name: component.pid or 0 for component in running}
        if self.prometheus.component.running:
            found["prometheus"] = self.prometheus.component.pid or 0
        return found

    # -- ours

    def settings(self, *names: str) -> dict[str, Any]:
        """Settings with these of the QUERIES."""
        server = {"name": "main", "url": self.prometheus.url}
        queries = [{"name": name, "server": "main", **QUERIES[name]} for name in names]
        return {"prometheus": {"servers": [server], "queries": queries}}

    def put_policies(self, services: Services = None) -> None:
        """A policy for each of these services, with watermarks around its load, and the HPA that follows it."""
        for service in services or self.scaled:
            self.cluster.client.apply(policy(service))
            self._put(hpa(service, scene.hpa(service)["spec"]))

    def count_path(self, service: scene.Service) -> str:
        """The path of `desired_replicas` of a service's policy."""
        base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces"
        return f"{base}/{service.namespace}/watermarkpolicies.effective-load.io/{service.name}/desired_replicas"

    def external_path(self, service: scene.Service, metric: str) -> str:
        """The path of an External metric that is selected by the service's name."""
        base = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
        return f"{base}/{service.namespace}/{metric}?labelSelector=service%3D{service.name}"

    def put_metric_hpas(self, metric: Callable[[scene.Service], Object], services: Services = None) -> None:
        """An HPA for each of these services, with this metric and everything else by default."""
        for service in services or self.scaled:
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name}
            bounds = {"minReplicas": 2, "maxReplicas": 100}
            self._put(hpa(service, {"scaleTargetRef": target, **bounds, "metrics": [metric(service)]}))

    # -- KEDA

    def put_scaled_objects(self, services: Services = None, *, cached: bool = False, **spec: Any) -> None:
        """A ScaledObject for each of these services; KEDA makes the HPAs. `cached`: with `useCachedMetrics`."""
        for service in services or self.scaled:
            self.cluster.client.apply(self.scaled_object(service, cached=cached, **spec))

    def scaled_object(self, service: scene.Service, *, cached: bool = False, **spec: Any) -> Object:
        selector = f'{{namespace="{service.namespace}",service="{service.name}"}}'
        metadata = {
            "serverAddress": self.prometheus.url,
            "query": f"sum({RATE.format(selector=selector)})",
            "threshold": f"{requests_per_second(service):g}",
        }
        trigger = {"type": "prometheus", "metadata": metadata, **({"useCachedMetrics": True} if cached else {})}
        bounds = {"minReplicaCount": 2, "maxReplicaCount": 100}
        return keda.scaled_object(service.namespace, service.name, trigger, **bounds, **spec)

    def keda_path(self, service: scene.Service) -> str:
        """The path of the metric of a service's ScaledObject."""
        base = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
        selector = f"scaledobject.keda.sh%2Fname%3D{service.name}"
        return f"{base}/{service.namespace}/s0-prometheus?labelSelector={selector}"

    # -- HPAs and requests

    def remove_hpas(self) -> None:
        """Removes all HPAs and what makes them: policies and ScaledObjects (KEDA's operator may be gone)."""
        client, keda_api = self.cluster.client, "/apis/keda.sh/v1alpha1"
        for item in client.list(f"{keda_api}/scaledobjects") if client.find(keda_api) else ():
            path = f"{keda_api}/namespaces/{item['metadata']['namespace']}/scaledobjects/{item['metadata']['name']}"
            client.patch(path, {"metadata": {"finalizers": None}})
            client.delete(path)
        self.remove_policies()
        self.remove_only_hpas()

    def remove_policies(self) -> None:
        """Removes all policies and their HPAs, not KEDA's."""
        client = self.cluster.client
        for namespace in self.namespaces:
            client.delete(f"/apis/effective-load.io/v1alpha1/namespaces/{namespace}/watermarkpolicies")
        for service in self.scaled:
            client.delete(f"{_HPAS}/namespaces/{service.namespace}/horizontalpodautoscalers/{service.name}")

    def remove_only_hpas(self) -> None:
        """Removes all HPAs, and nothing of what makes them."""
        for namespace in self.namespaces:
            self.cluster.client.delete(f"{_HPAS}/namespaces/{namespace}/horizontalpodautoscalers")

    def replicas(self) -> dict[str, int]:
        """`spec.replicas` by service: what the HPAs made of it."""
        items = self.cluster.client.list("/apis/apps/v1/deployments")
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in items}

    def plan(self, port: int, paths: Iterable[str], *, seconds: float, rate: float = 20) -> Plan:
        """Requests for these paths in turn, straight to an adapter with the front proxy's certificate.

        Answers of status 503 are counted as refused.
        """
        pair = self.cluster.front_proxy_cert()
        return Plan(
            port=port,
            certificate=str(pair.cert_file),
            key=str(pair.key_file),
            headers=HEADERS,
            requests=[(path, "") for path in paths],
            connections=8,
            seconds=seconds,
            rate=rate,
            tolerant=True,
        )


def policy(service: scene.Service) -> Object:
    """A policy whose watermarks are a third above and below the requests of one pod."""
    load = requests_per_second(service)
    metric = {
        "name": "requests",
        "query": {"name": "requests"},
        "highWatermark": f"{load * 4 / 3:.3f}",
        "lowWatermark": f"{load * 2 / 3:.3f}",
    }
    head = {"name": service.name, "namespace": service.namespace}
    kind = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy"}
    return {**kind, "metadata": head, "spec": {"metrics": [metric]}}


def hpa(service: scene.Service, spec: Object) -> tuple[str, Object]:
    """The key and the object of a service's HPA."""
    whole = scene.hpa(service)
    return f"/registry/horizontalpodautoscalers/{service.namespace}/{service.name}", {**whole, "spec": spec}
