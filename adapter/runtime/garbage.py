"""Collects garbage cycles in short steps, at its own times instead of Python's.

Python collects once a thousand more objects were made than freed. Samples and assessments replace as many as they make:
that count hardly moves, while the young objects become tens of thousands, and one collection then blocks the event loop
for 10 to 100 ms.
"""

import asyncio
import gc
import time

AIM_SECONDS = 0.001
"""Processor time of one collection of young objects."""
SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 0.05
"""Between two of them; the more objects are made, the shorter."""
FULL_SECONDS = (300.0, 3600.0)
"""Between two collections of all objects, each of which takes tenths of a second in a large cluster."""
MUCH_GARBAGE = 10_000
"""Objects that a full collection frees; where it frees fewer, the next one comes later."""


async def collect_in_steps() -> None:
    """Collect until cancelled. Objects that exist now are never looked at again: few of them become garbage."""
    gc.freeze()
    gc.disable()
    pause, full = LONGEST_SECONDS, FULL_SECONDS[0]
    until = time.monotonic() + full
    while True:
        await asyncio.sleep(pause)
        if time.monotonic() >= until:
            full = next_full(full, gc.collect())
            until = time.monotonic() + full
            continue
        began = time.thread_time()
        gc.collect(1)
        pause = next_pause(pause, time.thread_time() - began)


def next_pause(pause: float, took: float) -> float:
    """The seconds until the next collection: what took `took` after `pause` would then take AIM_SECONDS."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, pause * AIM_SECONDS / max(took, 1e-6)))


def next_full(seconds: float, freed: int) -> float:
    """The seconds until the next full collection, after one that freed so many objects."""
    return FULL_SECONDS[0] if freed >= MUCH_GARBAGE else min(2 * seconds, FULL_SECONDS[1])
