"""The part of HTTP/1.1 that small requests to one server need: requests as bytes, answers read as they arrive."""

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple

from adapter.runtime.answer_budget import FREE_BYTES, SEGMENT_BYTES, Body, Limit, Reservation
from adapter.runtime.outbound import Reply
from adapter.runtime.source_errors import WrongAnswer, WrongRegistryAnswer

LARGEST_HEAD = 64 * 1024
"""Bytes; of a chunked body's trailers as well."""
LONGEST_LINE = 4096
"""Bytes of the line before a chunk."""
MOST_CHUNKS = 1000
"""Chunks of a body beyond one for each SMALLEST_CHUNK bytes: each costs processor time."""
SMALLEST_CHUNK = 64
MOST_INTERIMS = 16
"""Interim answers (1xx) before an answer, which servers may send unasked."""

_END = b"\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_DIGITS = 18
_LENGTH = b"content-length:"
_BODILESS = {204, 304}
_SWITCHED = 101
_INTERIM = frozenset(range(100, 200)) - {_SWITCHED}
_STRAY = re.compile(rb"\r(?!\n)|(?<!\r)\n|\r\n[ \t]|\0")
"""What ends a value for some readers of a head and not for others; a tag would carry it into a request's head."""
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;.*?)?\r\n", re.DOTALL)


class Request(NamedTuple):
    """A request; `target` is appended to the server's address (path and query)."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def written(self, head: str, prefix: str) -> bytes:
        """Its bytes. `head`: the header lines that all requests share; `prefix`: the path of the server's address."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        length = f"Content-Length: {len(self.body)}\r\n" if self.body else ""
        path = f"{prefix}{self.target}"
        first = f"{self.method} {path if path.startswith('/') else f'/{path}'} HTTP/1.1\r\n"
        return f"{first}{head}{lines}{length}\r\n".encode("latin-1") + self.body


class RawReply(NamedTuple):
    """An answer of any status; `head` is its status line and headers."""

    status: int
    head: bytes
    body: Body

    def header(self, name: bytes) -> bytes | None:
        """A header's value; None where it is missing. `name` in lower case."""
        at = self.head.lower().find(b"\r\n%b:" % name)
        if at < 0:
            return None
        begin = at + len(name) + 3
        end = self.head.find(_END, begin)
        return self.head[begin : end if end >= 0 else None].strip()

    @property
    def plain(self) -> Reply:
        """The answer as `Client` gives it, with the headers that `refusal` reads."""
        location = self.header(b"location")
        headers = {"Location": location.decode("latin-1")} if location is not None else {}
        return Reply(self.status, headers, self.body.start(SEGMENT_BYTES))


