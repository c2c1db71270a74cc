"""Rates while scrapes are missed and samples are lost: a real Prometheus, real counters, an unchanged load.

The service needs all of its pods: a rate that reads a tenth less would shrink it.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import query_watermarks

PODS, LOAD = 6, 0.43
WINDOW = 6
HIGH, LOW = "1200m", "400m"
SERVICES = ("by-pod", "total", "two-windows", "smooth")
"""Each follows the query of its name. Nobody counts the samples of a query with two windows, or with a subquery."""


class Services:
    """Services of six pods, each of which is scaled on a query, and a counter for each of their pods: the demand on a
    service is shared by the pods that are there.
    """

    def __init__(self, workloads: Workloads, names: Sequence[str] = SERVICES) -> None:
        for name in names:
            workloads.deployment(name, PODS, wait=False)
        for name in names:
            workloads.wait_ready(name, PODS)
        self.workloads, self.names = workloads, names
        self.demand = PODS * LOAD
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._counted_at = time.time()
        self._first: float | None = None

    def begin(self, server: Prometheus, window: int = 2 * WINDOW, samples: int = 2 * WINDOW) -> None:
        """Scales the services once their windows (seconds) are full, until the adapter has seen full ones itself.

        It takes the fullest window that it saw for a whole one, and a busy machine loses scrapes of its own.
        """

        def wait_full() -> None:
            server.wait_value(f"min(count_over_time(hits[{window}s])) >= bool {samples}", 1, timeout=60 + 2 * window)

        wait_full()
        for name in self.names:
            self.workloads.policy(name, [query_watermarks(name, HIGH, LOW)])
            self.workloads.hpa(name)
        for name in self.names:
            self.workloads.wait_condition(name, "ScalingActive")
        self.hold(window, syncs=1)
        wait_full()

    def hold(self, seconds: float = 0, *, syncs: int = 3) -> None:
        """Asserts that all keep their pods."""

        def hold(name: str) -> None:
            self.workloads.hold_replicas(name, PODS, seconds, syncs=syncs)

        with ThreadPoolExecutor() as pool:
            list(pool.map(hold, self.names))

    def fall(self, within: float) -> None:
        """The load falls to a quarter, and the services follow in this time."""
        self.demand /= 4
        for name in self.names:
            self.workloads.wait_replicas(name, 1, timeout=within)

    def page(self) -> str:
        """A page with the counters of the pods, each with the time at which its scrape was due: on a busy machine it is
        answered later, which would make a rate of what is no load.
        """
        now = time.time()
        self._first = now if self._first is None else min(self._first, now - round(now - self._first))
        due = self._first + round(now - self._first)
        seconds, self._counted_at, lines = due - self._counted_at, due, list[str]()
        for name in self.names:
            labels = f'namespace="{self.workloads.namespace}",workload="{name}"'
            pods = self.workloads.pod_names(name)
            for pod in pods:
                self._counts[pod] += seconds * self.demand / len(pods)
                lines.append(f'hits{{{labels},pod="{pod}"}} {self._counts[pod]} {round(due * 1000)}\n')
        return "".join(lines)


def settings(server: Prometheus) -> dict[str, Any]:
    """Settings with the queries, asked every second."""
    short, long = (f'rate(hits{{namespace="$namespace",workload="$workload"}}[{n * WINDOW}s])' for n in (1, 2))
    texts = {
        "by-pod": f"sum by (namespace, pod) ({short})",
        "two-windows": f"sum by (namespace, pod) ({long}) + 0 * sum by (namespace, pod) ({short})",
        "total": f"sum({short})",
        "smooth": f"max_over_time(sum({short})[2s:1s])",
    }
    common = {"server": "main", "intervalSeconds": 1, "maxAgeSeconds": 20}
    queries = [
        {"name": name, "query": text, "scope": "Pods" if "by (" in text else "Service", **common}
        for name, text in texts.items()
    ]
    return {"prometheus": {"servers": [{"name": "main", "url": server.url}], "queries": queries}}


@pytest.fixture
def prometheus(exporter: Exporter) -> Iterator[Prometheus]:
    """Samples with a time of their own end with their target here, as others do."""
    with Prometheus([exporter], scrape={"track_timestamps_staleness": True}) as server:
        yield server


@pytest.fixture
def services(workloads: Workloads, exporter: Exporter) -> Services:
    """Running services with their counters on the page of `exporter`."""
    made = Services(workloads)
    exporter.set_page(made.page)
    return made


def test_missed_scrapes_and_a_restart_in_a_gap_shrink_nothing(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter, prometheus: Prometheus
) -> None:
    adapter = make_adapter(settings(prometheus))
    services.begin(prometheus)
    miss(exporter, 1)
    services.hold(WINDOW, syncs=1)
    miss(exporter, 4)
    adapter.restart()
    services.hold(2 * WINDOW + 2)
    services.fall(120)


def miss(exporter: Exporter, scrapes: int) -> None:
    """The page fails for so many scrapes."""
    exporter.failing, last = True, exporter.scrapes + scrapes
    until(lambda: exporter.scrapes >= last, 30, lambda: "nobody scrapes")
    exporter.failing = False
