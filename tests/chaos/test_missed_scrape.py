"""A missed scrape at the pace of production: pytest -s tests/chaos/test_missed_scrape.py takes eight minutes.

Scrapes and polls each 15 s, samples for 90 s, windows of a minute: the defaults. The load is 8 % above the low
watermark. `tests/e2e/test_windows.py` has the same scene, and longer gaps, in a fifteenth of the time.
"""

import pytest

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.test_windows import Services, miss

pytestmark = pytest.mark.timeout(0)
WINDOW, SCRAPE = 60, 15
SERIES = 'rate(hits{namespace="$namespace",workload="$workload"}[1m])'
QUERIES = {"by-pod": f"sum by (namespace, pod) ({SERIES})", "total": f"sum({SERIES})"}


def test_one_missed_scrape_at_default_settings_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter
) -> None:
    services = Services(workloads, tuple(QUERIES))
    exporter.set_page(services.page)
    with Prometheus([exporter], interval=f"{SCRAPE}s", scrape={"track_timestamps_staleness": True}) as server:
        queries = [
            {"name": name, "query": text, "server": "main", "scope": "Service" if name == "total" else "Pods"}
            for name, text in QUERIES.items()
        ]
        make_adapter({"prometheus": {"servers": [{"name": "main", "url": server.url}], "queries": queries}})
        services.begin(server, 2 * WINDOW, 2 * WINDOW // SCRAPE)
        for _ in range(2):
            miss(exporter, 1)
            services.hold(WINDOW + 2 * SCRAPE)
        services.fall(3 * WINDOW)
