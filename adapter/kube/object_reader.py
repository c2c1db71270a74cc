"""Reads pages of a list and lines of a watch: the objects in them, each with its metadata."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.kube.errors import MalformedAnswer
from adapter.kube.objects import ListMeta, ObjectDecoder, WatchedMeta
from adapter.runtime.decoding import Decoder, TooDeepError

K = TypeVar("K")
T = TypeVar("T")
_ONE_PASS_BYTES = 1_500_000
"""The most that is read in one pass, which is one step; a page with large objects takes its objects one by one."""
_BOOKMARK, _ERROR = "BOOKMARK", "ERROR"
_TYPED_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED", _BOOKMARK})


class _Narrow(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class _Page(_Narrow, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Head(_Narrow, frozen=True):
    metadata: WatchedMeta = WatchedMeta()


class _Event(_Narrow, frozen=True):
    type: str
    object: msgspec.Raw


_PAGE = Decoder(_Page)
_HEAD = Decoder(_Head)
_EVENT = Decoder(_Event)
_TYPED_METADATA: Callable[[Any], WatchedMeta] = attrgetter("metadata")


class TooDeep(MalformedAnswer):
    """A part of the answer is nested too deeply to decode."""


class Page(NamedTuple, Generic[T]):
    """A page of a list: its objects, not yet decoded, and the functions that return an object's metadata and item."""

    metadata: ListMeta
    objects: Sequence[Any]
    meta_of: Callable[[Any], WatchedMeta]
    decode: Callable[[Any], T]


class Event(NamedTuple, Generic[T]):
    """A line of a watch: its object, not yet decoded, and the function that returns its item."""

    type: str
    meta: WatchedMeta
    object: Any
    decode: Callable[[Any], T]

    @property
    def is_error(self) -> bool:
        """Whether the object is a Status instead of a watched object."""
        return self.type == _ERROR

    @property
    def is_bookmark(self) -> bool:
        """Whether the event only names a version."""
        return self.type == _BOOKMARK


class ObjectReader(Generic[T]):
    """Reads the answers of one collection; `path` names it in errors.

    With an ObjectDecoder the bytes are read once. An answer that this refuses, such as one with an object of another
    form, is cut into its objects first: then each is decoded, or refused, alone.
    """

    def __init__(self, decode: Callable[[msgspec.Raw], T], path: str) -> None:
        self._decode = decode
        self._path = path
        self._typed = decode if isinstance(decode, ObjectDecoder) else None
        if self._typed is not None:
            # Any: both types depend on the decoder's kind, which the type checker does not know.
            kind: Any = self._typed.kind
            items = ("items", list[kind] | None, None)
            self._typed_page = Decoder[Any](msgspec.defstruct("TypedPage", [("metadata", ListMeta), items]))
            self._typed_event = Decoder[Any](msgspec.defstruct("TypedEvent", [("type", str), ("object", kind)]))

    def page(self, body: bytes) -> Page[T]:
        """The page in these bytes. Raises MalformedAnswer."""
        if self._typed is not None and len(body) <= _ONE_PASS_BYTES:
            try:
                typed = self._typed_page.decode(body)
            except msgspec.MsgspecError:
                pass
            else:
                return Page(typed.metadata, typed.items or (), _TYPED_METADATA, self._typed.build)
        page = self._read(_PAGE, body)
        return Page(page.metadata, page.items or (), self._metadata, self._decode)

    def event(self, line: bytes) -> Event[T]:
        """The event in this line. Raises MalformedAnswer."""
        if self._typed is not None:
            try:
                typed = self._typed_event.decode(line)
            except msgspec.MsgspecError:
                pass
            else:
                if typed.type in _TYPED_EVENTS:
                    return Event(typed.type, typed.object.metadata, typed.object, self._typed.build)
        event = self._read(_EVENT, line)
        meta = WatchedMeta() if event.type == _ERROR else self._metadata(event.object)
        return Event(event.type, meta, event.object, self._decode)

    def _metadata(self, raw: msgspec.Raw) -> WatchedMeta:
        return self._read(_HEAD, raw).metadata

    def _read(self, decoder: Decoder[K], body: bytes | msgspec.Raw) -> K:
        try:
            return decoder.decode(body)
        except TooDeepError as error:
            raise TooDeep(f"{self._path}: {error}") from error
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"{self._path}: {error}") from error
