"""Runs the command line with a clock that a test steps, and tells how many tasks the event loop has.

`python -m lab.chaos.shim [--short] FOLDER serve ...`: FOLDER/offset holds seconds that are added to the clock.
FOLDER/tasks gets the number of tasks twice a second, and FOLDER/blocks the number of Python's memory blocks in use,
which follows every object that is kept long before it shows in the resident memory. With `--short` the adapter looks at
its certificate sooner than once a minute.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

PERIOD = 0.5


def main() -> int:
    arguments = sys.argv[1:]
    is_short = arguments[0] == "--short"
    folder, *command = arguments[is_short:]
    _step_clock(Path(folder, "offset"))
    if is_short:
        from lab.harness import short_laws

        short_laws.shorten("adapter.apiserver.certificates")
    from adapter import cli

    real = asyncio.run

    def counted(main: Coroutine[Any, Any, Any], **more: Any) -> Any:
        async def both() -> Any:
            counting = asyncio.create_task(_count(Path(folder)))
            try:
                return await main
            finally:
                counting.cancel()

        return real(both(), **more)

    asyncio.run = counted
    return cli.main(command)


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
