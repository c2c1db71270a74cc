"""The longest steps of the event loop with 50,000 pods: `python -m lab.benchmarks.relist`, on a real API server.

In the start, in a minute at rest, and while the API server is killed and started again, so that everything is listed
anew; there a metric is read 100 times a second, too. The clock's time of a step contains what two processors gave to
the API server meanwhile, its processor time does not. Exits with status 1 if a step takes more than 50 ms of processor
time, or if a request fails. It takes six minutes.
"""

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.scale import PODS_OF_A_NAMESPACE, PODS_OF_A_POLICY, start
from lab.benchmarks.stage import Stage
from lab.benchmarks.steps import Step, long_steps
from lab.harness.workloads import until

MOST_MS = 50.0
_REST_SECONDS, _AWAY_SECONDS, _RATE = 60.0, 2.0, 100.0


class SteppedStage(Stage):
    """A stage whose adapter records its long steps."""

    @property
    def steps(self) -> Path:
        return self.cluster.folder / "steps"

    @property
    def command(self) -> tuple[str, ...]:
        return ("-m", "lab.benchmarks.steps", str(self.steps), "serve")

    def listed(self) -> list[dict[str, Any]]:
        """What the adapter logged of its lists of pods."""
        lines = (self.cluster.folder / "adapter.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if '"resource_listed"' in line]
        return [one for one in found if one["resource"] == "pods"]


def longest(steps: list[Step]) -> dict[str, Any]:
    """The longest step by the clock and that by processor time, and how many took longer than the aim by either."""
    return {
        "longest_ms": round(1000 * max((step["seconds"] for step in steps), default=0.0), 1),
        "longest_cpu_ms": round(1000 * max((step["cpu"] for step in steps), default=0.0), 1),
        "too_long": sum(1000 * step["seconds"] > MOST_MS for step in steps),
        "too_long_cpu": sum(1000 * step["cpu"] > MOST_MS for step in steps),
    }


def relist(stage: SteppedStage, seconds: float) -> dict[str, Any]:
    """Has all objects listed again under requests, `seconds` from the API server's end to the last request."""
    began, used, before = time.time(), cpu_seconds(stage.pid), len(stage.listed())
    plan = replace(stage.plan("effective_cpu", seconds=seconds, rate=_RATE), tolerant=True)
    found: list[Measured] = []
    requests = threading.Thread(target=lambda: found.append(measure(plan, stage.pid)))
    requests.start()
    server = stage.cluster.components["kube-apiserver"]
    server.kill()
    time.sleep(_AWAY_SECONDS)
    server.start()
    favour(server.pid or 0)
    until(lambda: len(stage.listed()) > before, 2 * seconds, lambda: "the pods are not listed again")
    requests.join()
    return {
        "list_seconds": stage.listed()[-1]["seconds"],
        "cpu_seconds": round(cpu_seconds(stage.pid) - used, 1),
        "effective_cpu": {"rate": _RATE, "refused": found[0].refused, **found[0].summary},
        "mib": memory(stage.pid),
        **longest(long_steps(stage.steps, began)),
    }


def main() -> int:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--pods", type=int, default=50_000, help="default: %(default)s")
    parser.add_argument("--relists", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=90, help="of requests in a relist (default: %(default)s)")
    given = parser.parse_args()
    favour()
    counts = (given.pods // PODS_OF_A_POLICY, given.pods, max(1, given.pods // PODS_OF_A_NAMESPACE))
    with SteppedStage(*counts, sys.executable) as stage:
        figures: dict[str, Any] = {"pods": given.pods, "start": {**start(stage), **longest(long_steps(stage.steps))}}
        began = time.time()
        time.sleep(_REST_SECONDS)
        figures["rest"] = longest(long_steps(stage.steps, began))
        figures["relists"] = [relist(stage, given.seconds) for _ in range(given.relists)]
    record.write(given.output, figures)
    scenes = [figures["start"], figures["rest"], *figures["relists"]]
    refused = sum(one["effective_cpu"]["refused"] for one in figures["relists"])
    return 1 if refused or any(one["too_long_cpu"] for one in scenes) else 0


if __name__ == "__main__":
    sys.exit(main())
