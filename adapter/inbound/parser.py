"""aiohttp's HTTP parser with a bound on the bytes it may hold before it yields a request."""

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

HEAD_BYTES = 256 * 1024
"""Limit for request line and headers together; hundreds of groups take about 30 KiB."""
LINE_BYTES = 64 * 1024
"""Limit for one header, and for the request line: a selector of a few thousand values."""
MOST_HEADERS = 2048

ParserOutput = tuple[Sequence[tuple[Any, Any]], bool, bytes]


class HeadTooLargeError(HttpProcessingError):
    """A request head, or the trailers of a body, exceed the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(code=431, message=f"the request's line and headers are larger than {limit >> 10} KiB")


def is_too_large(error: BaseException | None) -> bool:
    """Whether a request failed because its head is too large, as a whole or in one line or field."""
    return isinstance(error, HeadTooLargeError | LineTooLong) or "Too many headers" in str(error or "")


class BoundedParser:
    """Wraps aiohttp's parser of one connection and counts the bytes that it holds.

    `head_bytes`: bytes fed since the parser last yielded a head or body data; a chunk that yields one resets it to 0.
    `parsed`: requests yielded so far. `untaken`: those that the handler has not taken yet; `consumed` is called when it
    takes one.
    """

    __slots__ = ("_broken", "_consumed", "_limit", "_parser", "_payload", "head_bytes", "parsed", "untaken")

    def __init__(self, parser: Any, limit: int, consumed: Callable[[], None]) -> None:
        self._parser = parser
        self._limit = limit
        self._consumed = consumed
        self._payload: Any = None
        self._broken = False
        self.parsed = 0
        self.head_bytes = 0
        self.untaken = 0

    @property
    def in_body(self) -> bool:
        """Whether the parser is within a body."""
        return self._payload is not None

    def feed_data(self, data: bytes) -> ParserOutput:
        """As aiohttp's. Raises HttpProcessingError, also HeadTooLargeError; ignores all data after an error."""
        if self._broken:
            return (), False, b""
        try:
            room = self._limit - self.head_bytes
            return self._feed(data) if len(data) <= room else self._feed_over(data, room)
        except HttpProcessingError:
            self._broken = True
            raise

    def _feed_over(self, data: bytes, room: int) -> ParserOutput:
        """Feed more data than fits: the part that fits has to yield a head or body data."""
        first = self._feed(data[:room])
        if self.head_bytes >= self._limit:
            raise HeadTooLargeError(self._limit)
        messages, upgraded, tail = first
        if upgraded:
            return messages, True, tail + data[room:]
        more, upgraded, tail = self.feed_data(data[room:])
        return (*messages, *more), upgraded, tail

    def _feed(self, data: bytes) -> ParserOutput:
        payload = self._payload
        before = payload.total_bytes if payload is not None else 0
        fed: ParserOutput = self._parser.feed_data(data)
        messages = fed[0]
        if messages:
            self.parsed += len(messages)
            self.untaken += len(messages)
            self._payload = payload = messages[-1][1]
        elif payload is None or (payload.total_bytes == before and not payload.is_eof()):
            self.head_bytes += len(data)
            return fed
        self.head_bytes = 0
        if payload.is_eof():
            self._payload = None
        return fed

    def message_consumed(self) -> None:
        """Called by aiohttp when the handler takes a request."""
        if self.untaken:
            self.untaken -= 1
        self._parser.message_consumed()
        self._consumed()

    def close(self) -> None:
        """Drop all references: a reference cycle would stay in memory until the next full garbage collection."""
        self._parser = self._payload = None
        self._consumed = _nothing
        self._broken = True

    def feed_eof(self) -> Any:
        return self._parser.feed_eof()

    def pause_reading(self) -> None:
        self._parser.pause_reading()

    def set_upgraded(self, upgraded: bool) -> None:
        self._parser.set_upgraded(upgraded)


def _nothing() -> None: ...
