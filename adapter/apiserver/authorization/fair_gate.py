"""Bounds the reviews under way, so that one client's requests cannot hold up another's."""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator

from adapter.apiserver.status import too_many, unavailable


class FairGate:
    """Admits `total` at once, `per_share` of them of one share; shares that wait take turns.

    A share is whatever has one claim to be served: a user, a namespace, an address. Of one share `waiting` may wait.
    """

    def __init__(self, total: int, per_share: int, waiting: int) -> None:
        self._total = total
        self._per_share = per_share
        self._most_waiting = waiting
        self._admitted: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Who waits, first come first served within a share; the share that was served last stands last."""

    @contextlib.asynccontextmanager
    async def turn(self, share: str, seconds: float) -> AsyncIterator[None]:
        """A place among those under way, for which it waits so long at most.

        Raises StatusError: 429 at once where too many of this share wait already, 503 where no place came free in time.
        """
        await self._enter(share, seconds)
        try:
            yield
        finally:
            self._leave(share)

    async def _enter(self, share: str, seconds: float) -> None:
        if self._admitted[share] < self._per_share and self._admitted.total() < self._total:
            self._admitted[share] += 1
            return
        queue = self._queues.setdefault(share, deque())
        if len(queue) >= self._most_waiting:
            raise too_many(f"{len(queue)} requests of {share} wait for reviews already; ask again later")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            async with asyncio.timeout(seconds):
                await place
        except BaseException as error:
            self._give_up(share, place)
            if isinstance(error, TimeoutError):
                raise unavailable(f"other reviews took all of {seconds:g} s") from None
            raise

    def _give_up(self, share: str, place: asyncio.Future[None]) -> None:
        """Leave the queue, or the place that came free in the same moment."""
        if place.done() and not place.cancelled():
            self._leave(share)
            return
        queue = self._queues.get(share)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[share]

    def _leave(self, share: str) -> None:
        self._admitted[share] -= 1
        if not self._admitted[share]:
            del self._admitted[share]
        self._admit()

    def _admit(self) -> None:
        """Give the places that are free to the shares in turn."""
        while self._admitted.total() < self._total:
            share = next((one for one in self._queues if self._admitted[one] < self._per_share), None)
            if share is None:
                return
            queue = self._queues[share]
            place = queue.popleft()
            if queue:
                self._queues.move_to_end(share)
            else:
                del self._queues[share]
            if not place.done():
                self._admitted[share] += 1
                place.set_result(None)
