"""What the tests of this room share: a fake API server, a session to it, and no blocking call in the event loop."""

from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import blockbuster_ctx

from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.kube.fake import FakeApi


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
