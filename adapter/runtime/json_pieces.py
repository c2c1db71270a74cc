"""A large JSON answer, cut into pieces that decode in a fraction of a millisecond each."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from adapter.runtime.answer_budget import SEGMENT_BYTES, Body
from adapter.runtime.source_errors import SourceError

PIECE_BYTES = 48 * 1024
WHOLE_BYTES = 1024 * 1024
"""What is decoded in one step at most, in about 5 ms: an answer that cannot be cut, or one element of its array."""
_LONGEST_BETWEEN = 1024
"""Bytes of what `between` matches: elements that are further apart are not told from one another."""


class Uncut(SourceError):  # noqa: N818 - an error is called what happened
    """An answer that is too large to be decoded in one step, and that cannot be cut."""

    summary = "the answer has not the expected form"


class Piece(NamedTuple):
    """A JSON array of some elements; the last one is the whole document with the array's last elements in it."""

    text: bytes | bytearray
    is_last: bool


def array(key: str) -> re.Pattern[bytes]:
    """The array of objects under a key, or with an empty one the array that the document itself is.

    It matches up to the first element; its group is how that begins: its first key, and the bracket of the value.
    """
    opens = rb'"%b"\s*:\s*\[\s*' % re.escape(key).encode() if key else rb"\A\s*\[\s*"
    return re.compile(opens + rb'(?=\{\s*("[^"\\]{1,128}")\s*:\s*([{\["]?))')


def _between(opening: re.Match[bytes]) -> re.Pattern[bytes]:
    """What lies between two elements, in its group, from within the end of one to within the beginning of the next.

    All elements begin with the same key, as programs write them. A quote inside a JSON string is escaped, so this
    matches nowhere inside of strings.
    """
    key, bracket = opening.groups()
    return re.compile(rb"\}(\s*,\s*)\{\s*%b\s*:\s*%b" % (re.escape(key), re.escape(bracket)))


def pieces(
    body: Body | bytes, form: re.Pattern[bytes], *, size: int = PIECE_BYTES, most: int = WHOLE_BYTES
) -> Iterator[Piece]:
    """Cut a document; it is used up on the way, so that its memory is free when the last piece is decoded.

    `form` is an `array`. An answer that is short, or that has no such array, is one piece. Raises Uncut where a piece
    would be larger than `most` bytes.
    """
    body = body if isinstance(body, Body) else Body(body)
    rest = bytearray()
    _fill(rest, body, size + 1)
    opening = form.search(rest) if len(rest) > size else None
    if opening is None:
        yield _last(rest, body, most)
        return
    between, start = _between(opening), opening.end()
    head = rest[:start]
    del rest[:start]
    searched = size
    while len(rest) > size or len(body):
        found = between.search(rest, searched)
        if found is not None:
            stop, start = found.span(1)
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
