"""A source that has lost a part of what it read: the part that is left must not shrink a service."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import prometheus_settings, scaled

POD = "sum by (namespace, pod) (load)"
TWO_WINDOWS = "sum by (namespace, pod) (rate(work_total[20s])) + 0 * sum by (namespace, pod) (rate(work_total[10s]))"
TOTAL_OF_TWO_WINDOWS = "sum(rate(work_total[20s])) + 0 * sum(rate(work_total[10s]))"
SUBQUERY = "max_over_time(sum(rate(work_total[10s]))[4s:1s])"


def _settings(server: Prometheus, text: str, *, scope: str = "Pods") -> dict[str, Any]:
    settings = prometheus_settings(server)
    settings["prometheus"]["queries"][0] |= {"query": text, "scope": scope}
    return settings


def test_a_total_that_has_lost_all_but_one_of_its_pods_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    """Six pods are scraped, then one: a network policy, a node pool or a discovery took the others."""
    make_adapter(_settings(prometheus, 'sum(load{namespace="$namespace"})', scope="Service"))
    workloads.deployment("web", 6)
    names = workloads.pod_names("web")
    exporter.pods("load", workloads.namespace, dict.fromkeys(names, 0.45))
    scaled(workloads, 6, syncs=2)
    exporter.pods("load", workloads.namespace, dict.fromkeys(names[:1], 0.45))
    workloads.hold_replicas("web", 6, 8)


def test_a_pod_that_has_lost_one_of_its_two_targets_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads
) -> None:
    """Each pod has two scraped ports, or two ingresses report it: half of its load is not half of a load."""
    with Exporter() as one, Exporter() as other, Prometheus([one, other]) as server:
        make_adapter(_settings(server, POD))
        workloads.deployment("web", 6)
        for target in (one, other):
            target.pods("load", workloads.namespace, dict.fromkeys(workloads.pod_names("web"), 0.225))
        scaled(workloads, 6, syncs=2)
        other.failing = True
        workloads.hold_replicas("web", 6, 8)


@pytest.mark.parametrize(
    ("text", "scope"),
    [(TWO_WINDOWS, "Pods"), (TOTAL_OF_TWO_WINDOWS, "Service"), (SUBQUERY, "Service")],
    ids=["pods", "total", "subquery"],
)
def test_missed_scrapes_of_windows_that_nobody_counts_shrink_nothing(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    ticking: Callable[[str, list[str], float], None],
    text: str,
    scope: str,
) -> None:
    make_adapter(_settings(prometheus, text, scope=scope))
    workloads.deployment("web", 6)
    ticking(workloads.namespace, workloads.pod_names("web"), 0.41)
    scaled(workloads, 6, syncs=2)
    workloads.hold_replicas("web", 6, 25)  # the windows are full, and the adapter is no newcomer
    exporter.failing = True
    workloads.hold_replicas("web", 6, 6)
    exporter.failing = False
    workloads.hold_replicas("web", 6, 15)


@pytest.fixture
def ticking(exporter: Exporter) -> Callable[[str, list[str], float], None]:
    """Writes a counter of each pod that grows with the clock by so much a second."""

    def write(namespace: str, pods: list[str], rate: float) -> None:
        began = time.monotonic()

        def page() -> str:
            worked = (time.monotonic() - began) * rate
            return "".join(f'work_total{{namespace="{namespace}",pod="{pod}"}} {worked}\n' for pod in pods)

        exporter.set_page(page)

    return write
