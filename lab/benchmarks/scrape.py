"""Latency of a metric while `/metrics` is scraped: `python -m lab.benchmarks.scrape`.

A real etcd and kube-apiserver hold the scene, 2,000 policies by default, and the adapter runs as its command line does.
A metric is requested at an even rate, in turns of 15 s without a scrape and with one, as a Prometheus with an interval
of 15 s scrapes. Each figure is the median of the turns'. It takes three minutes.
"""

import http.client
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import measure
from lab.benchmarks.processes import favour
from lab.benchmarks.stage import Stage
from lab.harness.binaries import print_to_stderr

_METRIC = "effective_cpu"
_RATE = 200.0
_TURNS = 4
_TURN_SECONDS = 15.0
_SCRAPE_AFTER_SECONDS = 3.0


def scrape(port: int) -> float:
    """Scrapes once as Prometheus does; returns the seconds that it took."""
    time.sleep(_SCRAPE_AFTER_SECONDS)
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    connection.getresponse().read()
    connection.close()
    return time.monotonic() - began


def run(stage: Stage) -> dict[str, Any]:
    """The latencies without and with scrapes, and the duration and size of the scrapes."""
    print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
    time.sleep(20)
    measure(stage.plan(_METRIC, seconds=2 * len(stage.services) / 500, rate=500), stage.pid)  # fills the caches
    plan = stage.plan(_METRIC, seconds=_TURN_SECONDS, rate=_RATE)
    alone, scraped, durations = [], [], []
    with ThreadPoolExecutor(1) as scraper:
        for _ in range(_TURNS):
            alone.append(measure(plan, stage.pid).summary)
            scraping = scraper.submit(scrape, stage.adapter.metrics_port)
            scraped.append(measure(plan, stage.pid).summary)
            durations.append(scraping.result())
    return {"alone": _medians(alone), "scraped": _medians(scraped), "scrape_s": round(statistics.median(durations), 3)}


def _medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--namespaces", type=int, default=20)
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=sys.executable) as stage:
        record.write(given.output, {"scene": scene, **run(stage)})


if __name__ == "__main__":
    main()
