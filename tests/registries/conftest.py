"""Fixtures of the registries' tests."""

from pathlib import Path

import pytest

from tests.registries.nacos_kit import Password


@pytest.fixture
def password(tmp_path: Path) -> Password:
    return Password(tmp_path / "password")
