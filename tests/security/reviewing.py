"""An API server that reviews, and may be slow about what a test says."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from adapter.apiserver.reviews import Reviews
from adapter.kube.errors import Unreachable
from adapter.kube.session import ApiResponse


class Reviewer:
    """Allows everything, unless told otherwise, and knows the tokens that begin with `good`.

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
    def client(self) -> Reviews:
        return Reviews(self)

    def by_user(self) -> Counter[str]:
        """How many reviews were asked for each user."""
        return Counter(spec.get("user", "") for spec in self.asked)

    def now(self) -> float:
        return 0.0

    async def get(self, path: str, *, timeout: float) -> bytes:  # noqa: ASYNC109  the session's own deadline
        raise NotImplementedError

    async def request(self, method: str, path: str, *, body: bytes | None = None, **_more: Any) -> ApiResponse:
        assert (method, body is not None) == ("POST", True)
        spec = msgspec.json.decode(body or b"")["spec"]
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
        user = {"username": spec["token"]} if spec.get("token", "").startswith("good") else {}
        status = {"allowed": self.allows(spec), "authenticated": bool(user), "user": user}
        return ApiResponse(201, {}, msgspec.json.encode({"status": status}))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a review makes the condition true."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def begun(*tasks: "asyncio.Task[Any]") -> None:
    """Let tasks run as far as they get without an answer from outside."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert tasks


async def ended(*tasks: "asyncio.Task[Any]") -> list[Any]:
    """Results of tasks, errors among them, within a time that a hang exceeds."""
    async with asyncio.timeout(30):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
