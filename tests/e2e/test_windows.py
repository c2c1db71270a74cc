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

from lab.faults.proxies import before_prometheus
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter, MakeCompanion
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


def test_an_adapter_that_starts_while_windows_refill_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, prometheus: Prometheus
) -> None:
    """Prometheus without a volume, and the adapter: killed together, as by the loss of a node."""
    adapter = make_adapter(settings(prometheus))
    services.begin(prometheus)
    adapter.kill()
    prometheus.kill()
    shutil.rmtree(prometheus.folder / "data")
    prometheus.resume()
    adapter.start()
    services.hold(2 * WINDOW)
    services.fall(4 * WINDOW + 15)


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


def test_missed_scrapes_leave_the_inputs_fresh(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter, prometheus: Prometheus
) -> None:
    """Each change of a condition is a write, an Event and a notification; a gap that is counted has its bound."""
    adapter = make_adapter(settings(prometheus))
    services.begin(prometheus)

    def fresh() -> set[float | None]:
        labels = f'namespace="{services.workloads.namespace}",policy="%s",condition="InputsFresh"'
        return {
            adapter.metric(f"effective_load_policy_condition{{{labels % name}}}") for name in services.query_by_name
        }

    for _ in range(3):
        miss(exporter, 1)
        ended = time.monotonic() + WINDOW + 2
        while time.monotonic() < ended:
            assert fresh() == {1}, [services.workloads.asked(name) for name in services.query_by_name]
            time.sleep(0.2)
    exporter.failing = True
    until(lambda: fresh() == {0}, 30, adapter.logs)


@having(TOTAL | SMOOTH)
def test_windows_that_nobody_can_ask_for_shrink_nothing_for_two_of_them_and_the_status_says_so(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    services: Services,
    exporter: Exporter,
    prometheus: Prometheus,
) -> None:
    """The server refuses to count; a subquery it is not even asked for. So after a gap, and after a start.

    One scrape that a busy machine misses, which nobody sees, must cost less than what shrinks: hence the longer window.
    """
    window = 2 * WINDOW
    policies = f"/apis/effective-load.io/v1alpha1/namespaces/{services.workloads.namespace}/watermarkpolicies"

    def told() -> list[str]:
        items = services.workloads.client.list(policies)
        conditions = [one for item in items for one in item.get("status", {}).get("conditions", ())]
        return [f"{one['reason']}: {one['message']}" for one in conditions if one["type"] == "InputsFresh"]

    def wait_told(words: str) -> None:
        until(lambda: [words in one for one in told()] == [True, True], 3 * window + 10, lambda: str(told()))

    def refuse(asked: str, answer: Any) -> Any:
        return {"status": "error", "errorType": "execution", "error": "no"} if "count_over_time" in asked else answer

    with before_prometheus(prometheus.port) as proxy:
        proxy.falsify = refuse
        given = settings(prometheus, window)
        given["prometheus"]["servers"][0]["url"] = f"http://127.0.0.1:{proxy.port}"
        adapter = make_adapter(given)
        make_companion(given)
        services.begin(prometheus, window)
        wait_told("SamplesFresh")
        miss(exporter, 5)
        wait_told("may lack samples")
        services.hold(2 * window)
        wait_told("SamplesFresh")
        miss(exporter, 5)
        adapter.restart()
        services.hold(2 * window)
        services.fall(4 * window + 15)


def test_pods_that_are_replaced_while_nothing_is_scraped_shrink_nothing(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter, prometheus: Prometheus
) -> None:
    make_adapter(settings(prometheus))
    services.begin(prometheus)
    exporter.failing = True
    old = set(services.workloads.pod_names(""))
    for name in services.query_by_name:
        services.workloads.rollout(name)
    until(lambda: old.isdisjoint(services.workloads.pod_names("")), 60, lambda: "the rollouts do not end")
    services.hold(2 * WINDOW)
    exporter.failing = False
    services.hold(2 * WINDOW)


