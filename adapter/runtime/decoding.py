"""JSON decoders whose only error is msgspec.MsgspecError.

msgspec's own also raise RecursionError for JSON nested deeper than Python's stack allows, and UnicodeDecodeError for
text that is not UTF-8. Any server can send both.
"""

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any] | None

_SHARED_TEXTS, _SHARED_LENGTH = 1 << 17, 256  # the names of 50,000 pods come in one order: fewer would never meet again
_REMEMBERED, _REMEMBERED_LENGTH = 4096, 4096  # the specs of HPAs and policies: most have less than 2 KB
_first = functools.lru_cache(_SHARED_TEXTS)(str)


def shared(text: str) -> str:
    """The first of equal texts, where it is short and was seen lately.

    Not sys.intern: Python 3.12 never frees what it interned, and a tenant may write ever new labels.
    """
    return _first(text) if len(text) <= _SHARED_LENGTH else text


def remembered(read: Callable[..., T]) -> Callable[..., T]:
    """The function of bytes, which reads short ones once; long ones each time, for a tenant may write ever new ones."""
    short = functools.lru_cache(_REMEMBERED)(read)
    return lambda *parts: (short if sum(map(len, parts)) <= _REMEMBERED_LENGTH else read)(*parts)


class Decoder(Generic[T]):
    """As msgspec.json.Decoder."""

    __slots__ = ("_decode",)

    @overload
    def __init__(self, kind: type[T], hook: Hook = None) -> None: ...
    @overload
    def __init__(self: "Decoder[Any]", kind: Any, hook: Hook = None) -> None: ...
    def __init__(self, kind: Any, hook: Hook = None) -> None:
        self._decode = msgspec.json.Decoder(kind, dec_hook=hook).decode

    def decode(self, body: bytes | bytearray | msgspec.Raw) -> T:
        """The value that the bytes hold. Raises msgspec.MsgspecError."""
        try:
            return self._decode(body)  # type: ignore[no-any-return]
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deep") from None
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"JSON is not UTF-8: {error}") from error
