"""One HTTP/1.1 connection to another server: a request out, its answer in.

An answer without a request ends the connection: it could be given to the next request otherwise, as aiohttp does.
"""

import asyncio
from collections.abc import Callable

from adapter.runtime.answer_budget import FREE_BYTES, Limit, Reservation
from adapter.runtime.http1 import RawReply, ResponseReader
from adapter.runtime.source_errors import WrongAnswer


class _Large:
    """Signals that the answer turns out to be large."""


class Connection(asyncio.Protocol):
    """A connection for one request at a time. `on_surplus` is called after an answer without a request."""

    def __init__(self, on_surplus: Callable[[], None] = lambda: None) -> None:
        self._on_surplus = on_surplus
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader(Limit(0))
        self._answer: asyncio.Future[RawReply | _Large | None] | None = None
        self._may_be_large = False
        self._announced = False
        self.closed = False

    @property
    def lost(self) -> bool:
        """Whether it ended without the server's announcement."""
        return self.closed and not self._announced

    async def exchange(self, request: bytes, limit: Limit, reservation: Reservation | None) -> RawReply | None:
        """Send a request; the answer, None where the connection ended before. Raises WrongAnswer.

        A large answer waits for the reservation, if there is one.
        """
        if self.closed:
            return None
        assert self._transport is not None
        self._reader, self._may_be_large = ResponseReader(limit), reservation is None
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._transport.write(request)
        try:
            while isinstance(reply := await self._answer, _Large):
                assert reservation is not None
                self._answer = loop.create_future()
                await reservation.take(self._reader.expected if self._reader.is_sized else limit.size)
                self._transport.resume_reading()
            return reply  # noqa: TRY300  every exception closes the connection
        except BaseException:
            self.close()  # the next request would get the answer to this one
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        """Close it at once."""
        self.closed = self._announced = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read on. Bytes without a request close the connection."""
        if self._answer is None or self._answer.done():
            if not self.closed:
                self.close()
                self._on_surplus()
            return
        try:
            reply = self._reader.feed(data)
        except WrongAnswer as error:
            self.close()
            self._answer.set_exception(error)
            return
        if reply is None:
            self._ask_for_room()
            return
        if (reply.header(b"connection") or b"").lower() == b"close":
            self.close()
        self._answer.set_result(reply)

    def _ask_for_room(self) -> None:
        """Pause a large answer until the budget has room for it."""
        if self._may_be_large or self._reader.expected <= FREE_BYTES:
            return
        self._may_be_large = True
        assert self._transport is not None
        assert self._answer is not None
        self._transport.pause_reading()
        self._answer.set_result(_Large())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: a waiting request gets no answer."""
        del exc
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
