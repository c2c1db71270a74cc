"""Keeps a collection of the API server in memory: lists it in pages, then watches it until cancelled.

A silent watch cannot hide a lost connection: it is asked to end within a minute, and each reconnect confirms the copy.
No step holds the event loop for long: objects are decoded one by one, and work yields every few milliseconds.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
import structlog

from adapter.kube import errors
from adapter.kube.errors import KubeError, decode_answer
from adapter.kube.objects import ListMeta, ObjectList, WatchedMeta, WatchedObject, WatchEvent
from adapter.kube.session import LARGEST_ANSWER, Session
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import Slices, one_ahead
from adapter.runtime.decoding import Decoder
from adapter.telemetry.metrics import Metrics

T = TypeVar("T")

SILENCE_SECONDS = 90.0
"""A copy that was not confirmed for so long is not used, and is listed again before it is."""
PAGE = 250
"""Objects of a page. It is decoded in one step: 250 pods of 6 KB take 3 ms."""
LARGEST_PAGE = 4_000_000
"""Bytes of a page of several objects; a page that is larger is requested again with half of its objects."""

_LIST_SECONDS, _AT_ONCE_SECONDS = 60.0, 1.0
_REFUSALS = 3
"""After so many errors of the server it is listed: a restored etcd answers 504 for ever to a later version."""

_log = structlog.get_logger(__name__)

_PAGE, _HEAD, _EVENT = Decoder(ObjectList), Decoder(WatchedObject), Decoder(WatchEvent)


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
        page: int = PAGE,
        silence: float | None = None,
        metrics: Metrics | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name, self.namespace = name, namespace
        self.synced = asyncio.Event()
        """Set once the first list is complete."""
        self.answered = asyncio.Event()
        """Set once the first list is complete, or refused with 403 or 404."""
        self.confirmed_at: float | None = None
        """The time (epoch seconds) at which a list, a watch's connect, an event or a bookmark last proved the copy."""
        self.proven_at: float | None = None
        """The same moment by the session's monotonic clock: the machine's clock may be set, and ages may not."""
        self.trouble: KubeError | None = None
        """The last error; None once the copy is confirmed again."""
        self.backoff = Backoff()
        self._session, self._path, self._decode, self._on_event = session, path, decode, on_event
        self._limit, self._silence = page, SILENCE_SECONDS if silence is None else silence
        self._metrics, self._sleep = metrics or Metrics(), sleep
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
        return self.proven_at is None or self._session.monotonic() - self.proven_at > self._silence

    async def run(self, *, until: tuple[type[KubeError], ...] = ()) -> None:
        """Lists and watches until cancelled. Errors are logged, counted and retried; those of `until` are raised."""
        while True:
            # A watch resumed after a long silence does not say when it has caught up; a list does.
            must_list, proof = self._resume_from is None or self.silent, (self.confirmed_at, self.proven_at)
            try:
                if must_list:
                    await self._list()
                await self._watch(self._resume_from or "")
            except until:
                raise
            except KubeError as error:
                delay = self._failed(error)
                if must_list or not isinstance(error, errors.Gone):
                    await self._sleep(delay)
                else:  # the connect of that watch proved nothing but that the server is well
                    self.confirmed_at, self.proven_at = proof

    # --- list ---

    async def _list(self) -> None:
        """Replaces the copy; the old one is served until the new list is complete."""
        as_of = self._session.now(), self._session.monotonic()
        new: dict[str, tuple[str, T]] = {}
        head, slices = ListMeta(), Slices()
        async with contextlib.aclosing(one_ahead(self._fetch)) as pages:  # one is made while another is decoded
            async for page in pages:
                head = page.metadata
                for raw in page.items or ():
                    meta = decode_answer(_HEAD.decode, raw, self._path).metadata
                    version_and_item = self._item(meta, raw)
                    if version_and_item is not None:
                        new[meta.key] = version_and_item
                    await slices.breathe()
        version = self._version_of(head)  # before the copy: an answer without one may be no list at all
        for key in [key for key in self._items if key not in new]:
            self._drop(key)
            await slices.breathe()
        for key, version_and_item in new.items():
            self._put(key, *version_and_item)
            await slices.breathe()
        self._resume_from = version
        self._confirm(as_of)
        self.synced.set()
        self.answered.set()
        took = self._session.monotonic() - as_of[1]
        _log.info("resource_listed", resource=self.name, objects=len(new), seconds=round(took, 3))

    async def _fetch(self, before: ObjectList | None) -> ObjectList | None:
        """The page after this one (None: the first), its objects not yet decoded; None after the last."""
        token = "" if before is None else before.metadata.token
        if before is not None and not token:
            return None
        while True:
            params = {"limit": str(self._limit), **({"continue": token} if token else {})}
            largest = LARGEST_PAGE if self._limit > 1 else LARGEST_ANSWER
            try:
                body = await self._session.get(
                    self._path, params=params, timeout=_LIST_SECONDS, largest=largest, compressed=True
                )
            except errors.TooLarge:  # tenants may write large objects
                if self._limit == 1:
                    raise
                self._limit //= 2
            else:
                return decode_answer(_PAGE.decode, body, self._path)

    def _item(self, meta: WatchedMeta, raw: msgspec.Raw) -> tuple[str, T] | None:
        """The object's version and item. An unchanged object keeps its item, an unreadable one its last known one."""
        before = self._versions.get(meta.key)
        if before is not None and before == meta.resource_version:
            return before, self._items[meta.key]
        try:
            return meta.resource_version, self._decode(raw)
        except msgspec.MsgspecError as error:
            self._metrics.errors.labels("unreadable_object").inc()
            _log.warning("object_unreadable", resource=self.name, key=meta.key, error=str(error))
            return None if before is None else (before, self._items[meta.key])

    # --- watch ---

    async def _watch(self, place: str) -> None:
        seconds = random.uniform(5, 6) / 9 * self._silence  # noqa: S311  spreads load, guards nothing
        params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": place}
        params["timeoutSeconds"] = str(max(1, round(seconds)))
        began, slices = self._session.monotonic(), Slices()
        # A silent watch is closed somewhat after it should have ended.
        async with self._session.stream(self._path, params, idle=seconds + self._silence / 9) as lines:
            self._confirm()
            async for line in lines:
                self._apply(line)
                await slices.breathe()
        if self._resume_from == place and self._session.monotonic() - began < _AT_ONCE_SECONDS:
            raise errors.Unreachable(f"watch of {self._path}: ended at once without an event")
        self._recovered()

    def _apply(self, line: bytes) -> None:
        event = decode_answer(_EVENT.decode, line, self._path)
        if event.type == "ERROR":
            raise errors.error_from_answer(500, event.object, request=f"watch of {self._path}")
        meta = decode_answer(_HEAD.decode, event.object, self._path).metadata
        place = self._version_of(meta)
        if event.type == "DELETED":
            self._drop(meta.key)
        elif event.type != "BOOKMARK":
            version_and_item = self._item(meta, event.object)
            if version_and_item is not None:
                self._put(meta.key, *version_and_item)
        self._resume_from = place
        self._confirm()
        self._recovered()

    def _version_of(self, meta: ListMeta | WatchedMeta) -> str:
        """The version from which a watch resumes; without one it would miss objects deleted in between."""
        if not meta.resource_version:
            raise errors.MalformedAnswer(f"{self._path}: an answer without resourceVersion")
        return meta.resource_version

    # --- the copy ---

    def _put(self, key: str, version: str, item: T) -> None:
        old, self._versions[key] = self._items.get(key), version
        if old != item:
            self._items[key] = item
            self._on_event(old, item)

    def _drop(self, key: str) -> None:
        old = self._items.pop(key, None)
        self._versions.pop(key, None)
        if old is not None:
            self._on_event(old, None)

    def _confirm(self, moment: tuple[float, float] | None = None) -> None:
        self.confirmed_at, self.proven_at = moment or (self._session.now(), self._session.monotonic())
        self.trouble = None
        self._metrics.watch_proof.labels(self.name).set(self.confirmed_at)
        self._metrics.watch_objects.labels(self.name).set(len(self._items))

    # --- trouble ---

    def _recovered(self) -> None:
        self.backoff.reset()
        self._refusals = 0
        if self._log_once.clear():
            _log.info("watch_recovered", resource=self.name)

    def _failed(self, error: KubeError) -> float:  # seconds until the next attempt
        is_gone, is_answer = isinstance(error, errors.Gone), isinstance(error, errors.ApiStatusError)
        reason = "expired" if is_gone else "refused" if is_answer else error.reason
        self._metrics.watch_restarts.labels(self.name, reason).inc()
        if is_gone:
            _log.info("watch_expired", resource=self.name)
        else:
            self.trouble = error
            if self._log_once.is_new(type(error).__name__):  # not at each attempt
                _log.warning("watch_failed", resource=self.name, error=str(error))
        if isinstance(error, errors.Forbidden | errors.NotFound):
            self.answered.set()
        self._refusals += isinstance(error, errors.ServerError)
        resumable = isinstance(error, errors.Unreachable | errors.CredentialsError | errors.ApiStatusError)
        if not resumable or isinstance(error, errors.Gone | errors.NotFound) or self._refusals >= _REFUSALS:
            self._resume_from = None  # else the watch resumes from its version
        return self.backoff.next(error.retry_after if isinstance(error, errors.ApiStatusError) else None)
