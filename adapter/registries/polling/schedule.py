"""The order in which services are polled, each once in an interval, and the pauses between.

Namespaces take turns: a namespace with many services, or slow ones, does not delay the first services of the others. A
service whose answer does not come in time is late, and polled apart from the others, which wait for it no longer.
"""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

from adapter.registries.polling.pool import Answers, Pool, Read, Unanswered
from adapter.registries.roster import ServiceKey
from adapter.runtime.backoff import Backoff
from adapter.runtime.http1 import Request
from adapter.runtime.source_errors import SourceError

T = TypeVar("T")

STEPS = 4
"""Parts of an interval that the questions are spread over. Few: questions are cheaper together."""
TOGETHER = 50
"""New services that are asked about at a time."""
LATE_TOGETHER = 8
"""Late services that are: as many as there are connections, because each may take the whole timeout."""
PATIENCE_SECONDS = 0.5
"""The shortest wait before an answer is late."""
LONGEST_PAUSE = 5.0
"""Seconds between questions to a server that cannot be reached."""

Poll = Callable[[Sequence[ServiceKey], bool], Awaitable[bool]]
"""Asks about services, late ones or others, and writes the answers; False where no server can be asked."""


class PollSchedule:
    """The services of one registry in turn, new ones first. `interval` in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._namespaces: Mapping[ServiceKey, str] = {}
        self._all: deque[ServiceKey] = deque()
        self._new: list[ServiceKey] = []
        self._late: dict[ServiceKey, float] = {}
        """When each is due again (the loop's time)."""
        self._shared_at = -math.inf
        """When known services had their last turn (the loop's time); they keep it while new ones come."""
        self._news = asyncio.Event()
        self._late_news = asyncio.Event()
        self._answered_at = -math.inf
        """When an answer came in time last (the loop's time)."""

    async def run(self, poll: Poll) -> None:
        """Poll services as their turns come, late ones apart from the others, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll_in_turn(poll))
            tasks.create_task(self._poll_late(poll))

    async def _poll_in_turn(self, poll: Poll) -> None:
        backoff = Backoff()
        while True:
            began = asyncio.get_running_loop().time()
            keys = self.pop()
            if not keys or await poll(keys, False):
                backoff.reset()
                await self.rest(began)
            else:
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))

    async def _poll_late(self, poll: Poll) -> None:
        backoff = Backoff()
        while True:
            if await poll(await self.pop_late(), True):
                backoff.reset()
            else:
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))

    @property
    def patience(self) -> float:
        """Seconds until an answer is late: the next turn comes by then."""
        return max(self._interval / STEPS, PATIENCE_SECONDS)

    def follow(self, services: Mapping[ServiceKey, str]) -> None:
        """Poll exactly these services from now on, each for a Kubernetes namespace."""
        known = {*self._all, *self._new, *self._late}
        self._all = deque(key for key in self._all if key in services)
        self._late = {key: at for key, at in self._late.items() if key in services}
        self._new = [*(key for key in self._new if key in services), *sorted(services.keys() - known)]
        self._namespaces = services
        self._news.set()

    def pop(self) -> Sequence[ServiceKey]:
        """The services to ask about now: new ones, else a share of all, so that each comes once in an interval."""
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
        """Steps of the interval that passed since the last share, at most all."""
        return int(min((asyncio.get_running_loop().time() - self._shared_at) * STEPS / self._interval, STEPS))

    async def rest(self, began: float) -> None:
        """Wait for the next turn or for new services; `began` is the begin of the last turn (the loop's time)."""
        if self._new:
            return
        until = began + self._interval / min(len(self._all), STEPS) if self._all else None
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    # --- late services ---

    async def ask(
        self, pool: Pool, keys: Sequence[ServiceKey], requests: Sequence[Request], read: Read[T], *, late: bool
    ) -> Sequence[T | SourceError | Unanswered]:
        """The outcomes of the questions about these services, which `pop` or `pop_late` gave.

        Raises the SourceError of a server that answers no question at all.
        """
        try:
            answers = await pool.ask_for(None if late else self.patience, requests, read)
        except SourceError as error:
            if not late or self._since_answer() > self._interval + self.patience:
                raise
            answers = Answers([error] * len(keys), {})
        if late:
            for index, key in enumerate(keys):
                self._settle(key, answers.seconds.get(index))
            return answers.outcomes
        if answers.seconds:
            self._answered_at = asyncio.get_running_loop().time()
        by_key = dict(zip(keys, answers.outcomes, strict=True))
        self._put_off({key for key, outcome in by_key.items() if outcome is Unanswered.LATE})
        self._put_first([key for key, outcome in by_key.items() if outcome is Unanswered.NOT_ASKED])
        return answers.outcomes

    def _since_answer(self) -> float:
        """Seconds since an answer came in time."""
        return asyncio.get_running_loop().time() - self._answered_at

    def _put_off(self, keys: set[ServiceKey]) -> None:
        """Make these services late ones."""
        late = keys.intersection(self._all)
        if late:
            self._all = deque(key for key in self._all if key not in late)
            self._late |= dict.fromkeys(late, 0.0)
            self._late_news.set()

    def _put_first(self, keys: Sequence[ServiceKey]) -> None:
        """Ask about these first the next time, as about new ones: time ended before their turn."""
        known = set(keys).intersection(self._all)
        if known:
            self._all = deque(key for key in self._all if key not in known)
            self._new = [*(key for key in keys if key in known), *self._new]

    async def pop_late(self) -> Sequence[ServiceKey]:
        """Wait for late services that are due, at most LATE_TOGETHER of them."""
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
        """Note the seconds that a late service's answer took (None: no answer); a prompt one is late no more."""
        if key not in self._late:
            return
        if seconds is not None and seconds < self.patience / 2:
            del self._late[key]
            self._all.append(key)
            self._news.set()
        else:
            self._late[key] = asyncio.get_running_loop().time() + self._interval

    def _fair(self, keys: Sequence[ServiceKey]) -> list[ServiceKey]:
        """The first service of every namespace, then the second of each, and so on; within one in their order."""
        by_namespace: dict[str, list[ServiceKey]] = defaultdict(list)
        for key in keys:
            by_namespace[self._namespaces.get(key, "")].append(key)
        if len(by_namespace) < 2:
            return list(keys)
        return [key for key in chain.from_iterable(zip_longest(*by_namespace.values())) if key is not None]
