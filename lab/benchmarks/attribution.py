"""What one part of a run cost: processor time by process, from /proc, and the queries that Prometheus evaluated."""

import re
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from lab.benchmarks.processes import cpu_seconds

_COUNTERS = {
    "queries": re.compile(r'^prometheus_http_requests_total\{.*handler="/api/v1/query".*\} (\S+)$', re.MULTILINE),
    "evaluations": re.compile(
        r'^prometheus_engine_query_duration_seconds_count\{.*slice="inner_eval".*\} (\S+)$', re.MULTILINE
    ),
    "samples": re.compile(r"^prometheus_engine_query_samples_total (\S+)$", re.MULTILINE),
    "response_bytes": re.compile(
        r'^prometheus_http_response_size_bytes_sum\{.*handler="/api/v1/query".*\} (\S+)$', re.MULTILINE
    ),
}
"""Prometheus' own counters; `evaluations` includes those of rules and of range queries."""


@dataclass(frozen=True)
class Reading:
    """Counters at one moment."""

    at: float
    cpu: Mapping[str, float]
    counters: Mapping[str, float]


class Meter:
    """Reads both kinds of counters.

    meter = Meter(lambda: scene.processes() | {"adapter": adapter.component.pid}, scene.prometheus.url)
    before = meter.read()
    ...
    meter.since(before)["cpu_share"]["adapter"]
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]], prometheus_url: str) -> None:
        self._processes, self._url = processes, prometheus_url

    def read(self) -> Reading:
        cpu = {name: cpu_seconds(pid) for name, pid in self._processes().items()}
        return Reading(monotonic(), cpu, prometheus_counters(self._url))

    def since(self, before: Reading) -> dict[str, Any]:
        """Seconds, shares of one processor by process, and counters a second, from `before` until now."""
        now = self.read()
        seconds = now.at - before.at
        shares = {name: round((cpu - before.cpu[name]) / seconds, 4) for name, cpu in now.cpu.items()}
        rates = {name: round((now.counters[name] - before.counters[name]) / seconds, 3) for name in now.counters}
        return {"seconds": round(seconds, 1), "cpu_share": shares, "prometheus_per_second": rates}


def prometheus_counters(url: str) -> dict[str, float]:
    """The counters of a Prometheus server; 0 where it has counted nothing yet."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {name: sum(map(float, pattern.findall(page))) for name, pattern in _COUNTERS.items()}
