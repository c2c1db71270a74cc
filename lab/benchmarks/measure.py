"""One measurement: a load generator against a process, its latencies and the processor time that they took."""

import json
import subprocess
import sys
from dataclasses import dataclass

from lab.benchmarks.load import Plan
from lab.benchmarks.processes import cpu_seconds


@dataclass(frozen=True)
class Measured:
    """Runs: the latencies of their requests and their duration (seconds), and the server's processor time."""

    latencies: tuple[float, ...] = ()
    seconds: float = 0.0
    cpu: float = 0.0
    refused: int = 0

    @property
    def per_cpu_second(self) -> float:
        return len(self.latencies) / self.cpu

    def milliseconds(self, share: float) -> float:
        """A percentile, by nearest rank."""
        ordered = sorted(self.latencies)
        rank = max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))
        return round(1000 * ordered[rank], 3) if ordered else 0.0

    @property
    def summary(self) -> dict[str, float]:
        return {
            "requests": len(self.latencies),
            "p50_ms": self.milliseconds(0.5),
            "p99_ms": self.milliseconds(0.99),
            "max_ms": self.milliseconds(1.0),
        }


def measure(plan: Plan, pid: int) -> Measured:
    """Runs a plan against the process. RuntimeError: an answer was wrong or late."""
    before = cpu_seconds(pid)
    line = [sys.executable, "-m", "lab.benchmarks.load"]
    report = json.loads(subprocess.run(line, input=plan.text(), stdout=subprocess.PIPE, check=True).stdout)
    if "error" in report:
        raise RuntimeError(report["error"])
    return Measured(tuple(report["latencies"]), report["seconds"], cpu_seconds(pid) - before, report["refused"])
