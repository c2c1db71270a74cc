"""A large JSON answer, cut into pieces that decode in a fraction of a millisecond each."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from adapter.answer_budget import SEGMENT_BYTES, Body
from adapter.source_errors import SourceError

PIECE_BYTES = 48 * 1024
WHOLE_BYTES = 1024 * 1024
"""What is decoded in one step at most, in about 5 ms: an answer that cannot be cut, or one element of its array."""
_LONGEST_BETWEEN = 1024
"""Bytes of what `between` matches: elements that are further apart are not told from one another."""


class Uncut(SourceError):  # noqa: N818 - an error is called what happened
    """An answer that is too large to be decoded in one step, and that cannot be cut."""

    summary = "the answer has not the expected form"


class Array(NamedTuple):
    """How the one long array of an answer is found in its bytes.

    `opening` ends where the first element begins. `between` matches from within the end of one element to within the
    beginning of the next, and its group is what lies between the two. A quote inside a JSON string is escaped, so a
    pattern with quotes that are not matches nowhere inside of strings.
    """

    opening: re.Pattern[bytes]
    between: re.Pattern[bytes]


class Piece(NamedTuple):
    """A JSON array of some elements; the last one is the whole document with the array's last elements in it."""

    text: bytes | bytearray
    is_last: bool


def array(key: str, first: str, *, value: str = "", end: str = "}") -> Array:
    """The array under a key (empty: the document itself) of objects that begin with the key `first`.

    `value`: how the value under `first` begins; `end`: how elements end. Both only where other objects look alike.
    """
    opens = rb'"%b"\s*:\s*\[\s*' % key.encode() if key else rb"\A\s*\[\s*"
    begins = rb'\{\s*"%b"\s*:%b' % (re.escape(first).encode(), _spaced(value))
    return Array(re.compile(opens + rb"(?=%b)" % begins), re.compile(rb"%b(\s*,\s*)%b" % (_spaced(end), begins)))


def _spaced(text: str) -> bytes:
    return b"".join(rb"\s*" + re.escape(one).encode() for one in text)


def pieces(body: Body, form: Array, *, size: int = PIECE_BYTES) -> Iterator[Piece]:
    """Cut a document; it is used up on the way, so that its memory is free when the last piece is decoded.

    An answer that is short, or that has no such array, is one piece. Raises Uncut where a piece would be too large.
    """
    rest = bytearray()
    _fill(rest, body, size + 1)
    opening = form.opening.search(rest) if len(rest) > size else None
    if opening is None:
        yield _last(rest, body)
        return
    start = opening.end()
    head = rest[:start]
    del rest[:start]
    searched = size
    while len(rest) > size or len(body):
        found = form.between.search(rest, searched)
        if found is not None:
            stop, start = found.span(1)
            yield Piece(b"".join((b"[", rest[:stop], b"]")), is_last=False)
            del rest[:start]
            searched = size
        elif len(body) and len(rest) <= WHOLE_BYTES:
            searched = max(size, len(rest) - _LONGEST_BETWEEN)
            rest += body.pop()
        else:
            break
    yield _last(head + rest, body)


def _fill(rest: bytearray, body: Body, size: int) -> None:
    while len(rest) < size and len(body):
        rest += body.pop()


def _last(rest: bytearray, body: Body) -> Piece:
    _fill(rest, body, WHOLE_BYTES + 1)
    if len(rest) > WHOLE_BYTES + 2 * SEGMENT_BYTES or len(body):
        raise Uncut(f"the answer is not what is expected here, or has parts of more than {WHOLE_BYTES >> 20} MiB")
    return Piece(rest, is_last=True)
