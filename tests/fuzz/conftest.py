"""Fixtures: the server of the tests of `adapter.apiserver`."""

from tests.apiserver.conftest import cluster, front_proxy, options, proxy, service, session

__all__ = ["cluster", "front_proxy", "options", "proxy", "service", "session"]
