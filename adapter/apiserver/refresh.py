"""Repeats what keeps this server current: the front proxy's configuration, the certificate, an upstream's fault."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from adapter.apiserver.status import ServingError
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import SourceError

_log = structlog.get_logger(__name__)


class Refresher:
    """Calls `action` every `seconds`; sooner, with back-off, while it fails; at once after `wake`.

    A failure is passed to `failed`, logged as `event` when it is a new one, and kept as `error` until a call succeeds.
    """

    def __init__(
        self, action: Callable[[], Awaitable[None]], seconds: float, event: str, failed: Callable[[], object]
    ) -> None:
        self.error: str | None = None
        self._action, self._seconds, self._event, self._failed = action, seconds, event, failed
        self._woken = asyncio.Event()
        self.wake = self._woken.set

    async def run(self) -> None:
        """Repeat until cancelled."""
        backoff = Backoff()
        while True:
            self._woken.clear()
            seconds = self._seconds
            try:
                await self._action()
            except (SourceError, ServingError, msgspec.MsgspecError, OSError, ValueError) as error:
                self._failed()
                if str(error) != self.error:
                    _log.warning(self._event, error=str(error))
                self.error = str(error)
                seconds = min(seconds, backoff.next())
            else:
                self.error = None
                backoff.reset()
            await wait_for_event(self._woken, seconds)
