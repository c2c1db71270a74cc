"""Rates while scrapes are missed and samples are lost: a real Prometheus, real counters, an unchanged load.

The service needs all of its pods: a rate that reads a tenth less would shrink it.
"""

import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import query_watermarks

PODS, LOAD = 6, 0.43
WINDOW = 8
HIGH, LOW = "1200m", "400m"
BY_POD, TOTAL, SMOOTH = {"pods": "hits"}, {"total": "all_hits"}, {"smooth": "smooth_hits"}
"""Services by name, with their query: the rate of the counters by pod, of the service, and of it by a subquery."""


class Services:
    """Services of six pods, each of which is scaled on a query, and a counter for each of their pods: the demand on a
    service is shared by the pods that are there.
    """

    def __init__(self, workloads: Workloads, query_by_name: Mapping[str, str]) -> None:
        self.workloads, self.query_by_name = workloads, query_by_name
        self.demand = PODS * LOAD
        self._lock = threading.Lock()
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._counted_at = time.time()

    def begin(self, server: Prometheus, window: int = WINDOW) -> None:
        """Scales the services once their windows are full."""
        server.wait_value(f"min(count_over_time(hits[{window}s])) >= bool {window}", 1)
        for name, query in self.query_by_name.items():
            self.workloads.policy(name, [query_watermarks(query, HIGH, LOW)])
            self.workloads.hpa(name)
        for name in self.query_by_name:
            self.workloads.wait_condition(name, "ScalingActive")
        self.hold(syncs=1)

    def hold(self, seconds: float = 0, *, syncs: int = 3) -> None:
        """Asserts that all keep their pods."""

        def hold(name: str) -> None:
            self.workloads.hold_replicas(name, PODS, seconds, syncs=syncs)

        with ThreadPoolExecutor() as pool:
            list(pool.map(hold, self.query_by_name))

    def fall(self, within: float) -> None:
        """The load falls to a quarter, and the services follow in this time."""
        self.demand /= 4
        for name in self.query_by_name:
            self.workloads.wait_replicas(name, 1, timeout=within)

    def page(self, part: Callable[[int], bool] = lambda _: True) -> Callable[[], str]:
        """A page with the counters of the pods at these positions, each with the time at which its scrape was due: on a
        busy machine it is answered later, which would make a rate of what is no load.
        """
        first: float | None = None

        def write() -> str:
            nonlocal first
            with self._lock:
                now = time.time()
                first = now if first is None else min(first, now - round(now - first))
                return self._at(first + round(now - first), part)

        return write

    def _at(self, now: float, part: Callable[[int], bool]) -> str:
        seconds, self._counted_at, lines = now - self._counted_at, now, list[str]()
        for name in self.query_by_name:
            labels = f'namespace="{self.workloads.namespace}",workload="{name}"'
            pods = sorted(self.workloads.pod_names(name))
            for position, pod in enumerate(pods):
                self._counts[pod] += seconds * self.demand / len(pods)
                if part(position):
                    lines.append(f'hits{{{labels},pod="{pod}"}} {self._counts[pod]} {round(now * 1000)}\n')
        return "".join(lines)


def settings(server: Prometheus, window: int = WINDOW) -> dict[str, Any]:
    """Settings with the queries, asked every second."""
    rate = f'rate(hits{{namespace="$namespace",workload="$workload"}}[{window}s])'
    common = {"server": "main", "intervalSeconds": 1, "maxAgeSeconds": 20}
    return {
        "prometheus": {
            "servers": [{"name": "main", "url": server.url}],
            "queries": [
                {"name": "hits", "query": f"sum by (namespace, pod) ({rate})", **common},
                {"name": "all_hits", "query": f"sum({rate})", "scope": "Service", **common},
                {"name": "smooth_hits", "query": f"sum(avg_over_time({rate}[2s:1s]))", "scope": "Service", **common},
            ],
        }
    }


def scraping(*exporters: Exporter) -> Prometheus:
    """A Prometheus to which samples with a time of their own end with their target, as others do."""
    return Prometheus(exporters, scrape={"track_timestamps_staleness": True})


@pytest.fixture
def prometheus(exporter: Exporter) -> Iterator[Prometheus]:
    with scraping(exporter) as server:
        yield server


@pytest.fixture
def services(request: pytest.FixtureRequest, workloads: Workloads, exporter: Exporter) -> Services:
    """Running services, those of BY_POD and TOTAL by default, with their counters on the page of `exporter`."""
    made = Services(workloads, getattr(request, "param", BY_POD | TOTAL))
    for name in made.query_by_name:
        workloads.deployment(name, PODS, wait=False)
    for name in made.query_by_name:
        workloads.wait_ready(name, PODS)
    exporter.set_page(made.page())
    return made


def having(query_by_name: Mapping[str, str]) -> pytest.MarkDecorator:
    """The test has these services."""
    return pytest.mark.parametrize("services", [query_by_name], indirect=True, ids=["-".join(query_by_name)])


def test_an_adapter_that_restarts_after_a_gap_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter, prometheus: Prometheus
) -> None:
    adapter = make_adapter(settings(prometheus, window=6))
    services.begin(prometheus, window=6)
    miss(exporter, 4)
    adapter.restart()
    services.hold(6 + 3)


def test_one_missed_scrape_of_a_short_window_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter, prometheus: Prometheus
) -> None:
    make_adapter(settings(prometheus, window=4))
    services.begin(prometheus, window=4)
    for _ in range(3):
        miss(exporter, 1)
        services.hold(6, syncs=1)
    services.fall(30)


@having(BY_POD)
def test_a_wiped_shard_behind_a_querier_shrinks_nothing(make_adapter: MakeAdapter, services: Services) -> None:
    """The querier is a Prometheus that reads from two others. That it shrinks with the load again takes as long."""
    with shards(services) as (querier, wiped):
        window = 6
        make_adapter(settings(querier, window))
        services.begin(querier, window)
        wiped.kill()
        shutil.rmtree(wiped.folder / "data")
        wiped.resume()
        services.hold(2 * window)
        services.workloads.wait_condition("pods", "ScalingActive")


@contextmanager
def shards(services: Services) -> Iterator[tuple[Prometheus, Prometheus]]:
    """A querier, and one of the two shards behind it."""
    with Exporter() as even, Exporter() as odd, scraping(even) as one, scraping(odd) as other:
        even.set_page(services.page(lambda position: position % 2 == 0))
        odd.set_page(services.page(lambda position: position % 2 == 1))
        reads = [{"url": f"{shard.url}/api/v1/read", "read_recent": True} for shard in (one, other)]
        with Prometheus(config={"remote_read": reads}) as querier:
            yield querier, other


def miss(exporter: Exporter, scrapes: int) -> None:
    """The page fails for so many scrapes."""
    exporter.failing, last = True, exporter.scrapes + scrapes
    until(lambda: exporter.scrapes >= last, 30, lambda: "nobody scrapes")
    exporter.failing = False
