"""What is repeated in the background: at its time, sooner after a failure, at once when it is woken."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from adapter.apiserver.refresh import Refresher
from adapter.apiserver.status import CertificateError
from adapter.kube.errors import Unreachable

OFTEN, NEVER = 0.001, 3600.0


class Action:
    """Counts its calls, and raises `fault` if there is one."""

    def __init__(self) -> None:
        self.calls, self.failures = 0, 0
        self.fault: Exception | None = None
        self._changed = asyncio.Condition()

    async def __call__(self) -> None:
        self.calls += 1
        async with self._changed:
            self._changed.notify_all()
        if self.fault is not None:
            raise self.fault

    def failed(self) -> None:
        self.failures += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)


@asynccontextmanager
async def repeated(action: Action, seconds: float) -> AsyncIterator[Refresher]:
    refresher = Refresher(action, seconds, "it_failed", action.failed)
    task = asyncio.create_task(refresher.run())
    yield refresher
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("fault", [CertificateError("no key"), Unreachable("down"), OSError("gone"), ValueError("bad")])
async def test_failure_is_counted_logged_once_and_kept_until_success(fault: Exception) -> None:
    action = Action()
    action.fault = fault
    with capture_logs() as logs:
        async with repeated(action, OFTEN) as refresher:
            await action.until(lambda: action.failures >= 3)
            assert refresher.error == str(fault)
            action.fault, seen = None, action.calls
            await action.until(lambda: action.calls >= seen + 3)
            assert refresher.error is None
    assert [one["event"] for one in logs] == ["it_failed"]


async def test_failure_is_retried_long_before_the_usual_time() -> None:
    action = Action()
    action.fault = CertificateError("no key")
    async with repeated(action, NEVER):
        await action.until(lambda: action.calls >= 2)
