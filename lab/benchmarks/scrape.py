"""Latency of a metric while `/metrics` is scraped: `python -m lab.benchmarks.scrape`.

A real etcd and kube-apiserver hold the scene, 2,000 policies by default, and the adapter runs as its command line does.
A metric is requested at an even rate, in turns without a scrape and with one, as a Prometheus with an interval of 15 s
scrapes. Each figure is the median of the turns'. It takes four minutes.

Exits with status 1 if a scrape costs more than 3 ms at the 99th percentile.
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

MOST_MS = 3.0
_METRIC = "effective_cpu"
_RATE, _WARM_RATE = 200.0, 500.0
_REST_SECONDS = 16.0
"""One interval of the samples, so that every policy is assessed once."""
_SCRAPE_AFTER_SECONDS = 3.0


def scrape(port: int) -> tuple[float, int]:
    """Scrapes once as Prometheus does; returns the seconds that it took, and the bytes of the answer."""
    time.sleep(_SCRAPE_AFTER_SECONDS)
    connection, began = http.client.HTTPConnection("127.0.0.1", port, timeout=30), time.monotonic()
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"a scrape was answered with {answer.status}")
    return time.monotonic() - began, len(body)


def run(stage: Stage, turns: int, seconds: float) -> dict[str, Any]:
    """The latencies without and with a scrape, and the duration and size of the scrapes."""
    print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
    time.sleep(_REST_SECONDS)
    warm = 2 * len(stage.services) / _WARM_RATE
    measure(stage.plan(_METRIC, seconds=warm, rate=_WARM_RATE), stage.pid)  # fills the cache of access reviews
    plan = stage.plan(_METRIC, seconds=seconds, rate=_RATE)
    alone, scraped, scrapes = [], [], []
    with ThreadPoolExecutor(1) as scraper:
        for _ in range(turns):
            alone.append(measure(plan, stage.pid).summary)
            scraping = scraper.submit(scrape, stage.adapter.metrics_port)
            scraped.append(measure(plan, stage.pid).summary)
            scrapes.append(scraping.result())
            print_to_stderr(f"p99 {alone[-1]['p99_ms']} ms, with a scrape {scraped[-1]['p99_ms']} ms")
    figures = {name: _medians(found) for name, found in (("alone", alone), ("scraped", scraped))}
    return {
        **figures,
        "p99_more_ms": round(figures["scraped"]["p99_ms"] - figures["alone"]["p99_ms"], 3),
        "scrape_s": round(statistics.median(seconds for seconds, _ in scrapes), 3),
        "scrape_kib": round(statistics.median(size for _, size in scrapes) / 1024),
    }


def _medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def main() -> int:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--turns", type=int, default=6, help="pairs of turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of a turn (default: %(default)s)")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=sys.executable) as stage:
        figures = run(stage, given.turns, given.seconds)
    record.write(given.output, {"scene": scene, "rate": _RATE, "aims": {"p99_more_ms": MOST_MS}, **figures})
    return int(figures["p99_more_ms"] > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
