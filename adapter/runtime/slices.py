"""Cuts long work on the event loop into slices, so that requests are answered in between."""

import asyncio
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
    """Waits until the next slice of long work may begin: one in each pass of the loop, in the order of the calls.

    So a request waits for one slice at most, however many tasks have long work.
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
        future = self._waiting.popleft()
        while future.done() and self._waiting:  # cancelled
            future = self._waiting.popleft()
        if not future.done():
            future.set_result(None)
        if self._waiting:
            loop.call_soon(self._give, loop)


_TURNS: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]" = WeakKeyDictionary()
