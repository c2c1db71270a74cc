"""Rates while scrapes are missed and samples are lost: a real Prometheus, real counters, an unchanged load.

The service needs all of its pods: a rate that reads a tenth less would shrink it.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
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
BY_POD, TOTAL, SMOOTH = "hits", "all_hits", "smooth_hits"


class Counters:
    """A counter for each pod of a workload; the demand is shared by the pods that are there."""

    def __init__(self, workloads: Workloads, name: str = "web") -> None:
        self._workloads, self._name = workloads, name
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}
        self._advanced = time.time()
        self.demand = PODS * LOAD

    def page(self, part: Callable[[int], bool] = lambda _: True) -> str:
        """The counters of the pods with these positions."""
        with self._lock:
            pods = sorted(self._workloads.pod_names(self._name))
            now, before = time.time(), self._advanced
            self._advanced = now
            for pod in pods:
                self._counts[pod] = self._counts.get(pod, 0.0) + (now - before) * self.demand / len(pods)
            labels = f'namespace="{self._workloads.namespace}",workload="{self._name}"'
            return "".join(
                f'hits{{{labels},pod="{pod}"}} {self._counts[pod]}\n' for index, pod in enumerate(pods) if part(index)
            )


def settings(server: Prometheus, window: int = WINDOW) -> dict[str, Any]:
    """Settings with the rate of the counters by pod, of the service, and of it by a subquery, asked every second."""
    rate = f'rate(hits{{namespace="$namespace",workload="$workload"}}[{window}s])'
    common = {"server": "main", "intervalSeconds": 1, "maxAgeSeconds": 20}
    return {
        "prometheus": {
            "servers": [{"name": "main", "url": server.url}],
            "queries": [
                {"name": BY_POD, "query": f"sum by (namespace, pod) ({rate})", **common},
                {"name": TOTAL, "query": f"sum({rate})", "scope": "Service", **common},
                {"name": SMOOTH, "query": f"sum(avg_over_time({rate}[2s:1s]))", "scope": "Service", **common},
            ],
        }
    }


@pytest.fixture
def counters(workloads: Workloads, exporter: Exporter) -> Counters:
    """The counters on the page that `prometheus` scrapes."""
    workloads.deployment("web", PODS)
    counters = Counters(workloads)
    exporter.set_page(counters.page)
    return counters


def scale_on(workloads: Workloads, query: str, server: Prometheus, window: int = WINDOW) -> None:
    """Scale the service on this query, once its windows are full."""
    server.wait_value(f"min(count_over_time(hits[{window}s])) >= bool {window}", 1)
    workloads.policy("web", [query_watermarks(query, HIGH, LOW)])
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", PODS)


def wait_fall(workloads: Workloads, counters: Counters, within: float) -> None:
    """The load falls to a quarter, and the service follows in this time."""
    counters.demand /= 4
    workloads.wait_replicas("web", 1, timeout=within)


QUERIES = pytest.mark.parametrize("query", [BY_POD, TOTAL])


@QUERIES
def test_an_adapter_that_starts_while_windows_refill_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, prometheus: Prometheus, counters: Counters, query: str
) -> None:
    """Prometheus without a volume, and the adapter: killed together, as by the loss of a node."""
    adapter = make_adapter(settings(prometheus))
    scale_on(workloads, query, prometheus)
    adapter.kill()
    prometheus.kill()
    shutil.rmtree(prometheus.folder / "data")
    prometheus.resume()
    adapter.start()
    workloads.hold_replicas("web", PODS, 2 * WINDOW)
    wait_fall(workloads, counters, 4 * WINDOW + 15)


@QUERIES
def test_an_adapter_that_restarts_after_a_gap_shrinks_nothing(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    counters: Counters,
    query: str,
) -> None:
    adapter = make_adapter(settings(prometheus))
    scale_on(workloads, query, prometheus)
    miss(exporter, 5)
    adapter.restart()
    workloads.hold_replicas("web", PODS, 2 * WINDOW)


@QUERIES
def test_one_missed_scrape_of_a_short_window_shrinks_nothing(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    counters: Counters,
    query: str,
) -> None:
    make_adapter(settings(prometheus, window=4))
    scale_on(workloads, query, prometheus, window=4)
    for _ in range(3):
        miss(exporter, 1)
        workloads.hold_replicas("web", PODS, 6, syncs=1)
    wait_fall(workloads, counters, 30)


@QUERIES
def test_missed_scrapes_leave_the_inputs_fresh(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    counters: Counters,
    query: str,
) -> None:
    """Each change of a condition is a write, an Event and a notification; a gap that is counted has its bound."""
    adapter = make_adapter(settings(prometheus))
    scale_on(workloads, query, prometheus)
    labels = f'namespace="{workloads.namespace}",policy="web",condition="InputsFresh"'
    fresh = f"effective_load_policy_condition{{{labels}}}"
    for _ in range(3):
        miss(exporter, 1)
        ended = time.monotonic() + WINDOW + 2
        while time.monotonic() < ended:
            assert adapter.metric(fresh) == 1, workloads.asked("web")
    exporter.failing = True
    until(lambda: adapter.metric(fresh) == 0, 30, adapter.logs)


@pytest.mark.parametrize("query", [TOTAL, SMOOTH])
def test_windows_that_nobody_can_ask_for_shrink_nothing_for_two_of_them_and_the_status_says_so(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    counters: Counters,
    query: str,
) -> None:
    """The server refuses to count; a subquery it is not even asked for. So after a gap, and after a start."""
    policy = f"/apis/effective-load.io/v1alpha1/namespaces/{workloads.namespace}/watermarkpolicies/web"

    def told() -> str:
        conditions = workloads.client.get(policy).get("status", {}).get("conditions", [])
        return next((f"{one['reason']}: {one['message']}" for one in conditions if one["type"] == "InputsFresh"), "")

    def wait_told(words: str) -> None:
        until(lambda: words in told(), 3 * WINDOW + 10, told)

    def refuse(asked: str, answer: Any) -> Any:
        return {"status": "error", "errorType": "execution", "error": "no"} if "count_over_time" in asked else answer

    with before_prometheus(prometheus.port) as proxy:
        proxy.falsify = refuse
        given = settings(prometheus)
        given["prometheus"]["servers"][0]["url"] = f"http://127.0.0.1:{proxy.port}"
        adapter = make_adapter(given)
        make_companion(given)
        scale_on(workloads, query, prometheus)
        wait_told("SamplesFresh")
        miss(exporter, 5)
        wait_told("may lack samples")
        workloads.hold_replicas("web", PODS, 2 * WINDOW)
        wait_told("SamplesFresh")
        miss(exporter, 5)
        adapter.restart()
        workloads.hold_replicas("web", PODS, 2 * WINDOW)
        wait_fall(workloads, counters, 4 * WINDOW + 15)


@QUERIES
def test_pods_that_are_replaced_while_nothing_is_scraped_shrink_nothing(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    counters: Counters,
    query: str,
) -> None:
    make_adapter(settings(prometheus))
    scale_on(workloads, query, prometheus)
    exporter.failing = True
    old = set(workloads.pod_names("web"))
    workloads.rollout("web")
    until(lambda: old.isdisjoint(workloads.pod_names("web")), 60, lambda: "the rollout does not end")
    workloads.hold_replicas("web", PODS, 2 * WINDOW)
    exporter.failing = False
    workloads.hold_replicas("web", PODS, 2 * WINDOW)


@QUERIES
def test_a_rolling_update_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, prometheus: Prometheus, counters: Counters, query: str
) -> None:
    make_adapter(settings(prometheus))
    scale_on(workloads, query, prometheus)
    workloads.rollout("web")
    workloads.hold_replicas("web", PODS, 4 * WINDOW)
    wait_fall(workloads, counters, 3 * WINDOW + 15)


def test_the_total_of_a_new_service_shrinks_nothing_before_its_windows_are_full(
    make_adapter: MakeAdapter, workloads: Workloads, prometheus: Prometheus, exporter: Exporter
) -> None:
    make_adapter(settings(prometheus))
    workloads.policy("web", [query_watermarks(TOTAL, HIGH, LOW)])
    workloads.hpa("web")
    workloads.deployment("web", PODS)
    exporter.set_page(Counters(workloads).page)
    workloads.hold_replicas("web", PODS, 3 * WINDOW)
    workloads.wait_condition("web", "ScalingActive")


def test_a_total_that_lacks_one_target_for_longer_than_its_window_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, counters: Counters
) -> None:
    """Two pods of six on a page of their own, which fails while the adapter starts anew, too."""
    with Exporter() as lost, Prometheus([exporter, lost]) as server:
        exporter.set_page(lambda: counters.page(lambda index: index > 1))
        lost.set_page(lambda: counters.page(lambda index: index <= 1))
        adapter = make_adapter(settings(server))
        scale_on(workloads, TOTAL, server)
        lost.failing = True
        workloads.hold_replicas("web", PODS, 3 * WINDOW)
        adapter.restart()
        workloads.hold_replicas("web", PODS, 2 * WINDOW)
        lost.failing = False
        wait_fall(workloads, counters, 3 * WINDOW + 15)


def test_a_wiped_shard_behind_a_querier_shrinks_nothing(make_adapter: MakeAdapter, workloads: Workloads) -> None:
    """The querier is a Prometheus that reads from two others."""
    workloads.deployment("web", PODS)
    counters = Counters(workloads)
    with shards(counters) as (querier, wiped):
        make_adapter(settings(querier))
        scale_on(workloads, BY_POD, querier)
        wiped.kill()
        shutil.rmtree(wiped.folder / "data")
        wiped.resume()
        workloads.hold_replicas("web", PODS, 3 * WINDOW)
        wait_fall(workloads, counters, 3 * WINDOW + 15)


@contextmanager
def shards(counters: Counters) -> Iterator[tuple[Prometheus, Prometheus]]:
    """A querier, and one of the two shards behind it."""
    with Exporter() as even, Exporter() as odd, Prometheus([even]) as one, Prometheus([odd]) as other:
        even.set_page(lambda: counters.page(lambda index: index % 2 == 0))
        odd.set_page(lambda: counters.page(lambda index: index % 2 == 1))
        reads = [{"url": f"{shard.url}/api/v1/read", "read_recent": True} for shard in (one, other)]
        with Prometheus(config={"remote_read": reads}) as querier:
            yield querier, other


def test_a_target_that_is_up_and_down_by_turns_does_not_hide_a_fall(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus, counters: Counters
) -> None:
    """One pod of six on a page of its own, which answers for three seconds and fails for three seconds."""
    with Exporter() as flaky, Prometheus([exporter, flaky]) as server:
        exporter.set_page(lambda: counters.page(lambda index: index > 0))
        flaky.set_page(lambda: counters.page(lambda index: index == 0))
        make_adapter(settings(server))
        scale_on(workloads, BY_POD, server)
        turns = threading.Event()
        turning = threading.Thread(target=_turn, args=(flaky, turns), daemon=True)
        turning.start()
        workloads.hold_replicas("web", PODS, 3 * WINDOW)
        counters.demand /= 4
        until(lambda: workloads.replicas("web") < PODS, 2 * WINDOW + 10, lambda: "the fall stays hidden")
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
