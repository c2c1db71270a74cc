"""When a process collects its garbage.

Python collects once 700 (from 3.13: 2,000) more objects were made than freed. Samples and assessments replace as many
as they make: that hardly moves, and collecting tens of thousands of young objects blocks the loop for 10 to 100 ms.
"""

import asyncio
import gc
import sys

from adapter.runtime.concurrency import wait_for_event

YOUNG_SECONDS, YOUNG_COLLECTIONS = 0.05, 20
"""Between two collections of young objects (a millisecond each), and how many there are between two looks at GROWTH."""
GROWTH = 1.1
"""All objects that are not frozen are collected once there are so many times as many blocks of memory as after the last
time, however few there were since. Only that frees what lived for a while and refers to itself, such as a connection
that its client cut (2 KB), and Python's free lists (40,000 blocks). With 50,000 pods it blocks the loop for 0.4 s: it
takes a flood or 5,000 new pods to get there. The process's size would not do: it does not fall with what is freed."""
START_SECONDS, START_GROWTH = 1.0, 3.0
"""Between two looks in a start, and GROWTH there: of pods and policies, or of a flood if the API server is away."""


async def collect_garbage(settled: asyncio.Event) -> None:
    """Collect until cancelled; the young alone only once `settled` is set.

    What exists then is never looked at again: reference counts still free nearly all of it. Some 600 of the objects are
    garbage that stays; after a flood in a start that had to wait, up to two thirds.
    """
    gc.disable()
    blocks = sys.getallocatedblocks()
    while not await wait_for_event(settled, START_SECONDS):
        blocks = _collected(blocks, START_GROWTH)
    gc.freeze()
    blocks = sys.getallocatedblocks()
    while True:
        for _ in range(YOUNG_COLLECTIONS):
            await asyncio.sleep(YOUNG_SECONDS)
            gc.collect(1)
        blocks = _collected(blocks, GROWTH)


def _collected(blocks: int, growth: float) -> int:
    """Collect all objects if there are `growth` times `blocks`; returns the number to compare with next."""
    if sys.getallocatedblocks() > growth * blocks:
        gc.collect()
        blocks = sys.getallocatedblocks()
    return blocks
