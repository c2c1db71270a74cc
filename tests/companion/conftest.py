"""What the tests of the companion share."""

import pytest

from tests.companion.telling import Stand


@pytest.fixture
def stand() -> Stand:
    return Stand()
