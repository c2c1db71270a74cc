"""Bounds the answers of other servers: each by its source's limit, all together by one budget of memory.

Bytes count after unpacking, and are checked as they arrive. The reader of a large answer reserves all that it may need
at once, so none waits while holding a part. A request's deadline covers the wait, too.

A source holds at most one reservation; sources wait in the order of their requests. So a slow source with many answers
delays only its own, as long as the budget has room for the others.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from adapter.runtime.source_errors import AnswerTooLarge

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MIB = 1024 * 1024
FREE_BYTES = 256 * 1024
"""Answers up to this size reserve nothing: connections are few, and most answers are small."""
SEGMENT_BYTES = 64 * 1024
TOTAL_BYTES = 128 * MIB


class Limit(NamedTuple):
    """The largest answer of a source in bytes, and the settings' key that sets it (empty: none)."""

    size: int
    key: str = ""

    def check(self, size: int) -> None:
        """Raises AnswerTooLarge for more than the limit."""
        if size <= self.size:
            return
        if self.key:
            raise AnswerTooLarge(
                f"the answer is larger than {self.key} ({self.size / MIB:g}): ask for less, or raise that limit"
            )
        raise AnswerTooLarge(f"the answer is larger than {self.size / MIB:g} MiB")


class AnswerBudget:
    """The bytes of undecoded answers that may be in memory at once."""

    def __init__(self, total: int = TOTAL_BYTES) -> None:
        self._total = total
        self._taken: dict[str, int] = {}
        """By source."""
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    @property
    def taken(self) -> int:
        """The reserved bytes."""
        return sum(self._taken.values())

    def resize(self, total: int) -> None:
        """Changes the budget; reservations stay."""
        self._total = total
        self._serve()

    @contextlib.asynccontextmanager
    async def reserve(self, source: str) -> AsyncIterator["Reservation"]:
        """A reservation for one answer of a source, made when the answer proves large, released at the end."""
        reservation = Reservation(self, source)
        try:
            yield reservation
        finally:
            if reservation.held:
                del self._taken[source]
                self._serve()

    async def take(self, source: str, size: int) -> None:
        """Waits until the bytes are free; a request for more than the whole budget gets all of it."""
        future = asyncio.get_running_loop().create_future()
        entry = (source, size, future)
        self._waiting.append(entry)
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                del self._taken[source]
            else:
                self._waiting.remove(entry)
            self._serve()
            raise

    def _serve(self) -> None:
        """Grants waiting requests in their order; the first that does not fit holds up all behind it."""
        for entry in list(self._waiting):
            source, size, future = entry
            if source in self._taken or future.done():  # the latter was cancelled, and leaves as soon as its task runs
                continue
            size = min(size, self._total)
            if self.taken + size > self._total:
                return
            self._waiting.remove(entry)
            self._taken[source] = size
            future.set_result(None)


class Reservation:
    """One answer's part of the budget. `waiting`: it is requested and not yet granted."""

    def __init__(self, budget: AnswerBudget, source: str) -> None:
        self._budget = budget
        self._source = source
        self.held = False
        self.waiting = False

    async def take(self, size: int) -> None:
        """Waits for `size` bytes, unless some are held already."""
        if self.held:
            return
        self.waiting = True
        await self._budget.take(self._source, size)
        self.held, self.waiting = True, False

    def late(self, seconds: float) -> str:
        """The sentence for a request without an answer within its deadline."""
        waited = ", waiting for memory that other answers hold" if self.waiting else ""
        return f"no answer within {seconds:g} s{waited}"


class Body:
    """The bytes of an answer in segments, so that no large block is ever copied."""

    def __init__(self, content: bytes = b"") -> None:
        self._segments: deque[bytearray] = deque()
        self._size = 0
        self.append(content)

    def __len__(self) -> int:
        return self._size

    def append(self, chunk: bytes) -> None:
        """Appends bytes."""
        self._size += len(chunk)
        if self._segments and len(self._segments[-1]) + len(chunk) <= SEGMENT_BYTES:
            self._segments[-1] += chunk
        elif chunk:
            self._segments.append(bytearray(chunk))

    def pop(self) -> bytearray:
        """Removes and returns the first segment; empty at the end."""
        segment = self._segments.popleft() if self._segments else bytearray()
        self._size -= len(segment)
        return segment

    def start(self, size: int) -> bytes:
        """The first `size` bytes at most; they stay."""
        return bytes(self._segments[0][:size]) if self._segments else b""

    def whole(self) -> bytes:
        """All bytes in one block; for small answers."""
        return b"".join(self._segments)


async def read_body(response: "ClientResponse", limit: Limit, reservation: Reservation | None) -> Body:
    """The whole body, unpacked, counted by the reservation if there is one. Raises AnswerTooLarge over the limit."""
    length = None if "Content-Encoding" in response.headers else response.content_length
    limit.check(length or 0)
    body = Body()
    async for chunk in response.content.iter_any():
        size = len(body) + len(chunk)
        limit.check(size)
        if reservation is not None and size > FREE_BYTES:
            await reservation.take(limit.size if length is None else length)
        body.append(chunk)
    return body


async def discard_body(response: "ClientResponse", limit: Limit) -> None:
    """Reads the body and drops it. Raises AnswerTooLarge as `read_body`."""
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        limit.check(size)


ANSWERS = AnswerBudget()
"""The budget of this process."""
