"""The policy's own pace on the stock HPA: velocity, cooldown, schedules, fallback, zero, and an end of replacing."""

import datetime as dt
import secrets
from collections.abc import Iterator

import pytest

from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import PULLED_OUT, Load, prometheus_settings, query_watermarks

COOLDOWN = 12
SOON = 5
"""Seconds: a sync of the HPA, and a margin for a busy machine."""


@pytest.fixture
def load(exporter: Exporter, workloads: Workloads) -> Load:
    return Load(exporter, workloads)


def last_scale(workloads: Workloads, since: dt.datetime | None = None) -> dt.datetime:
    """The HPA's own lastScaleTime, which follows the scaling after a moment."""

    def told() -> dt.datetime | None:
        text = workloads.hpa_status("web").get("lastScaleTime")
        at = dt.datetime.fromisoformat(text) if text else None
        return at if at is not None and (since is None or at > since) else None

    until(lambda: told() is not None, 30, lambda: "the HPA does not say when it scaled")
    found = told()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("current", "queue", "velocity", "expected"),
    [(3, 600, {"scaleUpPercent": 20}, [4, 5, 6]), (7, 120, {"scaleDownPercent": 1}, [6, 5, 4, 3])],
)
def test_velocity_is_kept_at_each_sync(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    load: Load,
    prometheus: Prometheus,
    current: int,
    queue: int,
    velocity: dict[str, int],
    expected: list[int],
) -> None:
    load.queue("web", queue)
    workloads.deployment("web", current)
    workloads.policy("web", [query_watermarks("queue", "100", "40")], velocity=velocity)
    workloads.hpa("web", minimum=2, maximum=7)
    make_adapter(prometheus_settings(prometheus))
    workloads.wait_replicas("web", expected[-1])
    until(lambda: workloads.rescaled("web") == expected, 30, lambda: str(workloads.rescaled("web")))
    workloads.hold_replicas("web", expected[-1])


def test_a_cooldown_is_kept_by_an_adapter_started_during_it(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, prometheus: Prometheus
) -> None:
    load.queue("web", 300)
    workloads.deployment("web", 2)
    workloads.policy("web", [query_watermarks("queue", "100", "40")], cooldown={"scaleUpSeconds": COOLDOWN})
    workloads.hpa("web")
    adapter = make_adapter(prometheus_settings(prometheus))
    workloads.wait_replicas("web", 3)
    first = last_scale(workloads)
    load.queue("web", 600)
    adapter.kill()
    adapter.restart()
    workloads.wait_replicas("web", 6)
    until(lambda: workloads.rescaled("web") == [3, 6], 30, lambda: str(workloads.rescaled("web")))
    assert (last_scale(workloads, first) - first).total_seconds() >= COOLDOWN


def test_the_fallback_applies_once_the_error_has_lasted(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, prometheus: Prometheus
) -> None:
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 2)
    load.each("web", 0.8)
    after = 10
    workloads.policy(
        "web", [query_watermarks("load", "1200m", "400m")], fallback={"afterSeconds": after, "replicas": 5}
    )
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    prometheus.kill()
    failing = workloads.wait_condition("web", "ScalingActive", status="False", contains="query load")
    workloads.wait_replicas("web", 5)
    since = dt.datetime.fromisoformat(failing["lastTransitionTime"])
    assert (last_scale(workloads) - since).total_seconds() >= after - SOON
    workloads.hold_replicas("web", 5)


def test_a_young_pod_that_is_pulled_out_is_not_replaced_before_its_age(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, prometheus: Prometheus
) -> None:
    """Else replacements that are pulled out themselves would be replaced without end."""
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 4)
    load.each("web", 1.2)
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")], pulledOut={"replaceAfterSeconds": 0})
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    newcomer = workloads.pod_names("web")[-1]
    workloads.annotate(newcomer, {PULLED_OUT: "true"})
    load.each("web", 4.8 / 3, but={newcomer: 0.0})
    workloads.hold_replicas("web", 4)
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{workloads.namespace}/watermarkpolicies/web"
    workloads.client.patch(path, {"spec": {"pulledOut": {"minAgeSeconds": 0}}})
    workloads.wait_replicas("web", 5)


@pytest.fixture(scope="module")
def zero_cluster() -> Iterator[ControlPlane]:
    """A control plane whose HPAs may go to zero."""
    with ControlPlane(gates="HPAScaleToZero=true", metrics_server=False, hpa_sync=1, prepared=install_crds) as cluster:
        yield cluster


@pytest.mark.timeout(240)
def test_an_idle_service_sleeps_and_wakes_with_its_queue(
    zero_cluster: ControlPlane, exporter: Exporter, prometheus: Prometheus
) -> None:
    workloads = Workloads(zero_cluster, f"zero-{secrets.token_hex(3)}")
    workloads.make_namespace()
    load = Load(exporter, workloads)
    load.queue("web", 250)
    workloads.deployment("web", 3)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web", minimum=0)
    kubeconfig = account_kubeconfig(zero_cluster)
    with AdapterProcess(zero_cluster, prometheus_settings(prometheus), kubeconfig=kubeconfig):
        workloads.wait_condition("web", "ScalingActive")
        workloads.hold_replicas("web", 3)
        load.queue("web", 0)
        workloads.wait_replicas("web", 0)
        workloads.hold_replicas("web", 0)
        load.queue("web", 1)
        workloads.wait_replicas("web", 1)
        load.queue("web", 250)
        workloads.wait_replicas("web", 3)
