"""JSON decoders whose only error is msgspec.MsgspecError.

msgspec's own also raise RecursionError for JSON nested deeper than Python's stack allows, and UnicodeDecodeError for
text that is not UTF-8. Any server can send both.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar, overload

import msgspec

from adapter.runtime.answer_budget import SEGMENT_BYTES, Body
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import SourceError

T = TypeVar("T")
U = TypeVar("U")

_SHARED_TEXTS, _SHARED_LENGTH = 1 << 14, 256
_first = functools.lru_cache(_SHARED_TEXTS)(str)


def shared(text: str) -> str:
    """The first of equal texts, where it is short and was seen lately.

    Not sys.intern: Python 3.12 never frees what it interned, and a tenant may write ever new labels.
    """
    return _first(text) if len(text) <= _SHARED_LENGTH else text


class Decoder(Generic[T]):
    """As msgspec.json.Decoder."""

    __slots__ = ("_decode",)

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "Decoder[Any]", kind: Any) -> None: ...
    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes | bytearray | msgspec.Raw) -> T:
        """The value that the bytes hold. Raises msgspec.MsgspecError."""
        try:
            return self._decode(body)  # type: ignore[no-any-return]
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deep") from None
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"JSON is not UTF-8: {error}") from error


def decode(body: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    """As msgspec.json.decode. Raises msgspec.MsgspecError."""
    return Decoder(kind).decode(body)


# --- until usage and registries decode whole answers ---

PIECE_BYTES = 48 * 1024
WHOLE_BYTES = 1024 * 1024
"""The most that one step decodes, in about 5 ms: an answer that cannot be cut, or one element of its array."""
_LONGEST_BETWEEN = 1024
"""The longest match of `between` in bytes; elements further apart are not separated."""


class Uncut(SourceError):  # noqa: N818 - an error is called what happened
    """An answer is too large to decode in one step and cannot be cut."""

    summary = "the answer has not the expected form"


class Piece(NamedTuple):
    """A JSON array of some elements; the last piece is the document with the array's last elements."""

    text: bytes | bytearray
    is_last: bool


def array(key: str) -> re.Pattern[bytes]:
    """Matches the array of objects under a key, or with an empty key the document's own array.

    The match ends at the first element; its groups are that element's first key and the bracket of its value.
    """
    opens = rb'"%b"\s*:\s*\[\s*' % re.escape(key).encode() if key else rb"\A\s*\[\s*"
    return re.compile(opens + rb'(?=\{\s*("[^"\\]{1,128}")\s*:\s*([{\["]?))')


def pieces(
    body: Body | bytes, form: re.Pattern[bytes], *, size: int = PIECE_BYTES, most: int = WHOLE_BYTES
) -> Iterator[Piece]:
    """Cuts a document and consumes it, so that its memory is free when the last piece is decoded.

    `form` is an `array`. A short answer, or one without such an array, is one piece. Raises Uncut where a piece would
    be larger than `most` bytes.
    """
    body = body if isinstance(body, Body) else Body(body)
    rest = bytearray()
    _fill(rest, body, size + 1)
    opening = form.search(rest) if len(rest) > size else None
    if opening is None:
        yield _last(rest, body, most)
        return
    # All elements begin with the same key, as programs write them. A quote inside a JSON string is escaped, so the
    # pattern matches nowhere inside strings.
    key, bracket = opening.groups()
    between, start = re.compile(rb"\}(\s*,\s*)\{\s*%b\s*:\s*%b" % (re.escape(key), re.escape(bracket))), opening.end()
    head = rest[:start]
    del rest[:start]
    searched = size
    while len(rest) > size or len(body):
        match = between.search(rest, searched)
        if match is not None:
            stop, start = match.span(1)
            if stop > most + 2 * SEGMENT_BYTES:
                raise _uncut(most)
            yield Piece(b"".join((b"[", rest[:stop], b"]")), is_last=False)
            del rest[:start]
            searched = size
        elif len(body) and len(rest) <= most:
            searched = max(size, len(rest) - _LONGEST_BETWEEN)
            rest += body.pop()
        else:
            break
    yield _last(head + rest, body, most)


async def read_array(
    body: Body, form: re.Pattern[bytes], items: Decoder[list[T]], whole: Decoder[U]
) -> tuple[list[T], U]:
    """Decodes a document in slices: its array's elements but for those of the last piece, and that piece.

    It consumes the body. Raises msgspec.MsgspecError.
    """
    slices = Slices()
    found: list[T] = []
    try:
        for piece in pieces(body, form):
            await slices.breathe()
            if piece.is_last:
                return found, whole.decode(piece.text)
            found += items.decode(piece.text)
    except Uncut as error:
        raise msgspec.DecodeError(str(error)) from error
    raise AssertionError("pieces() ends with a last piece")


def _fill(rest: bytearray, body: Body, size: int) -> None:
    while len(rest) < size and len(body):
        rest += body.pop()


def _last(rest: bytearray, body: Body, most: int) -> Piece:
    _fill(rest, body, most + 1)
    if len(rest) > most + 2 * SEGMENT_BYTES or len(body):
        raise _uncut(most)
    return Piece(rest, is_last=True)


def _uncut(most: int) -> Uncut:
    return Uncut(f"it is not what is expected here, or has parts of more than {most >> 20} MiB")
