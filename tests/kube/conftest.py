"""What the tests of this room share: a fake API server, a session to it, and no blocking call in the event loop."""

from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import blockbuster_ctx

from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.kube.fake import FakeApi


class Clock:
    """The machine's clock and the one that nobody sets, both of which stand still until a test moves them."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1000.0, 0.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture(autouse=True)
def _no_blocking() -> Iterator[None]:
    """A blocking call of ours in the event loop fails the test."""
    with blockbuster_ctx("adapter") as guard:
        for function in guard.functions.values():
            # Runs in a thread with a loop of its own, which nobody else waits for.
            function.can_block_in("adapter/kube/credentials.py", {"_kubeconfig"})
        yield


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def session(api: FakeApi, metrics: Metrics) -> AsyncIterator[Session]:
    async with Session(api.load, metrics=metrics) as session:
        yield session


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def timed(api: FakeApi, metrics: Metrics, clock: Clock) -> AsyncIterator[Session]:
    """A session whose clocks the test moves."""
    async with Session(
        api.load, metrics=metrics, wall=lambda: clock.wall, monotonic=lambda: clock.monotonic
    ) as session:
        yield session
