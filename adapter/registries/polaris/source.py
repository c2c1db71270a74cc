"""Polaris by its clients' HTTP discovery API: each service is polled, and mostly nothing has changed.

Isolated instances stay listed, which is the clearest evidence there is. A request carries the revision of the last
answer; 500 services are 250 small requests a second at the default interval, so they go over a few connections. Its
gRPC stream would cost more here, and Polaris 1.18 keeps every answer of a stream in memory until the stream ends.

`registered_at` stays unknown: Polaris gives local times without a zone, and a registration keeps the time of the first
one of that address.
"""

from adapter.registries.client import base_urls
from adapter.registries.polaris import wire
from adapter.registries.polling.source import UNCHANGED, PollingSource, Unchanged
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.source_errors import SourceError, WrongRegistryAnswer
from adapter.settings.registries import PolarisRegistry


class PolarisSource(PollingSource[wire.InstanceList]):
    """Follows services in one Polaris."""

    def __init__(self, settings: PolarisRegistry, cache: RosterCache) -> None:
        super().__init__(settings, base_urls(settings.servers), cache)
        self._namespace, self._pod_name_key = settings.namespace, settings.pod_name_key

    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question for a service's instances."""
        return wire.request(key.service, key.namespace or self._namespace, tag)

    async def read(
        self, key: ServiceKey, tag: str, server: str, reply: RawReply
    ) -> wire.InstanceList | Unchanged | SourceError:
        """The instances. Raises the SourceError of a server that another one may stand in for."""
        namespace = key.namespace or self._namespace
        answer = await wire.read_answer(reply, server, key.service, namespace, self._pod_name_key)
        if answer is UNCHANGED and not tag:
            return WrongRegistryAnswer(f"{server}: it answers 'no change' to a request for the whole list")
        return answer

    def write(self, key: ServiceKey, answer: wire.InstanceList) -> str:
        """Write the instances; the tag is the list's revision."""
        self._cache.update(key, answer.instances)
        return answer.revision
