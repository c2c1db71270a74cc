"""What the companion costs: `python -m benchmarks.companion` has one lead over 1,000 policies on a real API server.

The API server's own counters say how many requests wrote, by kind, second by second; Linux says what the process used.
"""

import argparse
import json
import platform
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from adapter.companion.writes.event_body import CONTROLLER
from adapter.settings import Settings
from benchmarks.processes import cpu_seconds, memory
from benchmarks.stage import Stage
from harness.companion import CompanionProcess, companion_kubeconfig, reset_lease

RESULTS = Path(__file__).parent / "results" / "companion.json"
LIMIT_PER_SECOND = 20
QUIET_SECONDS = 20.0
"""What everybody is told once is over when no Event was written for so long."""
_WRITES = re.compile(
    r'^apiserver_request_total\{.*resource="(?P<resource>\w+)".*subresource="(?P<sub>\w*)".*'
    r'verb="(?P<verb>POST|PUT|PATCH|APPLY|DELETE)".*\} (?P<count>[\d.e+]+)$',
    re.MULTILINE,
)
_OURS = {"watermarkpolicies/status", "leases", "events", "horizontalpodautoscalers", "pods"}


class Writes:
    """The API server's count of writes of what a companion may write, and the Events that came of them."""

    def __init__(self, stage: Stage) -> None:
        self._client = stage.cluster.client

    def read(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for match in _WRITES.finditer(self._client.raw("/metrics", timeout=60).text):
            name = "/".join(filter(None, (match["resource"], match["sub"])))
            if name in _OURS:
                found[name] = found.get(name, 0.0) + float(match["count"])
        return found

    def events(self) -> dict[str, int]:
        """How many Events there are, by reason, their repetitions included."""
        items = self._client.get("/apis/events.k8s.io/v1/events").get("items", [])
        ours = [item for item in items if item.get("reportingController") == CONTROLLER]
        found: Counter[str] = Counter()
        for item in ours:
            found[item["reason"]] += (item.get("series") or {}).get("count", 1)
        return dict(found)

    def wait_quiet(self, seconds: float) -> float:
        """Wait until all have been told what they are told once, so long at most; how long that took."""
        began = changed = time.monotonic()
        before = self.read().get("events")
        while time.monotonic() - changed < QUIET_SECONDS and time.monotonic() - began < seconds:
            time.sleep(2)
            count = self.read().get("events")
            before, changed = count, changed if count == before else time.monotonic()
        return changed - began


def watch(counter: Writes, pid: int, seconds: float, every: float = 5.0) -> dict[str, Any]:
    """Writes a second by kind over a time, the busiest part of it, and what the process used meanwhile."""
    began, before, cpu = time.monotonic(), counter.read(), cpu_seconds(pid)
    last, busiest = (began, before), 0.0
    while time.monotonic() - began < seconds:
        time.sleep(every)
        now, count = time.monotonic(), counter.read()
        busiest = max(busiest, (sum(count.values()) - sum(last[1].values())) / (now - last[0]))
        last = now, count
    took = last[0] - began
    rates = {name: round((value - before.get(name, 0.0)) / took, 2) for name, value in sorted(last[1].items())}
    return {
        "seconds": round(took, 1),
        "writes_per_second": {name: rate for name, rate in rates.items() if rate},
        "writes_per_second_in_all": round(sum(rates.values()), 2),
        "busiest_5_s_per_second": round(busiest, 2),
        "cpu_share": round((cpu_seconds(pid) - cpu) / took, 3),
        "mib": memory(pid),
    }


def run(policies: int, pods: int, namespaces: int, python: str, seconds: float) -> dict[str, Any]:
    """Every figure."""
    with Stage(policies, pods, namespaces, python, _announce) as stage:
        reset_lease(stage.cluster)
        rights = companion_kubeconfig(stage.cluster, ("status", "events"))
        counter = Writes(stage)
        companion = CompanionProcess(stage.cluster, kubeconfig=rights)
        companion.component.command[0] = python
        began = time.monotonic()
        with companion:
            companion.wait_leading(120)
            led = time.monotonic() - began
            pid = companion.component.pid or 0
            # A status and an Event each, as the limit of the settings lets them through.
            first = watch(counter, pid, policies / Settings().companion.writes_per_second)
            told = counter.wait_quiet(600)
            steady = watch(counter, pid, seconds)
            written = companion.writes("WriteStatus")
            events = counter.events()
    return {
        "machine": {"python": platform.python_version(), "architecture": platform.machine()},
        "scene": {"policies": policies, "pods": pods, "namespaces": namespaces},
        "seconds_to_lead": round(led, 1),
        "statuses_written": int(written),
        "first_statuses": first,
        "seconds_until_all_are_told": round(first["seconds"] + told, 1),
        "events": events,
        "steady": steady,
        "met": steady["busiest_5_s_per_second"] < LIMIT_PER_SECOND,
    }


def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """The status is 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.companion", description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=240, help="how long the steady state is watched")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the companion")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures go (JSON)")
    options = parser.parse_args()
    found = run(options.policies, options.pods, options.namespaces, options.python, options.seconds)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 0 if found["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
