"""Fixtures of the registries' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.registries.nacos_kit import FakeNacos, host


@pytest.fixture
async def nacos(request: pytest.FixtureRequest) -> AsyncIterator[FakeNacos]:
    """A Nacos, of version 3 unless a test says otherwise, with the pods web-0 and web-1."""
    async with FakeNacos(getattr(request, "param", 3)) as fake:
        fake.put(host(0), host(1))
        yield fake


@pytest.fixture
def user(nacos: FakeNacos, tmp_path: Path) -> dict[str, str]:
    """Nacos asks for a user: the settings of one, whose password is in the file `password`."""
    nacos.users = {"reader": "right"}
    (tmp_path / "password").write_text("right\n")
    return {"username": "reader", "password_file": str(tmp_path / "password")}
