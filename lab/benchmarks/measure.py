"""One measurement: a load generator against a process, its latencies and the processor time that they took."""

import array
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from lab.benchmarks.load import Plan
from lab.benchmarks.processes import cpu_seconds


@dataclass(frozen=True)
class Trace:
    """Latencies (seconds) with the moments they ended, on the machine's monotonic clock."""

    moments: tuple[float, ...]
    latencies: tuple[float, ...]

    def within(self, first: float, last: float) -> "Trace":
        """The requests that were under way between two moments."""
        chosen = [
            (moment, latency)
            for moment, latency in zip(self.moments, self.latencies, strict=True)
            if moment >= first and moment - latency <= last
        ]
        return Trace(tuple(m for m, _ in chosen), tuple(lat for _, lat in chosen))

    def __add__(self, other: "Trace") -> "Trace":
        return Trace(self.moments + other.moments, self.latencies + other.latencies)

    def milliseconds(self, share: float) -> float:
        """A percentile, by nearest rank."""
        ordered = sorted(self.latencies)
        rank = max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))
        return round(1000 * ordered[rank], 3) if ordered else 0.0

    @property
    def summary(self) -> dict[str, float]:
        worst = max(self.latencies, default=0.0)
        return {
            "requests": len(self.latencies),
            "p50_ms": self.milliseconds(0.5),
            "p99_ms": self.milliseconds(0.99),
            "max_ms": round(1000 * worst, 3),
        }


@dataclass(frozen=True)
class Measured:
    """A whole run: its trace, its duration, and the server's processor time."""

    trace: Trace
    seconds: float
    cpu: float
    refused: int = 0

    @property
    def per_second(self) -> float:
        return len(self.trace.latencies) / self.seconds


class Load:
    """A load generator at work; `finish` waits for it."""

    def __init__(self, plan: Plan, pid: int) -> None:
        handle, self._path = tempfile.mkstemp(prefix="effective-load-trace-")
        os.close(handle)
        self._pid = pid
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.benchmarks.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._before = cpu_seconds(pid)
        assert self._process.stdin is not None
        self._process.stdin.write(replace(plan, trace=self._path).text())
        self._process.stdin.close()

    def finish(self) -> Measured:
        assert self._process.stdout is not None
        report = json.loads(self._process.stdout.read())
        cpu = cpu_seconds(self._pid) - self._before
        self._process.wait()
        raw = array.array("d")
        path = Path(self._path)
        try:
            if "error" in report:
                raise RuntimeError(report["error"])
            with path.open("rb") as file:
                raw.fromfile(file, 2 * report["requests"])
        finally:
            path.unlink()
        trace = Trace(tuple(itertools.islice(raw, 0, None, 2)), tuple(itertools.islice(raw, 1, None, 2)))
        return Measured(trace, report["seconds"], cpu, report["refused"])


def measure(plan: Plan, pid: int) -> Measured:
    """Runs a plan against the process."""
    return Load(plan, pid).finish()
