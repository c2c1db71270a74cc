"""The fixtures of the metrics API's tests: the real server on loopback with a fake cluster."""

from tests.apiserver.conftest import client_authority, cluster, front_proxy, options, proxy, service, session

__all__ = ["client_authority", "cluster", "front_proxy", "options", "proxy", "service", "session"]
