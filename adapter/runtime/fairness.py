"""Fair shares: queues and slots by namespace, so that no tenant delays the others."""

import asyncio
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from adapter.runtime.concurrency import wait_for_event

SPACING_SECONDS = 0.5
"""The least time between two evaluations of one policy."""
EXPEDITED_SPACING_SECONDS = 0.05
"""The same for changes that must not wait; long enough to merge a burst into one evaluation."""

T = TypeVar("T")


class Namespaced(Protocol):
    """What is waiting, hashable."""

    @property
    def namespace(self) -> str:
        """The namespace whose turn it takes."""
        ...


K = TypeVar("K", bound=Namespaced)


class Turns(Generic[K]):
    """Keys, each once. Within a namespace the one that was added first is next."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[K, None]] = {}
        """The namespace whose turn it is comes first."""

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __contains__(self, key: K) -> bool:
        return key in self._by_namespace.get(key.namespace, ())

    def add(self, key: K) -> None:
        """Add a key behind the others of its namespace; one that waits already keeps its place."""
        self._by_namespace.setdefault(key.namespace, {})[key] = None

    def discard(self, key: K) -> None:
        """Remove a key."""
        keys = self._by_namespace.get(key.namespace, {})
        keys.pop(key, None)
        if not keys:
            self._by_namespace.pop(key.namespace, None)

    def pop(self, excluded: Container[K] = ()) -> K | None:
        """Remove and return the next key that is not excluded; None if there is none."""
        key = next((key for keys in self._by_namespace.values() for key in keys if key not in excluded), None)
        if key is not None:
            self.discard(key)
            if (keys := self._by_namespace.pop(key.namespace, None)) is not None:
                self._by_namespace[key.namespace] = keys
        return key


class WorkQueue(Generic[K]):
    """Keys that wait, each once; namespaces take turns. Any number of workers `get` from it.

    As in client-go, a key that a worker has got is given to no other one until it is `done`.
    """

    def __init__(self) -> None:
        self._changed = Turns[K]()
        self._resynced = Turns[K]()
        self._in_work: set[K] = set()
        self._added = asyncio.Event()

    def add(self, keys: Iterable[K], *, resync: bool = False) -> None:
        """Queues these keys, behind all others if for a `resync` only; one that waits already keeps its place."""
        queue = self._resynced if resync else self._changed
        for key in keys:
            queue.add(key)
        self._added.set()

    def discard(self, key: K) -> None:
        """Takes the key out of the queue."""
        self._changed.discard(key)
        self._resynced.discard(key)

    async def get(self) -> K:
        """The next key, as soon as there is one. The worker has to call `done` with it."""
        while True:
            key = self._changed.pop(self._in_work) or self._resynced.pop(self._in_work)
            if key is not None:
                self.discard(key)
                self._in_work.add(key)
                return key
            self._added.clear()
            await self._added.wait()

    def done(self, key: K) -> None:
        """The worker has finished with the key."""
        self._in_work.discard(key)
        if key in self._changed or key in self._resynced:
            self._added.set()


class DelayQueue(Generic[K]):
    """Hands out each key once, however often it was added since. Namespaces take turns.

    `clock` returns monotonic seconds; `spacing` is the least number of seconds between two pops of one key.
    """

    def __init__(self, clock: Callable[[], float], spacing: float = SPACING_SECONDS) -> None:
        self._clock = clock
        self._spacing = spacing
        self._heap: list[tuple[float, int, K]] = []
        self._queued: dict[K, tuple[float, int]] = {}
        """When each queued key is due, and the number of its heap item. Any other item of it was replaced."""
        self._due = Turns[K]()
        self._popped_at: dict[K, float] = {}
        self._added = 0
        self._changed = asyncio.Event()

    def add(self, key: K, *, expedited: bool = False) -> None:
        """Queue the key for now, or for the end of its spacing since the last pop."""
        self._add_at(key, self._clock(), EXPEDITED_SPACING_SECONDS if expedited else self._spacing)

    def add_after(self, key: K, seconds: float) -> None:
        """Queue the key for `seconds` from now; an earlier time that it is queued for already stays."""
        self._add_at(key, self._clock() + seconds, self._spacing)

    def add_if_idle(self, key: K, seconds: float) -> None:
        """Queue the key if its last pop is at least `seconds` ago."""
        if self._clock() - self._popped_at.get(key, -math.inf) >= seconds:
            self.add(key)

    def _add_at(self, key: K, at: float, spacing: float) -> None:
        due_at = max(at, self._popped_at.get(key, 0.0) + spacing)
        if key in self._queued and self._queued[key][0] <= due_at:
            return
        self._added += 1
        self._queued[key] = due_at, self._added
        heapq.heappush(self._heap, (due_at, self._added, key))
        self._changed.set()

    @property
    def ready(self) -> bool:
        """Whether a key is due."""
        now = self._clock()
        while self._heap and (self._heap[0][0] <= now or not self._is_current(self._heap[0])):
            item = heapq.heappop(self._heap)
            if self._is_current(item):
                self._due.add(item[2])
        return bool(self._due)

    def _is_current(self, item: tuple[float, int, K]) -> bool:
        return self._queued.get(item[2]) == item[:2]

    def pop(self) -> K | None:
        """Remove and return the next key; None if none is due yet."""
        key = self._due.pop() if self.ready else None
        if key is None:
            return None
        del self._queued[key]
        self._popped_at[key] = self._clock()
        return key

    def forget(self, key: K) -> None:
        """Drop the spacing of a deleted key."""
        self._popped_at.pop(key, None)

    async def wait(self) -> None:
        """Return once a key is due."""
        while not self.ready:
            self._changed.clear()
            delay = self._heap[0][0] - self._clock() if self._heap else None
            if not await wait_for_event(self._changed, delay):
                return


class Claim(NamedTuple, Generic[T]):
    """A namespace's claim to a slot for an item. `since` orders the claims of one namespace, the oldest first."""

    namespace: str
    since: tuple[str, ...]
    item: T


def grant_slots(claims: Iterable[Claim[T]], each: int, total: int | None = None) -> frozenset[tuple[str, T]]:
    """The claims that get a slot, as namespace and item: the oldest `each` of every namespace.

    If there are more than `total` items, every namespace's oldest comes before any namespace's second, and so on.
    The result depends on the claims alone, not on their order, so all replicas agree.
    """
    held: dict[str, dict[T, tuple[str, ...]]] = defaultdict(dict)
    for namespace, since, item in claims:
        held[namespace][item] = min(since, held[namespace].get(item, since))
    if all(len(items) <= each for items in held.values()):
        chosen = {(namespace, item) for namespace, items in held.items() for item in items}
        if total is None or len({item for _, item in chosen}) <= total:
            return frozenset(chosen)
    ranked = [
        (rank, items[item], namespace, item)
        for namespace, items in held.items()
        for rank, item in enumerate(sorted(items, key=items.__getitem__)[:each])
    ]
    taken: set[T] = set()
    for *_, item in sorted(ranked, key=lambda place: place[:3]):
        if total is None or len(taken) < total:
            taken.add(item)
    return frozenset((namespace, item) for _, _, namespace, item in ranked if item in taken)
