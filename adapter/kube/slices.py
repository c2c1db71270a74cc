"""Long work on the event loop, cut into slices so that requests are answered in between."""

import asyncio
import gc
import time

SLICE_SECONDS = 0.002


class Slices:
    """Hands the loop over once the slice is used up; call `breathe` between steps that are short themselves."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.perf_counter() + seconds

    async def breathe(self) -> None:
        """Let others run if this slice is over, and begin the next."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + self._seconds


def spare_what_lives() -> None:
    """Take all objects that live now out of the garbage collector's full passes, each of which holds the loop.

    A pass costs about 0.5 ms per thousand objects, and a copy of a large collection lives as long as the process does.
    What its reference count frees is freed as ever; only cycles that are garbage at this moment stay.
    """
    if gc.isenabled():  # a process that has not begun to collect has everything to look at, and hardly any garbage
        gc.collect(1)
    gc.freeze()
