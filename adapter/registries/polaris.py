"""Polaris by its discovery API: each service is polled with the revision of its last instance list.

`isolate`, weight 0 and `healthy: false` pull an instance out.
"""

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, PolledSource, refusal
from adapter.registries.source import ServiceKey
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    UnknownService,
    WrongAnswer,
)
from adapter.settings.registries import PolarisRegistry

SUCCESS = 200000
NO_CHANGE = 200001
NO_SUCH_SERVICE = 400202
API_RATE_LIMIT = 403003


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


_ANSWER = Decoder(_Answer)


class PolarisSource(PolledSource[PolarisRegistry]):
    """Follows services in one Polaris: a request in each interval, with the revision of the last list."""

    async def read(self, server: str, key: ServiceKey, tag: str) -> Polled | None:
        """As `PolledSource` describes; the tag is the list's revision."""
        named = {"name": key.service, "namespace": key.namespace or self.settings.namespace, "revision": tag}
        question = {"type": 1, "service": named}  # for instances
        reply = await self.servers.send("POST", f"{server}/v1/Discover", json=question)
        polled = read_answer(reply, key.service, named["namespace"], self.settings.pod_name_key)
        if polled is None and not tag:
            raise WrongAnswer("it answers 'no change' to a request for the whole list")
        return polled


def read_answer(reply: Reply, service: str, namespace: str, pod_name_key: str) -> Polled | None:
    """The list of this service, None if the last one still holds. Raises SourceError."""
    try:
        answer = _ANSWER.decode(reply.body)
    except msgspec.MsgspecError as error:
        if reply.status != 200:
            raise refusal(reply) from None
        raise WrongAnswer(f"not an answer of Polaris' discovery API: {error}") from None
    # For an alias Polaris names its target. An answer may also name no service.
    about = [each for each in (answer.service, answer.alias_for) if each is not None and each.name]
    if about and not any(each.name == service and each.namespace in {namespace, None, ""} for each in about):
        other = f"{about[0].name!r} in {about[0].namespace!r}"
        raise WrongAnswer(f"the answer is of {other}, not of {service!r} in {namespace!r}")
    if answer.code == NO_CHANGE:
        return None
    if answer.code != SUCCESS or answer.service is None or answer.instances is None:
        raise _refused(answer)
    # Polaris lists them in any order.
    listed = sorted(answer.instances, key=lambda each: (each.host, each.port or 0))
    return Polled(Roster(tuple(_instance(each, pod_name_key) for each in listed)), answer.service.revision or "")


def _instance(listed: _Instance, pod_name_key: str) -> Instance:
    metadata = listed.metadata or {}
    return Instance(
        ip=listed.host,
        port=listed.port,
        healthy=listed.healthy is not False,
        weight=listed.weight,
        isolated=listed.isolate is True,
        pod_name=metadata.get(pod_name_key, ""),
        metadata=metadata,
    )


def _refused(answer: _Answer) -> SourceError:
    """The error of an answer without a list."""
    info = f"Polaris answers {answer.code}: {answer.info or 'no message'}"
    public = f"Polaris answers {answer.code}"
    status = answer.code // 1000
    if answer.code == NO_SUCH_SERVICE:
        return UnknownService("Polaris knows no such service there; check the service's name and its namespace")
    if status == 429 or status >= 500 or answer.code == API_RATE_LIMIT:
        return SourceFailing(info, public=public)
    if status == 401:
        return NotAuthenticated(f"{info}; check tokenFile, and whether its user may read this service", public=public)
    if status == 403:
        return NotAllowed(f"{info}; give the adapter's token the right to read this service", public=public)
    return WrongAnswer(info, public=public)
