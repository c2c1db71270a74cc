"""Runs the command line with a clock that a test steps, and tells how many tasks the event loop has.

`python -m lab.faults.shim FOLDER serve ...`: FOLDER/offset holds seconds that are added to the clock; FOLDER/tasks gets
the number of tasks twice a second, and FOLDER/blocks the number of Python's memory blocks in use, which follows every
object that is kept long before it shows in the resident memory.
"""

import asyncio
import contextlib
import sys
import time
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
            for name, count in (("tasks", len(asyncio.all_tasks()) - 1), ("blocks", sys.getallocatedblocks())):
                whole.write_text(str(count))
                whole.replace(folder / name)
        await asyncio.sleep(PERIOD)


if __name__ == "__main__":
    sys.exit(main())
