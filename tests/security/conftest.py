"""The real server on loopback, with its stand-in for the cluster, as the room of the API server has it."""

from tests.apiserver.conftest import (
    client_authority,
    cluster,
    front_proxy,
    options,
    proxy,
    roster_service,
    rosters,
    service,
    session,
)

__all__ = [
    "client_authority",
    "cluster",
    "front_proxy",
    "options",
    "proxy",
    "roster_service",
    "rosters",
    "service",
    "session",
]
