"""Sends to addresses of the Apprise library, which blocks: each in a thread, within a time limit."""

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adapter.companion.notifications.messages import Message
from adapter.settings.notifications import Severity

Send = Callable[[str, str, str, Severity], bool]
"""Sends (address, title, body, severity), and returns whether it was accepted. Blocks."""

_SECRET_LOGGERS = ("apprise", "urllib3", "oauthlib", "requests_oauthlib")
"""Loggers whose records may show parts of addresses; nothing else in this process uses these libraries."""


class AddressError(Exception):
    """A route has no address at this moment."""


class NoLibraryError(Exception):
    """The library is not installed."""


class _Attempt(NamedTuple):
    """The last attempt at an address: the message, and whether it was accepted, once that is known."""

    message: Message
    answer: asyncio.Future[bool]

    @property
    def failed(self) -> bool:
        return self.answer.done() and (self.answer.exception() is not None or not self.answer.result())


class Delivery:
    """The addresses of one route, each with at most one thread: a new attempt waits until the last one has ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._attempts: dict[str, _Attempt] = {}

    async def send(self, urls: Sequence[str], message: Message, seconds: float) -> tuple[str, ...]:
        """Returns the addresses that did not accept the message within this time. Raises NoLibraryError."""
        accepted = await asyncio.gather(*(self._one(url, message, seconds) for url in urls))
        return tuple(url for url, is_accepted in zip(urls, accepted, strict=True) if not is_accepted)

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
        """The answer of an earlier attempt with this message that still runs or ended well late, else of a new one.

        None if an attempt with another message still runs.
        """
        last = self._attempts.get(url)
        if last is None or last.failed or (last.answer.done() and last.message is not message):
            last = self._attempts[url] = _Attempt(message, self._in_thread(url, message))
        return last.answer if last.message is message else None

    def _in_thread(self, url: str, message: Message) -> asyncio.Future[bool]:
        """Begins an attempt in a daemon thread, which the process does not wait for at its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def done(answer: bool | BaseException) -> None:
            if isinstance(answer, NoLibraryError):
                future.set_exception(answer)
                future.exception()  # marks it as retrieved, in case nobody waits any more
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
        except RuntimeError:  # no more threads can be started
            done(answer=False)
        return future


def deliver(url: str, title: str, body: str, severity: Severity) -> bool:
    """Sends by Apprise, and returns whether it was accepted. Blocks. Raises NoLibraryError if that is not installed."""
    try:
        apprise: Any = importlib.import_module("apprise")
    except ModuleNotFoundError as error:
        raise NoLibraryError from error
    for name in _SECRET_LOGGERS:
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
