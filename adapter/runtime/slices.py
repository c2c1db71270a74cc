"""Long work on the event loop, cut into slices so that requests are answered in between."""

import asyncio
import gc
import time
from collections import deque
from weakref import WeakKeyDictionary

SLICE_SECONDS = 0.002


class Slices:
    """Yields the event loop once a slice is used up; call `breathe` between steps that are short themselves."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the current slice is used up; true before the first one."""
        return time.perf_counter() >= self._until

    async def breathe(self) -> None:
        """Yields the loop and begins the next slice where this one is over."""
        if self.is_over:
            await self.next()

    async def next(self) -> None:
        """Waits for the turn of the next slice and begins it."""
        await turn()
        self._until = time.perf_counter() + self._seconds


async def turn() -> None:
    """Wait until the next slice of long work may begin: one in each pass of the loop, by order of asking.

    So whoever waits for the loop waits for one slice, however many tasks have long work to do.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = _Turns()
    await turns.take(loop)


class _Turns:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        future = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give, loop)
        self._waiting.append(future)
        return future

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        given = self._waiting.popleft()
        while given.done() and self._waiting:  # cancelled
            given = self._waiting.popleft()
        if not given.done():
            given.set_result(None)
        if self._waiting:
            loop.call_soon(self._give, loop)


_TURNS: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]" = WeakKeyDictionary()


def freeze_live_objects() -> None:
    """Take all objects that live now out of the garbage collector's full passes, each of which holds the loop.

    A pass costs about 0.5 ms per thousand objects, and a copy of a large collection lives as long as the process does.
    What its reference count frees is freed as ever; only cycles that are garbage at this moment stay.
    """
    if gc.isenabled():  # a process that has not begun to collect has everything to look at, and hardly any garbage
        gc.collect(1)
    gc.freeze()
