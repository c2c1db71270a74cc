"""The server of the API server's own tests."""

from tests.apiserver.conftest import cluster, front_proxy, options, proxy, service, session

__all__ = ["cluster", "front_proxy", "options", "proxy", "service", "session"]
