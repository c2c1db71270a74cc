"""What every registry has in common: the key of a service, and the interface of a source."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from adapter.load.spec import Policy
from adapter.load.states import service_registry


class ServiceKey(NamedTuple):
    """A service in a registry: the registry's name in the settings, and the rest in that registry's own sense."""

    registry: str
    service: str
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.namespace, self.group)))


def service_of(policy: Policy) -> ServiceKey | None:
    """The service that a policy's pods register under; None where Kubernetes itself is the registry."""
    registry = service_registry(policy)
    if registry is None:
        return None
    return ServiceKey(registry.name, registry.service, registry.namespace, registry.group)


OnChange = Callable[[ServiceKey], None]
"""Called after a service's roster changed."""


class RosterSource(Protocol):
    """The connection to one registry. It reads from its cache which services to follow, and writes answers into it."""

    def refresh(self) -> None:
        """Follow the services of the cache from now on: begin with new ones, end what is no longer followed."""

    async def run(self) -> None:
        """Follow the services until cancelled."""
