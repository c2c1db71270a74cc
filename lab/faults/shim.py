"""Runs the command line with a clock that a test steps, and tells how many tasks the event loop has.

`python -m lab.faults.shim FOLDER serve ...`: FOLDER/offset holds seconds that are added to the clock; FOLDER/tasks gets
the number of tasks twice a second, FOLDER/kinds-of-tasks how many run which coroutine, and FOLDER/blocks the number of
Python's memory blocks in use, which follows every object that is kept long before it shows in the resident memory.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

PERIOD = 0.5


def main(prepare: Callable[[], None] = lambda: None) -> int:
    """`prepare` runs once the clock is replaced, before anything else of the adapter is loaded."""
    folder = Path(sys.argv[1])
    _step_clock(folder / "offset")
    prepare()
    from adapter import cli

    real = asyncio.run

    def counted(main: Coroutine[Any, Any, Any], **more: Any) -> Any:
        async def both() -> Any:
            counting = asyncio.create_task(_count(folder))
            try:
                return await main
            finally:
                counting.cancel()

        return real(both(), **more)

    asyncio.run = counted
    return cli.main(sys.argv[2:])


def _step_clock(file: Path) -> None:
    real, real_ns = time.time, time.time_ns

    def offset() -> float:
        with contextlib.suppress(OSError, ValueError):
            return float(file.read_text())
        return 0.0

    time.time = lambda: real() + offset()
    time.time_ns = lambda: real_ns() + int(offset() * 1e9)


async def _count(folder: Path) -> None:
    whole = folder / "tasks.new"
    while True:
        with contextlib.suppress(OSError):  # renamed, so that nobody reads an empty file
            tasks = asyncio.all_tasks()
            kinds = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
            for name, text in (
                ("tasks", str(len(tasks) - 1)),
                ("kinds-of-tasks", json.dumps(dict(sorted(kinds.items())))),
                ("blocks", str(sys.getallocatedblocks())),
            ):
                whole.write_text(text)
                whole.replace(folder / name)
        await asyncio.sleep(PERIOD)


if __name__ == "__main__":
    sys.exit(main())
