"""Processor time and memory of a process, from /proc."""

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time so far, user and system, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def share_of_processor(pid: int, seconds: float) -> float:
    """What a process uses of one processor during the next seconds."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return round((cpu_seconds(pid) - before) / (time.monotonic() - began), 4)


def memory(pid: int) -> dict[str, float]:
    """Resident memory (MiB): now, and peak."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {"now": _mib(lines["VmRSS"]), "peak": _mib(lines["VmHWM"])}


def _mib(text: str) -> float:
    kib = int(text.removesuffix("kB"))
    return round(kib / 1024, 1)


def favour(pid: int | str = "self", nice: int = -15) -> None:
    """Raises the priority of a process and its session above other work, if permitted; a positive `nice` lowers it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0 if pid == "self" else int(pid), nice)
