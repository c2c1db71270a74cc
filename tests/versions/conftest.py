"""What depends on the version of Kubernetes: `make test-versions` runs it on each, and `make test` on none."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.versions)
