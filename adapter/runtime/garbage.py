"""Collects garbage cycles in short steps, at its own times instead of Python's.

Python collects once a thousand more objects were made than freed. Samples and assessments replace as many as they make:
that count hardly moves, while the young objects become tens of thousands, and one collection then blocks the event loop
for 10 to 100 ms.
"""

import asyncio
import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Iterator
from types import ModuleType

AIM_SECONDS = 0.001
"""Processor time of one collection of young objects."""
SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 0.05
"""Between two of them; the more objects are made, the shorter."""
SHORTEST_FULL_SECONDS, LONGEST_FULL_SECONDS = 15.0, 300.0
"""Between two collections of all objects: one takes 5 ms in a small process, tenths of a second in a large cluster."""
FULL_SHARE = 0.001
"""Of the time, for collections of all objects. Only these free what lived for a while and refers to itself: a closed
connection, an error with its frames."""

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt(3)."""
LARGE_BYTES = 128 * 1024
"""glibc's own threshold at the start."""
_FOR_TERMINALS = ("rich", "colorama", "better_exceptions")
"""structlog imports these for colours wherever they are installed: 0.1 s and 10 MiB. Logs have no colours."""


async def collect_in_steps() -> None:
    """Collect until cancelled. Objects that exist now are never looked at again: few of them become garbage."""
    gc.freeze()
    gc.disable()
    pause, until = LONGEST_SECONDS, time.monotonic() + SHORTEST_FULL_SECONDS
    while True:
        await asyncio.sleep(pause)
        began = time.thread_time()
        if time.monotonic() >= until:
            gc.collect()
            until = time.monotonic() + full_pause(time.thread_time() - began)
        else:
            gc.collect(1)
            pause = next_pause(pause, time.thread_time() - began)


def freeze_live_objects() -> None:
    """Exempts all live objects from full garbage collections, each of which blocks the loop.

    A collection costs about 0.5 ms per thousand objects, and the copy of a large resource lives as long as the process.
    Reference counts still free objects; only cycles that are garbage at this moment stay.
    """
    if gc.isenabled():  # with collection off, a first one would scan everything and find hardly any garbage
        gc.collect(1)
    gc.freeze()


def next_pause(pause: float, took: float) -> float:
    """The seconds until the next collection: what took `took` after `pause` would then take AIM_SECONDS."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, pause * AIM_SECONDS / max(took, 1e-6)))


def full_pause(took: float) -> float:
    """The seconds until the next collection of all objects, after one that took so long."""
    return min(LONGEST_FULL_SECONDS, max(SHORTEST_FULL_SECONDS, took / FULL_SHARE))


def return_large_blocks() -> None:
    """Have freed blocks of LARGE_BYTES and more returned to the system at once.

    Without it glibc raises its threshold to the largest block that was ever freed. Buffers of connections (256 KiB) and
    parts of answers then come from the heap, which grows by the holes between them: 125 of 250 MiB after minutes of
    reconnections. Other C libraries have no such function, and need none.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_BYTES)


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """Hides packages for terminals from the imports within, and leaves automatic garbage collection off.

    What is imported stays, so that a collection finds nothing; `assembly` switches collections on again.
    """
    gc.disable()
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # None: the import fails
    hidden = [name for name in _FOR_TERMINALS if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
