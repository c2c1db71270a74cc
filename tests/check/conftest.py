"""A small API server and a session with it."""

from collections.abc import AsyncIterator

import pytest

from adapter.kube.session import Session
from tests.kube.fake import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def session(api: FakeApi) -> AsyncIterator[Session]:
    async with Session(api.load) as session:
        yield session
