"""How long chaos lasts, and its order."""

import pytest

from tests.e2e.conftest import _adapter, adapter_kubeconfig, make_adapter, shared_exporter, shared_prometheus

__all__ = ["_adapter", "adapter_kubeconfig", "make_adapter", "shared_exporter", "shared_prometheus"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="of the order of the faults")
    parser.addoption("--minutes", type=float, default=30)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.option.seed)


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float:
    return float(request.config.option.minutes)
