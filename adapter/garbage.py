"""When a process collects its garbage.

Python collects once a thousand more objects were made than freed. Samples and assessments replace as many as they make:
that count hardly moves, while the young objects become tens of thousands, and one collection then blocks the event loop
for 10 to 100 ms.
"""

import asyncio
import gc
import sys

from adapter.runtime.concurrency import wait_for_event

YOUNG_SECONDS = 0.05
"""Between two collections of young objects; each takes about a millisecond."""
START_SECONDS = 300.0
"""Between two collections of all objects in a start that waits for the API server."""
YOUNG_COLLECTIONS = 20
"""Between two looks at the number of blocks of memory, each of which takes 0.1 ms with 50,000 pods."""
GROWTH = 1.1
"""All objects that are not frozen are collected once there are so many times as many blocks as after the last time.
Only that frees what lived for a while and refers to itself, such as a connection that its client cut (2 KB), and
Python's free lists (40,000 blocks). It blocks the loop: for 0.4 s with 50,000 pods, where it comes with a flood, or
with 5,000 new pods. The process's size would not do: it does not fall with what is freed."""


async def collect_garbage(settled: asyncio.Event) -> None:
    """Collect until cancelled: nothing young until `settled`, seconds after the start, is set.

    What exists then is never looked at again. Little of it becomes garbage, and reference counts still free that.
    """
    gc.disable()
    while not await wait_for_event(settled, START_SECONDS):
        gc.collect()
    gc.freeze()
    blocks = sys.getallocatedblocks()
    while True:
        for _ in range(YOUNG_COLLECTIONS):
            await asyncio.sleep(YOUNG_SECONDS)
            gc.collect(1)
        if sys.getallocatedblocks() > GROWTH * blocks:
            gc.collect()
            blocks = sys.getallocatedblocks()
