"""Decoding WatermarkPolicies: processor time for each of 1,000 valid ones, and for the most expensive ones.

`python -m lab.benchmarks.policies [-o FILE]`
"""

import argparse
import time
from pathlib import Path
from typing import Any

from adapter.policy.field_reader import PolicyError
from adapter.policy.watermark_policy import parse_policy
from lab.benchmarks import record

Spec = dict[str, Any]

_CPU: Spec = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
_RPS: Spec = {"name": "rps", "query": {"name": "http_requests_per_second"}, "highWatermark": "100"}
_LONGEST_CRON = ",".join(["*/2"] * 60) + " * * * *"


def _largest() -> Spec:
    """The largest spec that the definition allows."""
    query = {"promQL": "x" * 4096, "server": "s" * 253, "of": "Limit", "resource": "x"}
    schedule = {"cron": _LONGEST_CRON, "timeZone": "Asia/Gaza", "durationSeconds": 60, "minReplicas": 1}
    return {
        "metrics": [{"name": f"m{n}", "query": query, "highWatermark": "9" * 20} for n in range(10)],
        "schedules": [{"name": f"s{n}", **schedule} for n in range(20)],
        "notify": [f"{n}" + "x" * 60 for n in range(20)],
    }


CASES: dict[str, tuple[Spec, int]] = {
    "one metric": ({"metrics": [_CPU]}, 1000),
    "two metrics and a registry": ({"metrics": [_CPU, _RPS], "registry": {"name": "r", "service": "s"}}, 1000),
    "the largest": (_largest(), 20),
    "1,000 unknown keys": ({f"mod{n}": {"a": [n]} for n in range(1000)}, 20),
    "100,000 routes": ({"metrics": [_CPU], "notify": ["x" * 100] * 100_000}, 20),
}
"""Specs by description, and how many of each are decoded."""


def milliseconds(spec: Spec, count: int) -> float:
    """Processor time for one of `count` policies, with formatting of its faults; the best of three rounds."""
    document = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    return min(_round(document, count) for _ in range(3)) * 1000 / count


def _round(document: Spec, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        try:
            parse_policy(document)
        except PolicyError as error:
            str(error)
    return time.process_time() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    options = parser.parse_args()
    costs = {}
    for name, (spec, count) in CASES.items():
        costs[name] = round(milliseconds(spec, count), 4)
        print(f"{name:28}{costs[name]:8.3f} ms", flush=True)
    if options.output:
        record.write(options.output, {"milliseconds": costs})
