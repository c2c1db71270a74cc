"""Keeps a collection of the API server in memory: lists it in pages, then watches it until cancelled.

No step holds the event loop for long: pages are decoded object by object, and work yields every few milliseconds.
A silent watch cannot hide a lost connection: it is asked to end within a minute, and each reconnect confirms the copy.
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
from adapter.kube.objects import ListMeta, ObjectList, WatchedMeta, WatchedObject, WatchEvent
from adapter.kube.session import LARGEST_ANSWER, Session
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, TooDeepError, truncate_nesting
from adapter.runtime.garbage import freeze_live_objects
from adapter.telemetry.metrics import Metrics

K = TypeVar("K")
T = TypeVar("T")

WATCH_SECONDS = (50, 60)
"""A watch ends after a random number of seconds in this range, so that it reconnects well within 90 s."""
SILENCE_SECONDS = 10.0
"""A silent watch is closed this long after it should have ended."""
CONFIRMED_SECONDS = 90.0
"""A copy that was not confirmed for so long is not used, and is listed again before it is."""

LARGEST_PAGE = 4_000_000
"""Bytes of a page of several objects, which is scanned in one step."""

_LIST_SECONDS = 60.0
_FIRST_PAGE = 100
PAGE_BYTES = 1_000_000  # put together, and scanned, in about 2 ms each
_AT_ONCE_SECONDS = 1.0
MANY = 1000
_REFUSALS = 3
SHORTER = 4
"""A page that is too large is requested again with a fourth of its objects."""

_log = structlog.get_logger(__name__)

_PAGE = Decoder(ObjectList)
_HEAD = Decoder(WatchedObject)
_EVENT = Decoder(WatchEvent)


class TooDeep(MalformedAnswer):
    """A part of the answer is nested too deeply to decode."""


class Reflector(Generic[T]):
    """A live copy of one collection.

    `decode` turns an object's JSON into the item to keep; it copies what it needs of the Raw. Where it raises
    msgspec.MsgspecError, the object's last known item stays. `on_event(old, new)` is called for each object that is
    added (old None), changed, or deleted (new None); items that compare equal are unchanged. `name` is the resource in
    metrics and logs, `namespace` the one in `path` (empty: all of them). `silence`: seconds for which the copy is
    believed without a proof; a watch lasts two thirds of it at most.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        decode: Callable[[msgspec.Raw], T],
        *,
        name: str,
        namespace: str = "",
        on_event: Callable[[T | None, T | None], None] = lambda _old, _new: None,
        page: int = 500,
        silence: float | None = None,
        metrics: Metrics | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.synced = asyncio.Event()
        """Set once the first list is complete."""
        self.answered = asyncio.Event()
        """Set once the first list is complete, or refused with 403 or 404."""
        self.confirmed_at: float | None = None
        """The API server's time at which a list, a watch's connect, an event or a bookmark last confirmed the copy."""
        self.proven_at: float | None = None
        """The same moment by the session's monotonic clock: the API server's clock may be set, and ages may not."""
        self.trouble: KubeError | None = None
        """The last error; None once the copy is confirmed again."""
        self._session = session
        self._path = path
        self._decode = decode
        self._on_event = on_event
        self._page = page
        self._limit = min(_FIRST_PAGE, page)
        self._silence = silence
        self._metrics = metrics or Metrics()
        self._sleep = sleep
        self.backoff = Backoff()
        self._items: dict[str, T] = {}
        self._versions: dict[str, str] = {}
        self._resume_from: str | None = None
        self._refusals = 0
        self._log_once = LogOnce()

    @property
    def items(self) -> Mapping[str, T]:
        """The objects by `namespace/name` (`/name` for cluster-scoped ones): a live view, copy it before awaiting."""
        return MappingProxyType(self._items)

    @property
    def silent(self) -> bool:
        """Whether the copy is incomplete, or was not confirmed for 90 s, so that it must not be used."""
        longest = self._silence or CONFIRMED_SECONDS
        return self.proven_at is None or self._session.clock.monotonic() - self.proven_at > longest

    async def run(self, *, until: tuple[type[KubeError], ...] = ()) -> None:
        """Lists and watches until cancelled. Errors are logged, counted and retried; those of `until` are raised."""
        while True:
            try:
                # A watch resumed after a long silence does not say when it has caught up; a list does.
                if self._resume_from is None or self.silent:
                    await self._list()
                await self._watch(self._resume_from or "")
            except until:
                raise
            except KubeError as error:
                await self._retry(error)

    # --- list ---

    async def _list(self) -> None:
        """Replaces the copy; the old one is served until the new list is complete."""
        began = self._session.clock.monotonic()
        items: dict[str, T] = {}
        versions: dict[str, str] = {}
        slices = Slices()
        page = await self._fetch("", slices)
        as_of = self._session.now(), self._session.clock.monotonic()
        while token := page.metadata.token:
            # The API server needs as long to write a page as this process to read one: fetch the next one meanwhile.
            ahead = asyncio.ensure_future(self._fetch(token, slices))
            try:
                await self._collect(page, items, versions, slices)
                page = await ahead
            finally:
                ahead.cancel()
        await self._collect(page, items, versions, slices)
        version = self._version_of(page.metadata)  # before the copy: an answer without one may be no list at all
        for key in [key for key in self._items if key not in items]:
            self._drop(key)
            await slices.breathe()
        for key, item in items.items():
            self._put(key, versions[key], item)
            if slices.is_over:
                await slices.next()
        self._resume_from = version
        self._confirm(as_of)
        self.synced.set()
        self.answered.set()
        seconds = round(self._session.clock.monotonic() - began, 3)
        _log.info("resource_listed", resource=self.name, objects=len(items), seconds=seconds)
        if len(items) >= MANY:
            freeze_live_objects()

    async def _fetch(self, token: str, slices: Slices) -> ObjectList:
        """One page, its objects not yet decoded. The next page's length follows from the size of these objects."""
        body: bytes | None = None
        while body is None:
            params = {"limit": str(self._limit), **({"continue": token} if token else {})}
            largest = LARGEST_PAGE if self._limit > 1 else LARGEST_ANSWER
            try:
                body = await self._session.get(
                    self._path, params=params, timeout=_LIST_SECONDS, largest=largest, compressed=True
                )
            except TooLarge:  # tenants may write large objects: the page is requested again with fewer of them
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // SHORTER)
        await slices.breathe()  # joining the body is one step, finding the objects in it the next
        try:
            page = self._read(_PAGE, body)
        except TooDeep:
            page = self._read(_PAGE, await asyncio.to_thread(truncate_nesting, body))
        await slices.breathe()
        if page.items:
            self._limit = max(1, min(self._page, PAGE_BYTES * len(page.items) // len(body)))
        return page

    async def _collect(self, page: ObjectList, items: dict[str, T], versions: dict[str, str], slices: Slices) -> None:
        for raw in page.items or ():
            meta = self._read(_HEAD, raw).metadata
            version_and_item = self._item(meta.key, meta.resource_version, raw)
            if version_and_item is not None:
                versions[meta.key], items[meta.key] = version_and_item
            if slices.is_over:
                await slices.next()

    def _item(self, key: str, version: str, raw: msgspec.Raw) -> tuple[str, T] | None:
        """The object's version and item; an unchanged object keeps its item."""
        before = self._versions.get(key)
        if before is not None and before == version:
            return version, self._items[key]
        try:
            return version, self._decode(raw)
        except msgspec.MsgspecError as error:
            self._metrics.errors.labels("unreadable_object").inc()
            _log.warning("object_unreadable", resource=self.name, key=key, error=str(error))
            return None if before is None else (before, self._items[key])

    # --- watch ---

    async def _watch(self, place: str) -> None:
        shortest, longest = WATCH_SECONDS
        if self._silence is not None:
            shortest, longest = round(self._silence * 5 / 9), round(self._silence * 6 / 9)
        seconds = random.randint(shortest, longest)  # noqa: S311  spreads load, guards nothing
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": place,
            "timeoutSeconds": str(seconds),
        }
        began = self._session.clock.monotonic()
        slices = Slices()
        async with self._session.stream(self._path, params, idle=seconds + SILENCE_SECONDS) as lines:
            self._confirm()
            async for line in lines:
                try:
                    self._apply(line)
                except TooDeep:  # one object must not stop the watch of all others
                    self._apply(await asyncio.to_thread(truncate_nesting, line))
                await slices.breathe()
        if self._resume_from == place and self._session.clock.monotonic() - began < _AT_ONCE_SECONDS:
            raise Unreachable(f"watch of {self._path}: ended at once without an event")
        self._recovered()

    def _apply(self, line: bytes) -> None:
        event = self._read(_EVENT, line)
        if event.type == "ERROR":
            raise error_from_answer(500, event.object, request=f"watch of {self._path}")
        meta = self._read(_HEAD, event.object).metadata
        place, key = self._version_of(meta), meta.key
        if event.type == "DELETED":
            self._drop(key)
        elif event.type != "BOOKMARK":
            version_and_item = self._item(key, place, event.object)
            if version_and_item is not None:
                self._put(key, *version_and_item)
        self._resume_from = place
        self._confirm()
        self._recovered()

    def _version_of(self, meta: ListMeta | WatchedMeta) -> str:
        """The version from which a watch resumes; without one it would miss objects deleted in between."""
        if not meta.resource_version:
            raise MalformedAnswer(f"{self._path}: an answer without resourceVersion")
        return meta.resource_version

    def _read(self, decoder: Decoder[K], body: bytes | msgspec.Raw) -> K:
        try:
            return decoder.decode(body)
        except TooDeepError as error:
            raise TooDeep(f"{self._path}: {error}") from error
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"{self._path}: {error}") from error

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

    def _confirm(self, moment: tuple[float, float] | None = None) -> None:
        self.confirmed_at, self.proven_at = moment or (self._session.now(), self._session.clock.monotonic())
        self.trouble = None
        self._metrics.watch_proof.labels(self.name).set(self.confirmed_at)
        self._metrics.watch_objects.labels(self.name).set(len(self._items))

    # --- trouble ---

    def _recovered(self) -> None:
        self.backoff.reset()
        self._refusals = 0
        if self._log_once.clear():
            _log.info("watch_recovered", resource=self.name)

    async def _retry(self, error: KubeError) -> None:
        reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), "refused")
        self._metrics.watch_restarts.labels(self.name, reason).inc()
        if isinstance(error, Gone):
            _log.info("watch_expired", resource=self.name)
        else:
            self.trouble = error
            if self._log_once.is_new(type(error).__name__):  # not at each attempt
                _log.warning("watch_failed", resource=self.name, error=str(error))
        if isinstance(error, Forbidden | NotFound):
            self.answered.set()
        self._refusals += isinstance(error, ServerError)
        if not isinstance(error, _RESUMABLE) or (isinstance(error, ServerError) and self._refusals >= _REFUSALS):
            self._resume_from = None
        first = self.backoff.failures == 0
        delay = self.backoff.next(error.retry_after if isinstance(error, ApiStatusError) else None)
        if not (first and isinstance(error, Gone)):  # the server is well: list at once
            await self._sleep(delay)


_RESUMABLE = (Unreachable, CredentialsError, Unauthorized, Forbidden, TooManyRequests, ServerError)
"""After these a watch resumes from its version, unless the server has refused that three times."""
_REASONS: tuple[tuple[type[KubeError], str], ...] = (
    (Gone, "expired"),
    (TimedOut, "silent"),
    (Unreachable, "unreachable"),
    (CredentialsError, "credentials"),
    (MalformedAnswer, "malformed"),
)
