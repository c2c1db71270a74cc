"""A Consul source that runs, and the pods whose service it follows."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from adapter.settings.registries import ConsulRegistry
from lab.harness.registries.consul import Consul
from tests.registries.kit import FollowedService

REGISTRY = "consul"


class Followed(FollowedService):
    """A service of Consul. `settings` are those of the registry; `place` are fields of the key."""

    def __init__(self, servers: Sequence[str], service: str, **settings: Any) -> None:
        place = settings.pop("place", {})
        named = {"name": REGISTRY, "type": "Consul", "servers": tuple(servers)}
        super().__init__(
            ConsulRegistry(**{**named, "timeout_seconds": 2, "wait_seconds": 2, **settings}), service, **place
        )


def following(
    servers: Consul | Iterable[str], service: str, **settings: Any
) -> contextlib.AbstractAsyncContextManager[Followed]:
    """Follows a service while the block runs."""
    urls = [servers.url] if isinstance(servers, Consul) else list(servers)
    return Followed(urls, service, **settings)


def register_pods(consul: Consul, service: str, count: int = 4, **more: object) -> None:
    """Register the pods of `Followed` with a Consul."""
    for number in range(count):
        consul.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)
