"""While a server fails: one question at a time probes whether it answers again; the others rest until it does."""

import asyncio
import math
import random
from typing import NamedTuple

SPREAD_SECONDS = 1.0
"""Over so long those who rested are spread once the server answers again."""
MIN_RETRY_SECONDS = 1.0


class _Rest(NamedTuple):
    interval: float
    turn: asyncio.Future[None]


class CircuitBreaker:
    """Whose turn it is among the failing questions of one server.

    A probe begins in each of the shortest intervals (seconds) of those who rest, each of them in turn: so an answer to
    any is had within its interval, whatever their number, and one that always fails keeps no other from being asked.
    """

    def __init__(self) -> None:
        self.answers = 0
        """How often the server has answered anything at all."""
        self._resting: list[_Rest] = []
        self._probed_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def answered(self) -> None:
        """The server answered: whoever rests may ask."""
        self.answers += 1
        resting, self._resting = self._resting, []
        for rest in resting:
            _wake(rest)

    async def turn(self, answers: int, interval: float) -> None:
        """Return when a question that failed may be asked again: at once where the server has answered since.

        `answers` is their number as it was when the question failed.
        """
        if self.answers != answers:
            return
        rest = _Rest(interval, asyncio.get_running_loop().create_future())
        self._resting.append(rest)
        self._arm()
        try:
            await rest.turn
        finally:
            if rest in self._resting:
                self._resting.remove(rest)
        if self.answers != answers:
            await asyncio.sleep(random.uniform(0, min(interval, SPREAD_SECONDS)))  # noqa: S311  guards nothing

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self._probed_at + min(rest.interval for rest in self._resting)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(at, loop.time()), self._probe)

    def _probe(self) -> None:
        self._timer = None
        if not self._resting:
            return
        self._probed_at = asyncio.get_running_loop().time()
        _wake(self._resting.pop(0))
        if self._resting:
            self._arm()


def retry_delay(interval: float, elapsed: float) -> float:
    """Seconds from a failure that took `elapsed` to the next attempt: one interval from beginning to beginning."""
    return max(interval - elapsed, min(interval, MIN_RETRY_SECONDS))


def _wake(rest: _Rest) -> None:
    if not rest.turn.done():
        rest.turn.set_result(None)
