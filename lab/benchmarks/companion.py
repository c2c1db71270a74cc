"""The cost of the companion: `python -m lab.benchmarks.companion` runs one for 1,000 policies on a real API server.

The API server's own counters give the writes by kind, second by second; Linux gives the processor time and memory.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from adapter.settings import Settings
from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds, memory
from lab.benchmarks.stage import Stage
from lab.harness.binaries import print_to_stderr
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease

RESULTS = Path(__file__).parent / "results" / "companion.json"
LIMIT_PER_SECOND = 20
QUIET_SECONDS = 20.0
"""The initial Events are complete after this many seconds without a new one."""
_WRITES = re.compile(
    r'^apiserver_request_total\{.*resource="(?P<resource>\w+)".*subresource="(?P<sub>\w*)".*'
    r'verb="(?P<verb>POST|PUT|PATCH|APPLY|DELETE)".*\} (?P<count>[\d.e+]+)$',
    re.MULTILINE,
)
_OURS = {"watermarkpolicies/status", "leases", "events", "horizontalpodautoscalers", "pods"}


class Writes:
    """The API server's counters of writes to the companion's resources."""

    def __init__(self, stage: Stage) -> None:
        self._client = stage.cluster.client

    def read(self) -> dict[str, float]:
        writes: dict[str, float] = {}
        for match in _WRITES.finditer(self._client.raw("/metrics", timeout=60).text):
            name = "/".join(filter(None, (match["resource"], match["sub"])))
            if name in _OURS:
                writes[name] = writes.get(name, 0.0) + float(match["count"])
        return writes

    def wait_quiet(self, seconds: float) -> None:
        """Waits up to `seconds` until the initial Events are written."""
        began = changed = time.monotonic()
        before = self.read().get("events")
        while time.monotonic() - changed < QUIET_SECONDS and time.monotonic() - began < seconds:
            time.sleep(2)
            count = self.read().get("events")
            before, changed = count, changed if count == before else time.monotonic()


def watch(counter: Writes, pid: int, seconds: float) -> dict[str, Any]:
    """Measures writes a second by kind, the busiest part, and the process's processor time and memory."""
    began, before, cpu = time.monotonic(), counter.read(), cpu_seconds(pid)
    last, busiest = (began, before), 0.0
    while time.monotonic() - began < seconds:
        time.sleep(5)
        now, count = time.monotonic(), counter.read()
        busiest = max(busiest, (sum(count.values()) - sum(last[1].values())) / (now - last[0]))
        last = now, count
    elapsed = last[0] - began
    rates = {name: round((value - before.get(name, 0.0)) / elapsed, 2) for name, value in sorted(last[1].items())}
    return {
        "seconds": round(elapsed, 1),
        "writes_per_second": {name: rate for name, rate in rates.items() if rate},
        "writes_per_second_in_all": round(sum(rates.values()), 2),
        "busiest_5_s_per_second": round(busiest, 2),
        "cpu_share": round((cpu_seconds(pid) - cpu) / elapsed, 3),
        "mib": memory(pid),
    }


def run(policies: int, pods: int, namespaces: int, python: str, seconds: float) -> dict[str, Any]:
    """Runs the benchmark and returns its figures."""
    with Stage(policies, pods, namespaces, python, print_to_stderr) as stage:
        reset_lease(stage.cluster)
        rights = companion_kubeconfig(stage.cluster, ("status", "events"))
        counter = Writes(stage)
        companion = CompanionProcess(stage.cluster, kubeconfig=rights)
        companion.component.command[0] = python
        with companion:
            companion.wait_leading(120)
            # One status and one Event for each policy, at the rate limit of the settings.
            time.sleep(policies / Settings().companion.writes_per_second)
            counter.wait_quiet(600)
            steady = watch(counter, companion.component.pid or 0, seconds)
    return {
        "scene": {"policies": policies, "pods": pods, "namespaces": namespaces},
        "steady": steady,
        "limit_per_second": LIMIT_PER_SECOND,
        "met": steady["busiest_5_s_per_second"] < LIMIT_PER_SECOND,
    }


def main() -> int:
    """Exit status 1 if the writes exceed the limit."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.companion", description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=240, help="duration of the steady-state measurement")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the companion")
    parser.add_argument("-o", "--out", type=Path, default=RESULTS, help="file for the figures (JSON)")
    options = parser.parse_args()
    figures = run(options.policies, options.pods, options.namespaces, options.python, options.seconds)
    record.write(options.out, figures)
    print(json.dumps(figures, indent=1))
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
