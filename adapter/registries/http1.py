"""HTTP/1.1 as far as small questions to one server need it: requests as bytes, and answers read as they come."""

import re
from typing import NamedTuple

from adapter.outbound import Reply
from adapter.registries.errors import WrongRegistryAnswer

LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes."""

_LONGEST_LENGTH = 20
"""Digits."""
_SMALL_CHUNKS, _SMALL = 1000, 64
"""So many chunks of any length; on average more of them hold so many bytes at least, or reading them takes long."""
_END = b"\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_BODILESS = {204, 304}
_CHUNK_LENGTH = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;|$)")


class Request(NamedTuple):
    """A question: `target` is what follows the server's address, path and query."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def written(self, head: str, prefix: str) -> bytes:
        """Its bytes. `head`: the lines that all requests share; `prefix`: the path of the server's address."""
        own = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        length = f"Content-Length: {len(self.body)}\r\n" if self.body else ""
        path = f"{prefix}{self.target}"
        first = f"{self.method} {path if path.startswith('/') else f'/{path}'} HTTP/1.1\r\n"
        return f"{first}{head}{own}{length}\r\n".encode("latin-1") + self.body


class RawReply(NamedTuple):
    """An answer of whatever status; `head` is its status line and headers. `seconds`: how long it was waited for."""

    status: int
    head: bytes
    body: bytes
    seconds: float = 0.0

    def header(self, name: bytes) -> bytes | None:
        """A header's value; None where it is not there. `name` in lower case."""
        at = self.head.lower().find(b"\r\n%b:" % name)
        if at < 0:
            return None
        begin = at + len(name) + 3
        end = self.head.find(_END, begin)
        return self.head[begin : end if end >= 0 else None].strip()

    @property
    def plain(self) -> Reply:
        """As other clients give answers, with the headers that a refusal is told by."""
        location = self.header(b"location")
        headers = {"Location": location.decode("latin-1")} if location is not None else {}
        return Reply(self.status, headers, self.body)


class Reader:
    """Reads one answer; `feed` raises WrongRegistryAnswer for what is none."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        """How far the buffer is read."""
        self._head: RawReply | None = None
        self._length: int | None = None
        """Bytes of the body; None where it comes in chunks."""
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> RawReply | None:
        """The answer once it is whole, which must be all that there is; None before."""
        searched = len(self._buffer)
        self._buffer += data
        if self._head is None:
            self._head = self._read_head(max(0, searched - len(_END_OF_HEAD)))
        if self._head is None:
            return None
        body = self._read_chunks() if self._length is None else self._read_body(self._length)
        if body is None:
            return None
        if len(self._buffer) > self._at:
            raise SurplusAnswer("the server sent more than was asked for; nothing of what it said with it is believed")
        return self._head._replace(body=body)

    def _read_head(self, searched: int) -> RawReply | None:
        end = self._buffer.find(_END_OF_HEAD, searched)
        if end < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise WrongRegistryAnswer("the answer's headers are too long: this is no HTTP server")
            return None
        head = bytes(self._buffer[:end])
        reply = RawReply(_status(head), head, b"")
        self._at, self._length = end + len(_END_OF_HEAD), _length(reply)
        return reply

    def _read_body(self, length: int) -> bytes | None:
        end = self._at + length
        if len(self._buffer) < end:
            return None
        body = bytes(memoryview(self._buffer)[self._at : end])
        self._at = end
        return body

    def _read_chunks(self) -> bytes | None:
        """A chunked body (trailers are passed over)."""
        while (line := self._buffer.find(_END, self._at)) >= 0:
            length = _chunk_length(bytes(self._buffer[self._at : line]))
            if not length:
                return self._read_trailers(line)
            _bounded(self._size + length)
            begin = line + len(_END)
            end = begin + length
            if len(self._buffer) < end + len(_END):
                return None
            self._chunks.append(bytes(memoryview(self._buffer)[begin:end]))
            self._size += length
            self._at = end + len(_END)
            if len(self._chunks) > _SMALL_CHUNKS + self._size // _SMALL:
                raise WrongRegistryAnswer("the answer comes in too many small chunks")
        self._bound_line(self._at)
        return None

    def _read_trailers(self, last: int) -> bytes | None:
        # An empty line ends the last chunk, after trailers where there are any.
        end = self._buffer.find(_END_OF_HEAD, last)
        if end < 0:
            self._bound_line(last)
            return None
        self._at = end + len(_END_OF_HEAD)
        return b"".join(self._chunks)

    def _bound_line(self, begin: int) -> None:
        if len(self._buffer) - begin > LARGEST_HEAD:
            raise WrongRegistryAnswer("the answer's chunks cannot be read")


class SurplusAnswer(WrongRegistryAnswer):
    """More came over a connection than was asked for: nobody knows which answer is to which question."""


def _status(head: bytes) -> int:
    parts = head.split(_END, 1)[0].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not (len(parts[1]) == 3 and parts[1].isdigit()):
        raise WrongRegistryAnswer("the answer is not HTTP/1.1")
    return int(parts[1])


def _length(reply: RawReply) -> int | None:
    """Bytes of the body; None where it comes in chunks."""
    if reply.status in _BODILESS:
        return 0
    if (reply.header(b"transfer-encoding") or b"").lower() == b"chunked":
        return None
    length = reply.header(b"content-length")
    if length is None or not length.isdigit():
        raise WrongRegistryAnswer("the answer does not say how long it is")
    return _bounded(int(length) if len(length) <= _LONGEST_LENGTH else LARGEST_BODY + 1)


def _chunk_length(line: bytes) -> int:
    found = _CHUNK_LENGTH.match(line)
    if found is None:
        raise WrongRegistryAnswer("the answer's chunks cannot be read")
    return int(found[1], 16)


def _bounded(length: int) -> int:
    if length > LARGEST_BODY:
        raise WrongRegistryAnswer(f"the answer is larger than {LARGEST_BODY >> 20} MiB")
    return length