class ResponseReader:
    """Reads one answer of a limited size. `feed` raises WrongRegistryAnswer and AnswerTooLarge."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._buffer = bytearray()
        """Bytes that are not read yet."""
        self._head: RawReply | None = None
        self._interims = 0
        self._length: int | None = None
        """Bytes of the body; None where it comes in chunks."""
        self._body = Body()
        self._chunks = 0
        self._chunked = 0
        """Bytes of all chunks so far, as their lines state them."""
        self._left = 0
        """Missing bytes of a chunk, with the line end after it."""

    @property
    def expected(self) -> int:
        """The body's size as far as it is known."""
        return self._length if self._length is not None else len(self._body) + self._left

    @property
    def is_sized(self) -> bool:
        """Whether the size of the body is known."""
        return self._length is not None

    def feed(self, data: bytes) -> RawReply | None:
        """The answer once it is whole, with nothing after it; None before."""
        searched = len(self._buffer)
        self._buffer += data
        if self._head is None:
            self._head = self._read_head(max(0, searched - len(_END_OF_HEAD)))
        if self._head is None:
            return None
        if self._length is None:
            is_whole = self._read_chunks()
        else:
            missing = self._length - len(self._body)
            self._body.append(bytes(self._buffer[:missing]))
            del self._buffer[:missing]
            is_whole = len(self._body) == self._length
        if not is_whole:
            return None
        if self._buffer:
            raise SurplusAnswer(
                "the server sent more answers than requests; all answers of this connection are dropped"
            )
        return self._head._replace(body=self._body)

    def _read_head(self, searched: int) -> RawReply | None:
        while (end := self._buffer.find(_END_OF_HEAD, searched)) >= 0:
            if end > LARGEST_HEAD:
                break
            head = bytes(self._buffer[:end])
            del self._buffer[: end + len(_END_OF_HEAD)]
            parts = head.split(_END, 1)[0].split(b" ", 2)
            if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not (len(parts[1]) == 3 and parts[1].isdigit()):
                raise WrongRegistryAnswer("the answer is not HTTP/1.1")
            status = int(parts[1])
            if status in _INTERIM:  # the answer itself follows, and would be taken for the next request's
                searched = 0
                self._interims += 1
                if self._interims > MOST_INTERIMS:
                    raise WrongRegistryAnswer(f"more than {MOST_INTERIMS} interim answers came before the answer")
                continue
            if _STRAY.search(head):
                raise WrongRegistryAnswer("a header of the answer has a line break or a NUL in its value")
            reply = RawReply(status, head, self._body)
            self._length = _length(reply)
            self._limit.check(self._length or 0)
            return reply
        if len(self._buffer) > LARGEST_HEAD:
            raise WrongRegistryAnswer("the answer's headers are too long: this is no HTTP server")
        return None

    def _read_chunks(self) -> bool:
        """Read on in a chunked body; whether it is whole. Trailers are discarded."""
        # One copy and a position: to cut each chunk off the buffer would take twice as long.
        received, at, last_line = bytes(self._buffer), 0, -1
        parts: list[bytes] = []
        while last_line < 0:
            if self._left:
                end = at + self._left
                parts.append(received[at : end - len(_END)])
                if end > len(received):
                    at += len(parts[-1])
                    self._left = end - at
                    break
                if not received.startswith(_END, end - len(_END)):
                    raise WrongRegistryAnswer("the answer's chunks cannot be read")
                at, self._left = end, 0
            line = _CHUNK_LINE.match(received, at, at + LONGEST_LINE)
            if line is None:
                if len(received) - at >= LONGEST_LINE or received.find(_END, at) >= 0:
                    raise WrongRegistryAnswer("the answer's chunks cannot be read")
                break
            if length := int(line[1], 16):
                at = line.end()
                self._chunks += 1
                if self._chunks > MOST_CHUNKS + self._chunked // SMALLEST_CHUNK:
                    raise WrongRegistryAnswer(f"the answer comes in chunks of less than {SMALLEST_CHUNK} bytes")
                self._left = length + len(_END)
                self._chunked += length
                if self._chunked > self._limit.size:
                    self._limit.check(self._chunked)
            else:
                last_line = line.end() - len(_END) - at
        self._body.append(b"".join(parts))
        del self._buffer[:at]
        return last_line >= 0 and self._read_trailers(last_line)

    def _read_trailers(self, last: int) -> bool:
        # An empty line ends the body, after trailers if there are any.
        end = self._buffer.find(_END_OF_HEAD, last)
        if end < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise WrongRegistryAnswer("the answer's trailers are too long")
            return False
        del self._buffer[: end + len(_END_OF_HEAD)]
        return True


class SurplusAnswer(WrongRegistryAnswer):
    """More answers came than requests were sent: which belongs to which is unknown."""


def _length(reply: RawReply) -> int | None:
    """Bytes of the body; None where it comes in chunks."""
    if reply.status in _BODILESS:
        return 0
    if reply.status == _SWITCHED:
        raise WrongRegistryAnswer("the server switched to another protocol, which nobody asked for")
    if (reply.header(b"transfer-encoding") or b"").lower() == b"chunked":
        return None
    length = reply.header(b"content-length")
    lengths = {line.partition(b":")[2].strip() for line in reply.head.lower().split(_END) if line.startswith(_LENGTH)}
    if len(lengths) > 1:
        raise WrongRegistryAnswer("the answer has several Content-Lengths that differ")
    if length is None or not length.isdigit() or len(length) > _DIGITS:
        raise WrongRegistryAnswer("the answer does not say how long it is")
    return int(length)


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
        self.closed = False

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
        self.closed = True
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
            # A large answer pauses until the budget has room for it.
            if not self._may_be_large and self._reader.expected > FREE_BYTES:
                self._may_be_large = True
                assert self._transport is not None
                self._transport.pause_reading()
                self._answer.set_result(_Large())
            return
        if (reply.header(b"connection") or b"").lower() == b"close":
            self.close()
        self._answer.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: a waiting request gets no answer."""
        del exc
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
