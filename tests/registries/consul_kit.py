"""Consul: a service that is followed, and the pods that register there."""

from functools import partial

from lab.harness.registries.consul import Consul
from tests.registries.kit import follow

following = partial(follow, "Consul")


def register_pods(consul: Consul, service: str, count: int = 4, **more: object) -> None:
    """Register the pods of a followed service with a Consul."""
    for number in range(count):
        consul.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)
