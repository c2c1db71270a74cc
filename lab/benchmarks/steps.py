"""Runs the adapter and records the long steps of its event loop: `python -m lab.benchmarks.steps FILE serve ...`.

A step is one callback, with the garbage collections in it. FILE gets a line of JSON for each of 10 ms or longer: `at`
(its end, seconds since the epoch), `seconds` by the clock, `cpu` seconds of the loop's thread, and `what` was called.
"""

import json
import sys
import time
from asyncio import events
from pathlib import Path
from typing import Any

from adapter.cli import main

LONG_SECONDS = 0.01
Step = dict[str, Any]


def record_steps(file: Path) -> None:
    """Has every callback of this process's event loops timed."""
    run: Any = vars(events.Handle)["_run"]
    file.write_text("")

    def timed(handle: events.Handle) -> None:
        began, used = time.perf_counter(), time.thread_time()
        run(handle)
        seconds = time.perf_counter() - began
        if seconds >= LONG_SECONDS:
            step: Step = {"at": time.time(), "seconds": seconds, "cpu": time.thread_time() - used, "what": repr(handle)}
            with file.open("a") as lines:
                print(json.dumps(step), file=lines)

    setattr(events.Handle, "_run", timed)  # noqa: B010 - asyncio has no public place for this


def long_steps(file: Path, since: float = 0.0) -> list[Step]:
    """The recorded steps since a time (seconds since the epoch)."""
    return [step for step in map(json.loads, file.read_text().splitlines()) if step["at"] >= since]


if __name__ == "__main__":
    _, where, *sys.argv[1:] = sys.argv
    record_steps(Path(where))
    raise SystemExit(main())