def test_a_rolling_update_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, prometheus: Prometheus
) -> None:
    make_adapter(settings(prometheus))
    services.begin(prometheus)
    for name in services.query_by_name:
        services.workloads.rollout(name)
    services.hold(4 * WINDOW)
    services.fall(3 * WINDOW + 15)


def test_the_total_of_a_new_service_shrinks_nothing_before_its_windows_are_full(
    make_adapter: MakeAdapter, workloads: Workloads, prometheus: Prometheus, exporter: Exporter
) -> None:
    make_adapter(settings(prometheus))
    services = Services(workloads, TOTAL)
    workloads.policy("total", [query_watermarks(TOTAL["total"], HIGH, LOW)])
    workloads.hpa("total")
    workloads.deployment("total", PODS)
    exporter.set_page(services.page())
    services.hold(3 * WINDOW)
    workloads.wait_condition("total", "ScalingActive")


@having(TOTAL)
def test_a_total_that_lacks_one_target_for_longer_than_its_window_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter
) -> None:
    """Two pods of six on a page of their own, which fails while the adapter starts anew, too."""
    with Exporter() as lost, scraping(exporter, lost) as server:
        exporter.set_page(services.page(lambda position: position > 1))
        lost.set_page(services.page(lambda position: position <= 1))
        adapter = make_adapter(settings(server))
        services.begin(server)
        lost.failing = True
        services.hold(3 * WINDOW)
        adapter.restart()
        services.hold(2 * WINDOW)
        lost.failing = False
        services.fall(3 * WINDOW + 15)


@having(BY_POD)
def test_a_wiped_shard_behind_a_querier_shrinks_nothing(
    make_adapter: MakeAdapter, services: Services, exhaustive: bool
) -> None:
    """The querier is a Prometheus that reads from two others. That it shrinks with the load again takes as long."""
    with shards(services) as (querier, wiped):
        window = WINDOW if exhaustive else 6
        make_adapter(settings(querier, window))
        services.begin(querier, window)
        wiped.kill()
        shutil.rmtree(wiped.folder / "data")
        wiped.resume()
        services.hold((3 if exhaustive else 2) * window)
        services.workloads.wait_condition("pods", "ScalingActive")
        if exhaustive:
            services.fall(3 * WINDOW + 15)


@contextmanager
def shards(services: Services) -> Iterator[tuple[Prometheus, Prometheus]]:
    """A querier, and one of the two shards behind it."""
    with Exporter() as even, Exporter() as odd, scraping(even) as one, scraping(odd) as other:
        even.set_page(services.page(lambda position: position % 2 == 0))
        odd.set_page(services.page(lambda position: position % 2 == 1))
        reads = [{"url": f"{shard.url}/api/v1/read", "read_recent": True} for shard in (one, other)]
        with Prometheus(config={"remote_read": reads}) as querier:
            yield querier, other


@having(BY_POD)
def test_a_target_that_is_up_and_down_by_turns_does_not_hide_a_fall(
    make_adapter: MakeAdapter, services: Services, exporter: Exporter
) -> None:
    """One pod of six on a page of its own, which answers for three seconds and fails for three seconds."""
    with Exporter() as flaky, scraping(exporter, flaky) as server:
        exporter.set_page(services.page(lambda position: position > 0))
        flaky.set_page(services.page(lambda position: position == 0))
        make_adapter(settings(server))
        services.begin(server)
        turns = threading.Event()
        turning = threading.Thread(target=_turn, args=(flaky, turns), daemon=True)
        turning.start()
        services.hold(3 * WINDOW)
        services.demand /= 4
        until(lambda: services.workloads.replicas("pods") < PODS, 2 * WINDOW + 10, lambda: "the fall stays hidden")
        turns.set()
        turning.join()


def _turn(exporter: Exporter, ended: threading.Event) -> None:
    while not ended.wait(3):
        exporter.failing = not exporter.failing


def miss(exporter: Exporter, scrapes: int) -> None:
    """The page fails for so many scrapes."""
    exporter.failing, last = True, exporter.scrapes + scrapes
    until(lambda: exporter.scrapes >= last, 30, lambda: "nobody scrapes")
    exporter.failing = False
