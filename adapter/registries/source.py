"""The protocol of every registry: the key of a service, and the source of its instance lists."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from adapter.load.roster import Roster
from adapter.load.spec import Policy
from adapter.load.states import service_registry
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import WrongAnswer

T = TypeVar("T")


class ServiceKey(NamedTuple):
    """A service in a registry: the registry's name in the settings, and the rest in that registry's own sense."""

    registry: str
    service: str
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.namespace, self.group)))


class Claim(NamedTuple):
    """A Kubernetes namespace's claim to follow a service. `since` orders the claims of one namespace, oldest first."""

    namespace: str
    since: tuple[str, ...]
    key: ServiceKey


def service_of(policy: Policy) -> ServiceKey | None:
    """The service that a policy's pods register under; None if Kubernetes itself is the registry."""
    registry = service_registry(policy)
    if registry is None:
        return None
    return ServiceKey(registry.name, registry.service, registry.namespace, registry.group)


class Source(Protocol):
    """The connection to one registry. Must be made where an event loop runs; it opens nothing before the first call.

    A source keeps no state of one service outside of that service's iterator, so no service can delay another.
    """

    def instances(self, key: ServiceKey) -> AsyncGenerator[Roster, None]:
        """The instance lists of a service, without end.

        Yields each time the registry gave the list or confirmed it; to confirm, the same answer is yielded again.
        Raises SourceError if the registry gave no valid answer. The iterator has ended then: the caller waits and calls
        again. Closing the iterator ends what the source holds for this service (a query, a subscription, watches).
        """

    async def close(self) -> None:
        """Close the connections. All iterators are closed before."""


def decoded(decoder: Decoder[T], body: bytes, otherwise: str) -> T:
    """The value in an answer. Raises WrongAnswer with the sentence `otherwise` for one of another shape."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"{otherwise}: {error}") from error
