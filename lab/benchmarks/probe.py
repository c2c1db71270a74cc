"""Runs a module with a probe of its event loop: `python -m lab.benchmarks.probe FOLDER MODULE ARGUMENTS...`

SIGUSR1 starts timing every step of the event loop, and how late a timer of 5 ms is; the next one ends that and writes
FOLDER/loop.json. A probe that is not timing costs nothing.
"""

import asyncio
import json
import os
import runpy
import signal
import sys
import time
from asyncio.events import Handle
from pathlib import Path
from typing import Any

INTERVAL_SECONDS = 0.005


class LoopProbe:
    """Times the event loop of the main thread while it is on."""

    def __init__(self) -> None:
        self._run = Handle._run  # noqa: SLF001  the only function that every step passes
        self._on = False

    def start(self) -> None:
        self._on = True
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._cpu_steps: list[float] = []
        self._late: list[float] = []
        self._named: list[tuple[float, str]] = []
        Handle._run = self._timed()  # type: ignore[method-assign]  # noqa: SLF001
        asyncio.get_running_loop().call_soon_threadsafe(self._tick)

    def stop(self) -> dict[str, Any]:
        self._on = False
        Handle._run = self._run  # type: ignore[method-assign]  # noqa: SLF001
        return {
            "seconds": round(time.perf_counter() - self._began, 2),
            "cpu_seconds": round(time.process_time() - self._cpu, 2),
            "steps": len(self._cpu_steps),
            "step_cpu_ms": _summary(self._cpu_steps),
            "late_ms": _summary(self._late),
            "longest_steps": [[round(1000 * cpu, 2), name] for cpu, name in sorted(self._named, reverse=True)[:10]],
        }

    def toggle(self, out: Path) -> None:
        if not self._on:
            self.start()
            return
        partial = out.with_suffix(".part")
        partial.write_text(json.dumps(self.stop()))
        partial.rename(out)

    def _timed(self) -> Any:
        run, cpu, named, processor = self._run, self._cpu_steps, self._named, time.thread_time

        def timed(handle: Handle) -> None:
            used = processor()
            run(handle)
            spent = processor() - used
            cpu.append(spent)
            if spent > 0.003:
                named.append((spent, _name(handle)))

        return timed

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + INTERVAL_SECONDS

        def late() -> None:
            if self._on:
                self._late.append(loop.time() - due)
                self._tick()

        loop.call_at(due, late)


def _name(handle: Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    return (
        task.get_name() + ": " + repr(task.get_coro())[:90] if isinstance(task, asyncio.Task) else repr(callback)[:120]
    )


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else 0.0

    return {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1.0), "sum": round(1000 * sum(ordered), 1)}


def main() -> None:
    folder, module, *arguments = sys.argv[1:]
    probe = LoopProbe()
    signal.signal(signal.SIGUSR1, lambda *_: probe.toggle(Path(folder) / "loop.json"))
    os.environ.pop("PYTHONSTARTUP", None)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
