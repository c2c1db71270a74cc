"""A fake API server for reviews, which a test can slow down."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from adapter.apiserver.authorization import ReviewClient
from adapter.kube.errors import Unreachable


class Reviewer:
    """Allows everything unless a test changes that.

    Reviews of which `slow` is true wait for `go`.
    """

    def __init__(self, slow: Callable[[Mapping[str, Any]], bool] = lambda _spec: False) -> None:
        self.slow = slow
        self.go = asyncio.Event()
        self.allows: Callable[[Mapping[str, Any]], bool] = lambda _spec: True
        self.fails = False
        self.asked: list[Mapping[str, Any]] = []
        self.under_way = 0
        self.most_under_way = 0
        self._changed = asyncio.Condition()

    @property
    def client(self) -> ReviewClient:
        return ReviewClient(self)

    def by_user(self) -> Counter[str]:
        """The number of reviews per user."""
        return Counter(spec.get("user", "") for spec in self.asked)

    def now(self) -> float:
        return 0.0

    async def get(self, path: str, *, timeout: float) -> bytes:  # noqa: ASYNC109  the session's own deadline
        raise NotImplementedError

    async def exchange(self, method: str, path: str, *, body: bytes, **_more: Any) -> bytes:
        assert method == "POST"
        spec = msgspec.json.decode(body)["spec"]
        self.asked.append(spec)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self._tell()
            if self.fails:
                raise Unreachable("made to fail")
            if self.slow(spec):
                await self.go.wait()
        finally:
            self.under_way -= 1
        return msgspec.json.encode({"status": {"allowed": self.allows(spec)}})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a review makes the condition true."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def begun(*tasks: "asyncio.Task[Any]") -> None:
    """Let tasks run until they wait for an answer."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert tasks


async def ended(*tasks: "asyncio.Task[Any]") -> list[Any]:
    """Results and errors of the tasks, within a time limit."""
    async with asyncio.timeout(30):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
