"""Sends to addresses of the Apprise library, which blocks: in threads that are waited for only so long."""

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adapter.companion.notifications.messages import Message
from adapter.settings.notifications import Severity

Send = Callable[[str, str, str, Severity], bool]
"""Sends (address, title, body, severity); whether it was taken. Blocks."""

_TALKATIVE = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""


class AddressError(Exception):
    """A route has no address just now."""


class NoLibraryError(Exception):
    """The library is not installed."""


class _Begun(NamedTuple):
    """What was last begun for an address: the message, and the answer to come."""

    message: Message
    answer: asyncio.Future[bool]

    @property
    def failed(self) -> bool:
        return self.answer.done() and (self.answer.exception() is not None or not self.answer.result())


class Delivery:
    """The addresses of one route, each with one thread at most: beside what still hangs nothing is begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun: dict[str, _Begun] = {}

    async def tried(self, urls: Sequence[str], message: Message, seconds: float) -> tuple[str, ...]:
        """The addresses that did not take it within so many seconds. Raises NoLibraryError."""
        taken = await asyncio.gather(*(self._one(url, message, seconds) for url in urls))
        return tuple(url for url, was in zip(urls, taken, strict=True) if not was)

    async def _one(self, url: str, message: Message, seconds: float) -> bool:
        answer = self._answer(url, message)
        if answer is None:
            return False
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(answer)
        except TimeoutError:
            return False

    def _answer(self, url: str, message: Message) -> asyncio.Future[bool] | None:
        """The answer to an earlier attempt that still hangs, or ended well after its time, or else to a new one.

        None where the address hangs with another message.
        """
        begun = self._begun.get(url)
        if begun is None or begun.failed or (begun.answer.done() and begun.message is not message):
            begun = self._begun[url] = _Begun(message, self._in_thread(url, message))
        return begun.answer if begun.message is message else None

    def _in_thread(self, url: str, message: Message) -> asyncio.Future[bool]:
        """The answer to come. The thread is one that the process does not wait for when it ends."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def done(answer: bool | BaseException) -> None:
            if isinstance(answer, NoLibraryError):
                future.set_exception(answer)
                future.exception()  # it counts as seen, also where nobody waits any more
            elif not future.done():
                future.set_result(answer is True)

        def work() -> None:
            answer: bool | BaseException
            try:
                answer = self._send(url, message.title, message.body, message.severity)
            except Exception as error:  # noqa: BLE001  plug-ins raise what they like, and it may show the address
                answer = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, answer)

        try:
            threading.Thread(target=work, name="notification", daemon=True).start()
        except RuntimeError:  # there can be no more of them
            done(answer=False)
        return future


def deliver(url: str, title: str, body: str, severity: Severity) -> bool:
    """Send by Apprise; whether it was taken. Blocks. Raises NoLibraryError where it is not installed."""
    try:
        apprise: Any = importlib.import_module("apprise")
    except ModuleNotFoundError as error:
        raise NoLibraryError from error
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    place = apprise.Apprise.instantiate(url, asset=_asset(apprise), suppress_exceptions=True)
    if not place:
        return False
    kind = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}[severity]
    return bool(
        place.notify(
            title=title, body=body, notify_type=apprise.NotifyType(kind), body_format=apprise.NotifyFormat.TEXT
        )
    )


def _asset(apprise: Any) -> Any:
    # Nothing on disk, no threads of its own, no attempts of its own, and no reading of markup out of what is sent.
    return apprise.AppriseAsset(
        app_id="effective-load",
        app_desc="effective-load companion",
        app_url="",
        async_mode=False,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
        interpret_escapes=False,
        default_service_retry=0,
        pem_autogen=False,
        pgp_autogen=False,
    )
