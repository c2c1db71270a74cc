"""Many services, each asked about once in an interval: whose turn it is, and how long to wait until the next one's.

Namespaces take turns: where one names many services, or slow ones, those of the others are asked about before its rest.
What is not answered in time is late, and asked about beside the others, which wait for it no longer.
"""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

from adapter.registries.polling.http1 import Request
from adapter.registries.polling.pool import Answers, Pool, Read, Unanswered
from adapter.registries.roster import ServiceKey
from adapter.runtime.backoff import Backoff
from adapter.runtime.source_errors import SourceError

T = TypeVar("T")

STEPS = 4
"""Into so many parts an interval is divided, that the questions are spread over. Few: together they are cheaper."""
TOGETHER = 50
"""How many new services are asked about at a time."""
LATE_TOGETHER = 8
"""How many late ones are: as many as there are connections, for each may take as long as an answer may."""
PATIENCE_SECONDS = 0.5
"""So long answers are waited for at least before they are late."""
LONGEST_PAUSE = 5.0
"""Seconds between questions to a server that cannot be reached."""

Look = Callable[[Sequence[ServiceKey], bool], Awaitable[bool]]
"""Asks about services, late ones or others, and writes down what is answered; False where nobody can be asked."""


class PollSchedule:
    """The services of one registry in turn; new ones come first. `interval` in seconds.

    `namespaces` tells the Kubernetes namespace that each service is followed for.
    """

    def __init__(
        self, interval: float, namespaces: Callable[[], Mapping[ServiceKey, str]] = dict[ServiceKey, str]
    ) -> None:
        self._interval = interval
        self._namespaces = namespaces
        self._all: deque[ServiceKey] = deque()
        self._new: list[ServiceKey] = []
        self._late: dict[ServiceKey, float] = {}
        """Until when each is not asked about again (the loop's time)."""
        self._shared_at = -math.inf
        """When services that are not new had their turn (the loop's time), which they have beside new ones, too."""
        self._news = asyncio.Event()
        self._late_news = asyncio.Event()
        self._answered_at = -math.inf
        """When a question was answered in time (the loop's time)."""

    async def follow(self, look: Look) -> None:
        """Have services looked at as their turns come, late ones beside the others, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._in_turn(look))
            tasks.create_task(self._when_late(look))

    async def _in_turn(self, look: Look) -> None:
        backoff = Backoff()
        while True:
            began = asyncio.get_running_loop().time()
            keys = self.take()
            if not keys or await look(keys, False):
                backoff.reset()
                await self.rest(began)
            else:
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))

    async def _when_late(self, look: Look) -> None:
        backoff = Backoff()
        while True:
            if await look(await self.take_late(), True):
                backoff.reset()
            else:
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))

    @property
    def patience(self) -> float:
        """Seconds until an answer is late: the next turn comes by then."""
        return max(self._interval / STEPS, PATIENCE_SECONDS)

    def change(self, added: Iterable[ServiceKey], kept: Collection[ServiceKey]) -> None:
        """From now on these are added, and of the others only those in `kept` are left."""
        self._all = deque(key for key in self._all if key in kept)
        self._late = {key: at for key, at in self._late.items() if key in kept}
        self._new = [*(key for key in self._new if key in kept), *sorted(added)]
        self._news.set()

    def take(self) -> Sequence[ServiceKey]:
        """Whose turn it is: new services, else a share of all, so that each comes once in an interval."""
        self._news.clear()
        if not self._new:
            return self._fair(self._share())
        share = self._share() if self._steps() else []
        ordered = self._fair(self._new)
        keys, self._new = ordered[:TOGETHER], ordered[TOGETHER:]
        self._all.extend(keys)
        return self._fair([*keys, *share])

    def _share(self) -> list[ServiceKey]:
        share = -(-len(self._all) * max(1, self._steps()) // STEPS)
        keys = [self._all[place] for place in range(share)]
        self._all.rotate(-share)
        self._shared_at = asyncio.get_running_loop().time()
        return keys

    def _steps(self) -> int:
        """How many steps of the interval have passed since the last share; all of them are one turn at most."""
        return int(min((asyncio.get_running_loop().time() - self._shared_at) * STEPS / self._interval, STEPS))

    async def rest(self, began: float) -> None:
        """Wait for the next turn, counted from when the last one began (the loop's time), or for new services."""
        if self._new:
            return
        until = began + self._interval / min(len(self._all), STEPS) if self._all else None
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    # --- late ones ---

    async def ask(
        self, pool: Pool, keys: Sequence[ServiceKey], requests: Sequence[Request], read: Read[T], *, late: bool
    ) -> Sequence[T | SourceError | Unanswered]:
        """What became of the questions about these services, which `take` or `take_late` gave.

        Raises the SourceError of a server that answers nothing at all, to other questions neither.
        """
        try:
            found = await pool.ask_for(None if late else self.patience, requests, read)
        except SourceError as error:
            if not late or self._since_answer() > self._interval + self.patience:
                raise
            found = Answers([error] * len(keys), {})
        if late:
            for index, key in enumerate(keys):
                self._settle(key, found.seconds.get(index))
            return found.outcomes
        if found.seconds:
            self._answered_at = asyncio.get_running_loop().time()
        by_key = dict(zip(keys, found.outcomes, strict=True))
        self._put_off({key for key, outcome in by_key.items() if outcome is Unanswered.LATE})
        self._put_first([key for key, outcome in by_key.items() if outcome is Unanswered.NOT_ASKED])
        return found.outcomes

    def _since_answer(self) -> float:
        """Seconds since a question was answered in time."""
        return asyncio.get_running_loop().time() - self._answered_at

    def _put_off(self, keys: set[ServiceKey]) -> None:
        """These were not answered in time: they are late ones from now on."""
        late = keys.intersection(self._all)
        if late:
            self._all = deque(key for key in self._all if key not in late)
            self._late |= dict.fromkeys(late, 0.0)
            self._late_news.set()

    def _put_first(self, keys: Sequence[ServiceKey]) -> None:
        """Time ended before these were asked about: they come first the next time, as new ones do."""
        known = set(keys).intersection(self._all)
        if known:
            self._all = deque(key for key in self._all if key not in known)
            self._new = [*(key for key in keys if key in known), *self._new]

    async def take_late(self) -> Sequence[ServiceKey]:
        """Some of those that are late and were not asked about for an interval, once there are any."""
        while True:
            self._late_news.clear()
            now = asyncio.get_running_loop().time()
            due = sorted((at, key) for key, at in self._late.items() if at <= now)
            if due:
                return self._fair([key for _, key in due])[:LATE_TOGETHER]
            try:
                async with asyncio.timeout_at(min(self._late.values(), default=None)):
                    await self._late_news.wait()
            except TimeoutError:
                continue

    def _settle(self, key: ServiceKey, seconds: float | None) -> None:
        """A late one was answered within so many seconds (None: not at all); a prompt answer ends its being late."""
        if key not in self._late:
            return
        if seconds is not None and seconds < self.patience / 2:
            del self._late[key]
            self._all.append(key)
            self._news.set()
        else:
            self._late[key] = asyncio.get_running_loop().time() + self._interval

    def _fair(self, keys: Sequence[ServiceKey]) -> list[ServiceKey]:
        """The first of every namespace, then the second of each, and so on; else in their order."""
        namespaces = self._namespaces()
        by_namespace: dict[str, list[ServiceKey]] = defaultdict(list)
        for key in keys:
            by_namespace[namespaces.get(key, "")].append(key)
        if len(by_namespace) < 2:
            return list(keys)
        return [key for key in chain.from_iterable(zip_longest(*by_namespace.values())) if key is not None]
