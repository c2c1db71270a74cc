"""Polaris by its clients' HTTP discovery API: each service is polled, and mostly nothing has changed.

Isolated instances stay listed, which is the clearest evidence there is. A request carries the revision of the last
answer; 500 services are 250 small requests a second at the default interval, so they go over a few connections. Its
gRPC stream would cost more here, and Polaris 1.18 keeps every answer of a stream in memory until the stream ends.

`registered_at` stays unknown: Polaris gives local times without a zone, and a registration keeps the time of the first
one of that address.
"""

from typing import NamedTuple

import msgspec

from adapter.load.roster import Instance
from adapter.registries.client import base_urls, refusal
from adapter.registries.polling import UNCHANGED, PollingSource, Unchanged
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, array, read_array
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    UnknownService,
    WrongRegistryAnswer,
)
from adapter.settings.registries import PolarisRegistry

INSTANCES = 1
"""The type of a request for instances."""

SUCCESS = 200000
NO_CHANGE = 200001
NO_SUCH_SERVICE = 400202
API_RATE_LIMIT = 403003
_MILLE = 1000
_JSON = (("Content-Type", "application/json"),)


class _Service(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    revision: str | None = None


class _Instance(msgspec.Struct):
    host: str
    port: int | None = None
    weight: float | None = None
    healthy: bool | None = None
    isolate: bool | None = None
    metadata: dict[str, str] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    code: int
    info: str | None = None
    service: _Service | None = None
    alias_for: _Service | None = None
    instances: list[_Instance] | None = None


class InstanceList(NamedTuple):
    """The registrations of a service, ordered by address, and the revision to ask with next time."""

    revision: str
    instances: tuple[Instance, ...]


_ANSWER = Decoder(_Answer)
_INSTANCES = Decoder(list[_Instance])
_ARRAY = array("instances")
_encode = msgspec.json.Encoder().encode


async def read_answer(
    reply: RawReply, server: str, service: str, namespace: str, pod_name_key: str
) -> InstanceList | Unchanged | SourceError:
    """Decode the reply about a service; an error is returned where it concerns this service alone.

    Raises the SourceError of a server that another one may stand in for.
    """
    plain = reply.plain  # decoding uses the body up
    try:
        listed, envelope = await read_array(reply.body, _ARRAY, _INSTANCES, _ANSWER)
    except msgspec.MsgspecError as error:
        if reply.status != 200:
            raise refusal(plain).with_context(server) from None
        raise WrongRegistryAnswer(f"{server}: not an answer of Polaris' discovery API: {error}") from None
    # For an alias Polaris names its target; an answer may also say nothing of whom it is about.
    about = [each for each in (envelope.service, envelope.alias_for) if each is not None and each.name]
    if about and not any(each.name == service and each.namespace in {namespace, None, ""} for each in about):
        named = envelope.service
        other = f"{named.name!r} in {named.namespace!r}" if named is not None else "another service"
        return WrongRegistryAnswer(f"{server}: the answer is of {other}, not of {service!r} in {namespace!r}")
    if envelope.code == NO_CHANGE:
        return UNCHANGED
    if envelope.code == SUCCESS and envelope.service is not None and envelope.instances is not None:
        slices = Slices()
        instances = []
        listed += envelope.instances
        for each in sorted(listed, key=lambda each: (each.host, each.port or 0)):  # Polaris lists them in any order
            metadata = each.metadata or {}
            instances.append(
                Instance(
                    ip=each.host,
                    port=each.port,
                    healthy=each.healthy is not False,
                    weight=each.weight,
                    isolated=each.isolate is True,
                    pod_name=metadata.get(pod_name_key, "") if pod_name_key else "",
                    metadata=metadata,
                )
            )
            await slices.breathe()
        return InstanceList(envelope.service.revision or "", tuple(instances))
    return _refusal(envelope, server)


def _refusal(answer: _Answer, server: str) -> SourceError:
    """The error of an answer without a list. Raises it where another server may stand in."""
    info = f"{server}: Polaris answers {answer.code}: {answer.info or 'no message'}"
    public = f"Polaris answers {answer.code}"
    if answer.code == NO_SUCH_SERVICE:
        return UnknownService(
            f"{server}: Polaris knows no such service there; check the service's name and its namespace"
        )
    status = answer.code // _MILLE
    if status == 429 or status >= 500 or answer.code == API_RATE_LIMIT:
        raise SourceFailing(info, public=public)
    if status == 401:
        return NotAuthenticated(f"{info}; check tokenFile, and whether its user may read this service", public=public)
    if status == 403:
        return NotAllowed(f"{info}; give the adapter's token the right to read this service", public=public)
    return WrongRegistryAnswer(info, public=public)


class PolarisSource(PollingSource[InstanceList]):
    """Follows services in one Polaris."""

    def __init__(self, settings: PolarisRegistry, cache: RosterCache) -> None:
        super().__init__(settings, base_urls(settings.servers), cache)
        self._namespace, self._pod_name_key = settings.namespace, settings.pod_name_key

    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question for a service's instances; `tag` is the revision of the last answer."""
        named = {"name": key.service, "namespace": key.namespace or self._namespace, "revision": tag}
        return Request("POST", "/v1/Discover", _JSON, _encode({"type": INSTANCES, "service": named}))

    async def read(
        self, key: ServiceKey, tag: str, server: str, reply: RawReply
    ) -> InstanceList | Unchanged | SourceError:
        """The instances. Raises the SourceError of a server that another one may stand in for."""
        namespace = key.namespace or self._namespace
        answer = await read_answer(reply, server, key.service, namespace, self._pod_name_key)
        if answer is UNCHANGED and not tag:
            return WrongRegistryAnswer(f"{server}: it answers 'no change' to a request for the whole list")
        return answer

    def write(self, key: ServiceKey, answer: InstanceList) -> str:
        """Write the instances; the tag is the list's revision."""
        self._cache.update(key, answer.instances)
        return answer.revision
