"""Latency of a metric while `/metrics` is scraped: `python -m lab.benchmarks.scrape`.

A real etcd and kube-apiserver hold the scene, 2,000 policies by default, and the adapter runs as its command line does.
A metric is requested at an even rate, in turns without a scrape and with one each five seconds: three times as often as
Prometheus scrapes by default, so that p99 shows what happens within a scrape. It takes two minutes.
"""

import http.client
import sys
import threading
import time
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import favour
from lab.benchmarks.stage import Stage
from lab.harness.binaries import print_to_stderr

_METRIC = "effective_cpu"
_RATE = 200.0
_TURNS = 3
_TURN_SECONDS = 15.0
_SCRAPE_SECONDS = 5.0


class Scraper:
    """Scrapes in a thread as Prometheus does, while `on` is set."""

    def __init__(self, port: int) -> None:
        self.on = threading.Event()
        self.durations: list[float] = []
        self.size = 0
        self._port = port
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.on.wait()
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
            self.size = len(connection.getresponse().read())
            connection.close()
            self.durations.append(time.monotonic() - began)
            time.sleep(max(0.0, _SCRAPE_SECONDS - self.durations[-1]))


def run(stage: Stage) -> dict[str, Any]:
    """The latencies without and with scrapes, and the duration and size of the scrapes."""
    print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
    time.sleep(20)
    measure(stage.plan(_METRIC, seconds=2 * len(stage.services) / 500, rate=500), stage.pid)  # fills the caches
    scraper = Scraper(stage.adapter.metrics_port)
    alone, scraped = Measured(), Measured()
    for _ in range(_TURNS):
        alone += measure(stage.plan(_METRIC, seconds=_TURN_SECONDS, rate=_RATE), stage.pid)
        scraper.on.set()
        scraped += measure(stage.plan(_METRIC, seconds=_TURN_SECONDS, rate=_RATE), stage.pid)
        scraper.on.clear()
        time.sleep(_SCRAPE_SECONDS)
    scrapes = {"count": len(scraper.durations), "longest_s": round(max(scraper.durations), 3), "bytes": scraper.size}
    return {"alone": alone.summary, "scraped": scraped.summary, "scrapes": scrapes}


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
