"""What the tests of this room share: a fake API server and a session to it."""

from collections.abc import AsyncIterator

import pytest

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
