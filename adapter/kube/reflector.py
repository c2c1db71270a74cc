"""Keeps a collection of the API server in memory: lists it in pages, then watches it, for ever.

No step holds the event loop for long: pages are decoded object by object, and work gives way every few milliseconds.
Time without proof of life is bounded: a watch is asked to end within a minute, and a reconnect is proof.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
import structlog

from adapter.kube.errors import (
    ApiStatusError,
    CredentialsError,
    Forbidden,
    Gone,
    KubeError,
    MalformedAnswer,
    NotFound,
    ServerError,
    TimedOut,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_from_answer,
)
from adapter.kube.objects import ListMeta
from adapter.kube.session import LARGEST_ANSWER, Session
from adapter.runtime.backoff import Backoff
from adapter.runtime.decoding import Decoder, TooDeepError, truncate_nesting
from adapter.runtime.log_once import LogOnce
from adapter.runtime.slices import Slices, freeze_live_objects
from adapter.telemetry.metrics import Metrics

T = TypeVar("T")

WATCH_SECONDS = (50, 60)
"""A watch is asked to end after a random number of seconds in this range: with a reconnect well below 90 s."""
SILENCE_SECONDS = 10.0
"""So much later than it should have ended a silent watch is given up."""
CONFIRMED_SECONDS = 90.0
"""A copy without proof that it is current for so long is not believed, and listed anew before it is again."""

LARGEST_PAGE = 4_000_000
"""Bytes of a page of several objects: what is scanned in one step."""

_LIST_SECONDS = 60.0
_FIRST_PAGE = 100
_PAGE_BYTES = 1_000_000  # put together, and scanned, in about 2 ms each
_AT_ONCE_SECONDS = 1.0
_MANY = 1000
_REFUSALS = 3
_SHORTER = 4

_log = structlog.get_logger(__name__)


class _Narrow(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class _Page(_Narrow, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Meta(_Narrow, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Head(_Narrow, frozen=True):
    metadata: _Meta = _Meta()


class _Event(_Narrow, frozen=True):
    type: str
    object: msgspec.Raw


_PAGE = Decoder(_Page)
_HEAD = Decoder(_Head)
_EVENT = Decoder(_Event)


class _TooDeep(MalformedAnswer):
    """An answer of which something is nested deeper than it can be decoded."""


def _nothing(_old: object, _new: object) -> None:
    pass


class Reflector(Generic[T]):
    """A live copy of one collection.

    `decode` turns an object's JSON into what is kept; it copies what it keeps of a Raw, and raises
    msgspec.MsgspecError for what it cannot read (the object then stays as it was last known). `on_event(old, new)` is
    called for each object that is new (old None), different, or gone (new None); two that compare equal are not
    different. `name` is the resource in metrics and logs, `namespace` the one that `path` names (empty: all of them);
    `params` are selectors for list and watch.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        decode: Callable[[msgspec.Raw], T],
        *,
        name: str,
        namespace: str = "",
        params: Mapping[str, str] | None = None,
        on_event: Callable[[T | None, T | None], None] = _nothing,
        page: int = 500,
        metrics: Metrics | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.synced = asyncio.Event()
        """Set once the first list is complete."""
        self.answered = asyncio.Event()
        """Set once the first list is complete, or the API server refused it: 403, or 404."""
        self.confirmed_at: float | None = None
        """The API server's time of the last proof that the copy is current: list, watch connected, event, bookmark."""
        self.trouble: KubeError | None = None
        """What went wrong last, None once there was proof again."""
        self._session = session
        self._path = path
        self._decode = decode
        self._params = dict(params or {})
        self._on_event = on_event
        self._page = page
        self._limit = min(_FIRST_PAGE, page)
        self._metrics = metrics or Metrics()
        self._sleep = sleep
        self._backoff = Backoff()
        self._items: dict[str, T] = {}
        self._versions: dict[str, str] = {}
        self._place: str | None = None
        self._refusals = 0
        self._log_once = LogOnce()

    @property
    def items(self) -> Mapping[str, T]:
        """The objects by `namespace/name` (`/name` for cluster-scoped ones): a live view, copy it before awaiting."""
        return MappingProxyType(self._items)

    @property
    def silent(self) -> bool:
        """Whether the copy is not to be believed: it was never complete, or nothing proved it for 90 s."""
        return self.confirmed_at is None or self._session.now() - self.confirmed_at > CONFIRMED_SECONDS

    async def run(self, *, until: tuple[type[KubeError], ...] = ()) -> None:
        """List and watch until cancelled. What goes wrong is logged, counted and tried again.

        Raises an error of the kinds in `until` instead.
        """
        while True:
            try:
                # A watch that goes on after a long silence does not tell when it has caught up. A list does.
                if self._place is None or self.silent:
                    await self._list()
                await self._watch(self._place or "")
            except until:
                raise
            except KubeError as error:
                await self._recover(error)

    # --- list ---

    async def _list(self) -> None:
        """Replace the copy; the old one is served until the new list is complete."""
        began = self._session.clock.monotonic()
        found: dict[str, T] = {}
        versions: dict[str, str] = {}
        slices = Slices()
        page = await self._fetch("", slices)
        as_of = self._session.now()
        while token := page.metadata.token:
            # The API server takes as long to write a page as we to read one, so it writes the next one meanwhile.
            ahead = asyncio.ensure_future(self._fetch(token, slices))
            try:
                await self._collect(page, found, versions, slices)
                page = await ahead
            finally:
                ahead.cancel()
        await self._collect(page, found, versions, slices)
        await self._replace(found, versions, slices)
        self._place = self._version_of(page.metadata)
        self._confirm(as_of)
        self.synced.set()
        self.answered.set()
        seconds = round(self._session.clock.monotonic() - began, 3)
        _log.info("listed", resource=self.name, objects=len(found), seconds=seconds)
        if len(found) >= _MANY:
            freeze_live_objects()

    async def _fetch(self, token: str, slices: Slices) -> _Page:
        """One page, its objects not yet decoded. Its length follows from how large the objects were so far."""
        body = await self._read_page(token)
        await slices.breathe()  # joining the body was one step, finding the objects in it is the next
        try:
            page = _read(_PAGE, body, self._path)
        except _TooDeep:
            page = _read(_PAGE, await asyncio.to_thread(truncate_nesting, body), self._path)
        await slices.breathe()
        if page.items:
            self._limit = max(1, min(self._page, _PAGE_BYTES * len(page.items) // len(body)))
        return page

    async def _read_page(self, token: str) -> bytes:
        """A page's bytes. One that is too large is asked for again with fewer objects: anybody may write large ones."""
        while True:
            params = {**self._params, "limit": str(self._limit), **({"continue": token} if token else {})}
            largest = LARGEST_PAGE if self._limit > 1 else LARGEST_ANSWER
            try:
                return await self._session.get(self._path, params=params, timeout=_LIST_SECONDS, largest=largest)
            except TooLarge:
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // _SHORTER)

    async def _collect(self, page: _Page, found: dict[str, T], versions: dict[str, str], slices: Slices) -> None:
        for raw in page.items or ():
            meta = _read(_HEAD, raw, self._path).metadata
            known = self._known(meta, raw)
            if known is not None:
                versions[meta.key], found[meta.key] = known
            await slices.breathe()

    def _known(self, meta: _Meta, raw: msgspec.Raw) -> tuple[str, T] | None:
        """The object after its version; one that has not changed is not decoded again."""
        key, version = meta.key, self._versions.get(meta.key)
        if version is not None and version == meta.resource_version:
            return version, self._items[key]
        try:
            return meta.resource_version, self._decode(raw)
        except msgspec.MsgspecError as error:
            self._unreadable(key, error)
            return None if version is None else (version, self._items[key])

    async def _replace(self, found: Mapping[str, T], versions: Mapping[str, str], slices: Slices) -> None:
        for key in [key for key in self._items if key not in found]:
            self._drop(key)
            await slices.breathe()
        for key, item in found.items():
            self._put(key, versions[key], item)
            await slices.breathe()

    # --- watch ---

    async def _watch(self, place: str) -> None:
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311  spreads load, guards nothing
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": place,
            "timeoutSeconds": str(seconds),
        }
        began = self._session.clock.monotonic()
        slices = Slices()
        async with self._session.stream(self._path, params, idle=seconds + SILENCE_SECONDS) as lines:
            self._confirm(self._session.now())
            async for line in lines:
                try:
                    self._take(line)
                except _TooDeep:  # one object shall not blind the watch for all others
                    self._take(await asyncio.to_thread(truncate_nesting, line))
                await slices.breathe()
        if self._place == place and self._session.clock.monotonic() - began < _AT_ONCE_SECONDS:
            raise Unreachable(f"watch of {self._path}: ended at once and without a word")
        self._well()

    def _take(self, line: bytes) -> None:
        """One line of the watch."""
        event = _read(_EVENT, line, self._path)
        if event.type == "ERROR":
            raise error_from_answer(500, event.object, request=f"watch of {self._path}")
        meta = _read(_HEAD, event.object, self._path).metadata
        place = self._version_of(meta)
        if event.type == "DELETED":
            self._drop(meta.key)
        elif event.type != "BOOKMARK":
            known = self._known(meta, event.object)
            if known is not None:
                self._put(meta.key, *known)
        self._place = place
        self._confirm(self._session.now())
        self._well()

    def _version_of(self, meta: ListMeta | _Meta) -> str:
        """Where a watch may go on; from nowhere it would silently skip what was deleted meanwhile."""
        if not meta.resource_version:
            raise MalformedAnswer(f"{self._path}: an answer without resourceVersion")
        return meta.resource_version

    # --- the copy ---

    def _put(self, key: str, version: str, item: T) -> None:
        old = self._items.get(key)
        self._versions[key] = version
        if old is not None and old == item:
            return
        self._items[key] = item
        self._on_event(old, item)

    def _drop(self, key: str) -> None:
        old = self._items.pop(key, None)
        self._versions.pop(key, None)
        if old is not None:
            self._on_event(old, None)

    def _confirm(self, moment: float) -> None:
        self.confirmed_at = moment
        self.trouble = None
        self._metrics.watch_proof.labels(self.name).set(moment)
        self._metrics.watch_objects.labels(self.name).set(len(self._items))

    def _unreadable(self, key: str, error: Exception) -> None:
        self._metrics.errors.labels("unreadable_object").inc()
        _log.warning(
            "an object cannot be read, its last known form stays", resource=self.name, key=key, error=str(error)
        )

    # --- trouble ---

    def _well(self) -> None:
        self._backoff.reset()
        self._refusals = 0
        if self._log_once.clear():
            _log.info("watch works again", resource=self.name)

    async def _recover(self, error: KubeError) -> None:
        self._metrics.watch_restarts.labels(self.name, _reason(error)).inc()
        self._complain(error)
        if not isinstance(error, Gone):
            self.trouble = error
        if isinstance(error, Forbidden | NotFound):
            self.answered.set()
        if not self._place_holds(error):
            self._place = None
        asked = error.retry_after if isinstance(error, ApiStatusError) else None
        first = self._backoff.failures == 0
        delay = self._backoff.next(asked)
        if not (first and isinstance(error, Gone)):  # that is no fault of the server's: list at once
            await self._sleep(delay)

    def _place_holds(self, error: KubeError) -> bool:
        """Whether the watch may go on from where it was; a place that the server keeps refusing is given up."""
        if isinstance(error, ServerError):
            self._refusals += 1
            return self._refusals < _REFUSALS
        return isinstance(error, Unreachable | CredentialsError | Unauthorized | Forbidden | TooManyRequests)

    def _complain(self, error: KubeError) -> None:
        """Warn once of one kind of trouble, not at each attempt."""
        if isinstance(error, Gone):
            _log.info("watch expired, listing anew", resource=self.name)
        elif self._log_once.is_new(type(error).__name__):
            _log.warning("watch failed, trying again", resource=self.name, error=str(error))


_REASONS: tuple[tuple[type[KubeError], str], ...] = (
    (Gone, "expired"),
    (TimedOut, "silent"),
    (Unreachable, "unreachable"),
    (CredentialsError, "credentials"),
    (MalformedAnswer, "malformed"),
)


def _reason(error: KubeError) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "refused")


def _read(decoder: Decoder[T], body: bytes | msgspec.Raw, path: str) -> T:
    try:
        return decoder.decode(body)
    except TooDeepError as error:
        raise _TooDeep(f"{path}: {error}") from error
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{path}: {error}") from error
