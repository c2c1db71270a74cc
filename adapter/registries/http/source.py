"""A platform of one's own as a registry: it is polled, or it pushes, which pods serve (`docs/registries-http.md`).

Only explicit statements count. A pod that the platform does not list serves; so a platform may list only the pods that
it pulled out.

Polled with ETags over a few connections, hundreds of services cost little while nothing changes. A pushed document
holds until its time to live ends; then nothing is known any more, and every pod serves.
"""

import asyncio
from http import HTTPStatus

from adapter.registries.client import refusal
from adapter.registries.http import wire
from adapter.registries.polling.source import UNCHANGED, PollingSource, Unchanged
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import Body
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.source_errors import (
    SourceError,
    SourceFailing,
    SourceUnreachable,
    UnknownService,
    WrongRegistryAnswer,
)
from adapter.settings.registries import HttpRegistry

CONFIRM_SECONDS = 5.0
"""How often pushed documents are checked for their end."""


class HttpSource(PollingSource[wire.TaggedDocument]):
    """Follows services of one platform."""

    def __init__(self, settings: HttpRegistry, cache: RosterCache) -> None:
        super().__init__(settings, [settings.url], cache)
        self._url, self._push = settings.url, settings.push
        self._holds_until: dict[ServiceKey, float] = {}
        """When each pushed document ends (epoch seconds)."""
        self._pushing = asyncio.Lock()

    def reconnected(self) -> None:
        """Casts no doubt on absence, which counts for nothing here."""

    def refresh(self) -> None:
        """Follow the services of the cache from now on; new ones are asked about at once."""
        super().refresh()
        for key in self._holds_until.keys() - self._cache.keys:
            del self._holds_until[key]

    async def run(self) -> None:
        """Follow the services until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._url:
                tasks.create_task(super().run())
            if self._push:
                tasks.create_task(self._keep_pushed())

    # --- polled ---

    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question about a service; `tag` is the ETag of the last answer."""
        return wire.request(key.service, key.namespace, key.group, tag)

    async def read(
        self, key: ServiceKey, tag: str, server: str, reply: RawReply
    ) -> wire.TaggedDocument | Unchanged | SourceError:
        """The document; every error concerns this service alone."""
        if reply.status == HTTPStatus.NOT_MODIFIED and tag:
            return UNCHANGED
        try:
            if reply.status != HTTPStatus.OK:
                raise _refused(reply)
            document = await wire.document(reply.body)
            _check_service(key, document)
        except SourceError as error:
            return error.at(server)
        return wire.TaggedDocument(document, (reply.header(b"etag") or b"").decode("latin-1"))

    def write(self, key: ServiceKey, answer: wire.TaggedDocument) -> str:
        """Write the instances; the tag is the document's ETag."""
        self._write_document(key, answer.document)
        self._holds_until.pop(key, None)
        return answer.etag

    def _write_document(self, key: ServiceKey, document: wire.RosterDocument) -> None:
        self._cache.update(
            key, document.instances, partial=not document.complete, index=document.revision, absence_counts=False
        )

    # --- pushed ---

    async def push(self, key: ServiceKey, body: bytes) -> None:
        """Accept a pushed document about a service. Raises SourceError with the reason to reject it."""
        async with self._pushing:  # a long document is read in slices; a later one must not overtake it
            document = await wire.document(Body(body))
            if document.ttl_seconds is None:
                raise WrongRegistryAnswer("the document has no ttlSeconds: say for how long it holds")
            if key not in self._cache.keys:
                raise UnknownService("no policy follows this service any more; the document is dropped")
            _check_service(key, document)
            self._write_document(key, document)
            if trouble := self._cache.trouble(key):
                raise SourceFailing(trouble.sentence, public=trouble.public)
            self._tags.drop([key])  # the next answer to a poll must be a whole one
            self._holds_until[key] = self._cache.clock() + document.ttl_seconds

    async def _keep_pushed(self) -> None:
        while True:
            self.confirm_pushed()
            await asyncio.sleep(CONFIRM_SECONDS)

    def confirm_pushed(self) -> None:
        """Confirm pushed documents that still hold, and forget those that ended."""
        now = self._cache.clock()
        for key in [key for key, until in self._holds_until.items() if until <= now]:
            del self._holds_until[key]
            self._cache.update(key, (), absence_counts=False)
            expired = "the pushed document has expired; push again before its ttlSeconds end"
            self._cache.failed(SourceUnreachable(expired, public=expired), [key])
        if self._holds_until:
            self._cache.confirm(list(self._holds_until))


def _check_service(key: ServiceKey, document: wire.RosterDocument) -> None:
    if document.service and document.service != key.service:
        raise WrongRegistryAnswer(f"the document is of service {document.service!r}, not of {key.service!r}")


def _refused(reply: RawReply) -> SourceError:
    if reply.status == HTTPStatus.NOT_FOUND:
        return UnknownService(
            "HTTP 404: the platform knows no such service; check its name, or the url",
            public="HTTP 404: the platform knows no such service; check its name",
        )
    return refusal(reply.plain)
