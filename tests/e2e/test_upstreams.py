"""In front of the real prometheus-adapter: its metrics and ours behind one adapter."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.harness.adapter import NAMESPACE, AdapterProcess, manifests
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.prometheus_adapter import PrometheusAdapter
from lab.harness.workloads import Workloads, external_metric, pods_metric, policy_metric
from tests.e2e.kit import prometheus_settings, query_watermarks

pytestmark = pytest.mark.builds("prometheus-adapter")
CUSTOM = "/apis/custom.metrics.k8s.io"
ACCOUNT = "effective-load-upstreams"


class Series(NamedTuple):
    """The page that the upstream and our queries read: jobs and orders by pod (the upstream), a queue (ours)."""

    exporter: Exporter
    prometheus: Prometheus

    def set(self, namespace: str, *, jobs: float = 0, orders: dict[str, float] | None = None, queue: float = 0) -> None:
        pods = {f'orders{{namespace="{namespace}",pod="{pod}"}}': value for pod, value in (orders or {}).items()}
        queues = {f'queue{{namespace="{namespace}",workload="web"}}': queue}
        self.exporter.set({f'jobs{{namespace="{namespace}"}}': jobs, **pods, **queues})


@pytest.fixture(scope="module")
def series() -> Iterator[Series]:
    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        yield Series(exporter, prometheus)


@pytest.fixture(scope="module")
def other(control_plane: ControlPlane, series: Series) -> Iterator[PrometheusAdapter]:
    """prometheus-adapter, running."""
    series.set("default", orders={"any": 1})
    series.prometheus.wait_value("orders", 1)  # it lists it from the start
    with PrometheusAdapter(control_plane, series.prometheus.url, series="orders", external="jobs") as running:
        yield running


@pytest.fixture(scope="module")
def front(
    control_plane: ControlPlane,
    _adapter: AdapterProcess,
    adapter_kubeconfig: Path,
    series: Series,
    other: PrometheusAdapter,
) -> Iterator[AdapterProcess]:
    """Our adapter in front of it, with the account that the component `upstreams` gives it."""
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
        for item in manifests(kind, folders=("components/upstreams",)):
            control_plane.client.apply(item)
    token = control_plane.folder / "upstreams-token"
    token.write_text(control_plane.token(NAMESPACE, ACCOUNT))
    trusted = {"caFile": str(control_plane.pki.cluster.file), "bearerTokenFile": str(token)}
    upstreams = {group: {"url": other.url, **trusted} for group in ("external", "custom")}
    settings = {**prometheus_settings(series.prometheus), "upstreams": upstreams}
    process = AdapterProcess(control_plane, settings, external=True, kubeconfig=adapter_kubeconfig, name="front")
    process.start()
    yield process
    process.stop()
    control_plane.watched.remove(process.component)
    _adapter.register()
    _adapter.wait_available()


@pytest.fixture
def scaled(workloads: Workloads, series: Series, front: AdapterProcess) -> Workloads:
    """`web` follows a policy by an External metric of ours, `jobs` one of the upstream's: a pod for each 2 jobs."""
    series.set(workloads.namespace, jobs=6, queue=300)
    for name in ("web", "jobs"):
        workloads.deployment(name, 1)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web", metrics=[external_metric("web")])
    two = {"type": "AverageValue", "averageValue": "2"}
    workloads.hpa("jobs", metrics=[{"type": "External", "external": {"metric": {"name": "jobs"}, "target": two}}])
    workloads.wait_replicas("web", 3)
    workloads.wait_replicas("jobs", 3)
    return workloads


def test_a_policy_scales_beside_an_hpa_of_the_upstream_and_goes_on_without_it(
    scaled: Workloads, series: Series, other: PrometheusAdapter, front: AdapterProcess
) -> None:
    other.component.kill()
    series.set(scaled.namespace, jobs=12, queue=500)
    scaled.wait_replicas("web", 5)
    cause = scaled.wait_condition(
        "jobs",
        "ScalingActive",
        status="False",
        contains="the upstream adapter for external.metrics.k8s.io",
        timeout=15,
    )
    assert "connection refused" in cause["message"]
    answer = scaled.client.raw(f"{CUSTOM}/v1beta2/namespaces/{scaled.namespace}/pods/%2A/orders")
    assert (answer.status, "connection refused" in answer.json()["message"]) == (503, True)
    assert scaled.replicas("jobs") == 3
    assert front.get("/readyz?verbose").status == 200
    other.component.start()
    scaled.wait_replicas("jobs", 6, timeout=30)


def test_custom_metrics_of_prometheus_adapter_scale_beside_ours(
    workloads: Workloads, series: Series, front: AdapterProcess
) -> None:
    workloads.deployment("web", 1)
    workloads.deployment("shop", 2)
    series.set(workloads.namespace, orders=dict.fromkeys(workloads.pod_names("shop"), 6), queue=300)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web", metrics=[policy_metric("web")])
    workloads.hpa("shop", metrics=[pods_metric("orders", "4")], maximum=3)
    workloads.wait_replicas("web", 3)
    workloads.wait_replicas("shop", 3)
    # A name of ours stays ours, though the upstream could be asked; the upstream's own error says whose it is.
    for metric, says in (
        ("effective_orders", "effective_orders has no value on pods"),
        ("absent", "upstream adapter: "),
    ):
        answer = workloads.client.raw(f"{CUSTOM}/v1beta2/namespaces/{workloads.namespace}/pods/%2A/{metric}")
        assert (answer.status, says in answer.json()["message"]) == (404, True)
