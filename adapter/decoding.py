"""JSON decoders that fail in one way: with msgspec.MsgspecError, whatever the bytes are.

msgspec's own also raise RecursionError for what is nested deeper than Python's stack allows, and UnicodeDecodeError for
a text that is not UTF-8. Whoever may write an object of Kubernetes, or an answer, can bring about both.
"""

from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """As msgspec.json.Decoder."""

    __slots__ = ("_decode",)

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "Decoder[Any]", kind: Any) -> None: ...
    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """The value that the bytes hold. Raises msgspec.MsgspecError."""
        try:
            return self._decode(body)  # type: ignore[no-any-return]
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deep") from None
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"JSON is not UTF-8: {error}") from error


def decode(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """As msgspec.json.decode. Raises msgspec.MsgspecError."""
    return Decoder(kind).decode(body)
