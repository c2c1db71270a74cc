"""A large JSON answer, cut into pieces that decode in a fraction of a millisecond each."""

from collections.abc import Iterator
from typing import NamedTuple

PIECE_BYTES = 48 * 1024

_CLOSING = b"]}]"
"""How the array ends: its last element is an object that ends in an array itself (`value`, `containers`)."""


class Cut(NamedTuple):
    """An answer with its one long array emptied, and that array in pieces: each a JSON array by itself."""

    envelope: bytes
    pieces: Iterator[bytes]


def cut(body: bytes, *, opening: bytes, first: bytes, size: int = PIECE_BYTES) -> Cut | None:
    """Cut the array that `opening` (`"items":[`) begins, between elements that begin with `first` (`{"metadata":`).

    None where the bytes do not look like that (a short or empty array, other spacing): decode those whole. A quote
    inside a JSON string is escaped, so the mark between two elements stands nowhere else. The array's end is only
    probable: where it is wrong, envelope or last piece is no valid JSON, and the whole is to be decoded as well.
    """
    if len(body) <= size:
        return None
    start = body.find(opening + first) + len(opening)
    end = body.rfind(_CLOSING) + len(_CLOSING) - 1
    if not len(opening) <= start < end:
        return None
    return Cut(body[:start] + body[end:], _pieces(body, start, end, b"}," + first, size))


def _pieces(body: bytes, start: int, end: int, between: bytes, size: int) -> Iterator[bytes]:
    while start < end:
        at = body.find(between, start + size, end)
        stop = at + 1 if at >= 0 else end
        yield b"[" + body[start:stop] + b"]"
        start = stop + 1
