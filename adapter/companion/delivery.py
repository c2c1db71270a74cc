"""Sends to addresses of the Apprise library, which blocks: in threads that are waited for only so long."""

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from adapter.companion.messages import Message
from adapter.settings_notifications import Severity

Send = Callable[[str, str, str, Severity], bool]
"""Sends (address, title, body, severity); whether it was taken. Blocks."""


class AddressError(Exception):
    """A route has no address just now."""


class NoLibraryError(Exception):
    """The library is not installed."""


class Delivery:
    """The addresses of one route. An address that still hangs is not tried a second time beside it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._hanging: set[str] = set()

    async def tried(self, urls: Sequence[str], message: Message, seconds: float) -> tuple[str, ...]:
        """The addresses that did not take it within so many seconds. Raises NoLibraryError."""
        taken = await asyncio.gather(*(self._one(url, message, seconds) for url in urls))
        return tuple(url for url, was in zip(urls, taken, strict=True) if not was)

    async def _one(self, url: str, message: Message, seconds: float) -> bool:
        if url in self._hanging:
            return False
        sending = self._in_thread(url, message)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(sending)
        except TimeoutError:
            return False

    def _in_thread(self, url: str, message: Message) -> asyncio.Future[bool]:
        """The answer to come. The thread is one that the process does not wait for when it ends."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._hanging.add(url)

        def done(answer: bool | BaseException) -> None:
            self._hanging.discard(url)
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
    # What it logs may show parts of addresses.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
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
