"""Services beside the demo's, each in a state of its own, so that the dashboard *Fleet* has something to tell."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.harness import objects
from lab.harness.control_plane import ControlPlane
from lab.harness.registries.consul import Consul
from lab.harness.workloads import Workloads, until

HIGH, LOW = "800m", "600m"
REGISTRY = "consul"
_PORT = 8080
_ABSENT = 4
"""More pods of the registered service than a registry may take out by leaving them out: they stay doubtful."""


@dataclass(frozen=True, slots=True)
class Service:
    """A Deployment with a policy. `spec` are further fields of the policy; without `wired` there is no HPA."""

    namespace: str
    name: str
    pods: int
    cpu: str
    least: int = 3
    most: int = 20
    wired: bool = True
    metric: str = "cpu"
    spec: Mapping[str, Any] = field(default_factory=dict)


REGISTERED = Service("search", "suggest", 6, "700m", spec={"registry": {"name": REGISTRY, "service": "suggest"}})
SERVICES = (
    Service("shop", "cart", 4, "700m"),
    Service("shop", "catalog", 4, "90m", least=4),
    Service("search", "query", 8, "1000m", most=8),
    REGISTERED,
    Service("media", "thumbnails", 3, "900m", spec={"mode": "Observe"}),
    Service("media", "encode", 5, "450m", wired=False),
    Service("payments", "ledger", 3, "400m", metric="orders"),
)
"""Inside; below at its fewest; above at its most; doubtful; only observed; without an HPA; without an answer."""

SETTINGS: Mapping[str, Any] = {
    "resourceMetrics": {"intervalSeconds": 2},
    "prometheus": {
        "servers": [{"name": "orders", "url": "http://127.0.0.1:9"}],
        "queries": [{"name": "orders", "server": "orders", "query": "sum by (namespace, pod) (orders)"}],
    },
}
"""Settings of the adapter: short intervals, and a Prometheus that nobody is."""


@contextmanager
def fleet(cluster: ControlPlane, registry: Consul) -> Iterator[None]:
    """All services, running and registered; the registry loses some of the registered ones."""
    for namespace in sorted({one.namespace for one in SERVICES}):
        cluster.client.create(objects.namespace(namespace))
        cluster.client.wait_for(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", timeout=30)
    for one in SERVICES:
        _start(Workloads(cluster, one.namespace), one)
    _register(Workloads(cluster, REGISTERED.namespace), registry)
    yield


def _start(workloads: Workloads, one: Service) -> None:
    workloads.deployment(one.name, one.pods, cpu_request="100m", usage_cpu=one.cpu)
    source = {"resource": {"name": "cpu"}} if one.metric == "cpu" else {"query": {"name": one.metric}}
    metric = {"name": one.metric, **source, "highWatermark": HIGH, "lowWatermark": LOW}
    workloads.policy(one.name, [metric], **one.spec)
    if one.wired:
        workloads.hpa(one.name, minimum=one.least, maximum=one.most)


def _register(workloads: Workloads, registry: Consul) -> None:
    for pod in workloads.pods(REGISTERED.name):
        registry.register(REGISTERED.name, pod["metadata"]["name"], pod["status"]["podIP"], _PORT)
    registry.wait_listed(REGISTERED.name, REGISTERED.pods)


def lose(cluster: ControlPlane, registry: Consul) -> None:
    """The registry loses pods of the registered service, once the adapter has seen them there."""
    workloads = Workloads(cluster, REGISTERED.namespace)
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{REGISTERED.namespace}/watermarkpolicies/{REGISTERED.name}"
    until(lambda: "status" in cluster.client.get(path), 60, lambda: f"{REGISTERED.name} has no status")
    for pod in workloads.pod_names(REGISTERED.name)[:_ABSENT]:
        registry.deregister(pod)
