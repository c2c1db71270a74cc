"""Bounds on what other servers answer: each answer by its source's own limit, all of them together by one budget.

Bytes count as they are after unpacking, and are judged while they arrive. Whoever reads a large answer takes all that
it may need at once, so nobody waits while holding a part. The deadline of a request covers the wait too.

A source has at most one large answer at a time; other sources wait in the order in which they asked. So one source,
however slow and however many its answers, delays its own answers only, while the budget has room for the others.
"""

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from adapter.runtime.source_errors import AnswerTooLarge

MIB = 1024 * 1024
FREE_BYTES = 256 * 1024
"""An answer takes nothing from the budget up to here: connections are few, and most answers are small."""
SEGMENT_BYTES = 64 * 1024
DIGESTED_BYTES = 1024 * 1024
TOTAL_BYTES = 128 * MIB
TOTAL_KEY = "answers.maxTotalMiB"


class Limit(NamedTuple):
    """The bytes that an answer of a source may have, and the settings' key that says so (empty: none does)."""

    size: int
    key: str = ""

    def check(self, size: int) -> None:
        """Raises AnswerTooLarge where an answer of `size` bytes is over the limit."""
        if size <= self.size:
            return
        if self.key:
            raise AnswerTooLarge(
                f"the answer is larger than {self.key} ({self.size / MIB:g}): ask for less, or raise that limit"
            )
        raise AnswerTooLarge(f"the answer is larger than {self.size / MIB:g} MiB")


class AnswerBudget:
    """Bytes of answers that may be in memory at once, before they are decoded."""

    def __init__(self, total: int = TOTAL_BYTES) -> None:
        self._total = total
        self._taken: dict[str, int] = {}
        """By source."""
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    @property
    def taken(self) -> int:
        """The bytes that are taken now."""
        return sum(self._taken.values())

    def resize(self, total: int) -> None:
        """Change the bytes; what is taken stays so."""
        self._total = total
        self._serve()

    @contextlib.asynccontextmanager
    async def reserve(self, source: str) -> AsyncIterator["Reservation"]:
        """Room for one answer of a source, taken when the answer turns out to be large; given back at the end."""
        reservation = Reservation(self, source)
        try:
            yield reservation
        finally:
            if reservation.held:
                del self._taken[source]
                self._serve()

    async def take(self, source: str, size: int) -> None:
        """Wait until the bytes are free; one that needs more than all has them all."""
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
        """Give to those who wait, in their order: the first that does not fit keeps its place before all behind it."""
        for entry in list(self._waiting):
            source, size, future = entry
            if source in self._taken:
                continue
            size = min(size, self._total)
            if self.taken + size > self._total:
                return
            self._waiting.remove(entry)
            self._taken[source] = size
            future.set_result(None)


class Reservation:
    """One answer's part of the budget. `waiting`: it has asked for its part and not got it."""

    def __init__(self, budget: AnswerBudget, source: str) -> None:
        self._budget = budget
        self._source = source
        self.held = False
        self.waiting = False

    async def take(self, size: int) -> None:
        """Wait for so many bytes, unless there are some already."""
        if self.held:
            return
        self.waiting = True
        await self._budget.take(self._source, size)
        self.held, self.waiting = True, False

    def late(self, seconds: float) -> str:
        """What to say of a request that had no answer within its deadline."""
        waited = f", waiting for memory that other answers hold ({TOTAL_KEY})" if self.waiting else ""
        return f"no answer within {seconds:g} s{waited}"


class _Content(Protocol):
    def iter_any(self) -> AsyncIterator[bytes]: ...


class IncomingResponse(Protocol):
    """What is read of a response of aiohttp."""

    @property
    def content(self) -> "_Content": ...
    @property
    def content_length(self) -> int | None: ...
    @property
    def headers(self) -> "_Headers": ...


class _Headers(Protocol):
    def __contains__(self, name: object) -> bool: ...


class Body:
    """The bytes of an answer in segments, so that no large block is ever copied."""

    def __init__(self, content: bytes = b"") -> None:
        self._segments: deque[bytearray] = deque()
        self._size = 0
        self.append(content)

    def __len__(self) -> int:
        return self._size

    def append(self, chunk: bytes) -> None:
        """Put some bytes to the end."""
        self._size += len(chunk)
        if self._segments and len(self._segments[-1]) + len(chunk) <= SEGMENT_BYTES:
            self._segments[-1] += chunk
        elif chunk:
            self._segments.append(bytearray(chunk))

    def pop(self) -> bytearray:
        """Take the first segment away; empty at the end."""
        segment = self._segments.popleft() if self._segments else bytearray()
        self._size -= len(segment)
        return segment

    def start(self, size: int) -> bytes:
        """The first bytes, so many at most; they stay."""
        return bytes(self._segments[0][:size]) if self._segments else b""

    def digest(self) -> bytes:
        """What tells this answer from any other; empty for one that is too large to look at in one step."""
        if len(self) > DIGESTED_BYTES:
            return b""
        digest = hashlib.sha256()
        for segment in self._segments:
            digest.update(segment)
        return digest.digest()

    def whole(self) -> bytes:
        """All bytes in one; for answers that are small."""
        return b"".join(self._segments)


async def read_body(response: IncomingResponse, limit: Limit, reservation: Reservation | None) -> Body:
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


async def discard_body(response: IncomingResponse, limit: Limit) -> None:
    """Read past the body and keep nothing of it. Raises AnswerTooLarge as `read_body`."""
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        limit.check(size)


ANSWERS = AnswerBudget()
"""The budget of this process: its memory is one, so its budget is too."""
