"""What the tests of the companion share."""

from collections.abc import AsyncIterator

import pytest

from adapter.companion.notifier import Notifier
from tests.companion.telling import Sent, Stand, notifying


@pytest.fixture
def stand() -> Stand:
    return Stand()


@pytest.fixture
def sent() -> Sent:
    """What was sent by the notifier of the fixture."""
    return Sent()


@pytest.fixture
async def notifier(stand: Stand, sent: Sent) -> AsyncIterator[Notifier]:
    """A notifier whose sends all succeed, and one route for it."""
    stand.route("json://a")
    async with notifying(stand, sent) as made:
        yield made
