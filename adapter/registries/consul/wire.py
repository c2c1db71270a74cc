"""Answers of Consul's HTTP API: entries of the health endpoint, headers, and refusals as errors with advice."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from adapter.load.roster import Instance
from adapter.registries.client import refusal
from adapter.runtime.answer_budget import Body
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, Uncut, array, pieces
from adapter.runtime.outbound import Reply, SegmentedReply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongRegistryAnswer

CRITICAL = "CRITICAL"
"""The status of a registration with a check that fails, or that has not run yet."""
MAINTENANCE = "MAINTENANCE"
POD_NAME = "pod-name"
POD_UID = "pod-uid"
POD_NAMESPACE = "k8s-namespace"
"""Metadata keys of consul-k8s for the pod of a registration."""

UNTIL_CHECKED = 200_000_000_000.0
"""The end of doubt (epoch seconds) that a check's first run ends, with another answer."""

_OK = 200
_NOT_CONSUL = "the answer is not what Consul's health endpoint gives"
_SILENT = {"ttl", "script", "docker"}
"""Types of checks that may fail without an output."""
_SUCCESS = re.compile(
    r"HTTP \S+ \S+: (2\d\d|429)\b|(TCP|UDP) connect .*: Success$|gRPC check .*: success$|HTTP2 ping was successful$"
    r"|All checks passing\.$"
)
"""The output of a check's run that did not fail. No service writes it, as those of `_SILENT` checks."""
_SERF_HEALTH = "serfHealth"
_NODE_MAINTENANCE = "_node_maintenance"
_SERVICE_MAINTENANCE = "_service_maintenance:"
_LONGEST_INDEX = 20  # digits of an unsigned integer of 64 bits
_LAN = ("lan_ipv4", "lan_ipv6")


class _Address(msgspec.Struct, rename="pascal"):
    address: str = ""
    port: int = 0


class _Weights(msgspec.Struct, rename="pascal"):
    passing: int = 1
    warning: int = 1


class _Node(msgspec.Struct, rename="pascal"):
    id: str = msgspec.field(default="", name="ID")
    address: str = ""


class _Service(msgspec.Struct, rename="pascal"):
    id: str = msgspec.field(default="", name="ID")
    address: str = ""
    port: int = 0
    weights: _Weights = msgspec.field(default_factory=_Weights)
    meta: Mapping[str, str] | None = None
    tagged_addresses: Mapping[str, _Address] | None = None


class _Check(msgspec.Struct, rename="pascal"):
    id: str = msgspec.field(name="CheckID")
    status: str
    type: str = ""
    output: str = ""
    modify_index: int = 0


class _Entry(msgspec.Struct, rename="pascal"):
    node: _Node
    service: _Service
    checks: list[_Check]


_ARRAY = array("")
_ENTRIES = Decoder(list[_Entry])


class Headers(NamedTuple):
    """The headers of an answer.

    `revision`: the index; 0 where the header is missing or no number. `filtered`: the token may not see all of it.
    `default_deny`: services that no token allows are hidden, without a sign of it in answers to requests without token.
    """

    revision: int
    filtered: bool
    default_deny: bool


def path(service: str) -> str:
    """The path of a service's instances with their checks, of any health."""
    if service in {"", ".", ".."}:
        raise SourceError(f"{service!r} cannot be the name of a service; write it as it is called in Consul")
    return f"/v1/health/service/{quote(service, safe='')}"


def headers(reply: Reply | SegmentedReply, server: str) -> Headers:
    """The headers. Raises SourceError for a status without an answer, and for a server without a leader."""
    if reply.status != _OK:
        plain = reply.plain if isinstance(reply, SegmentedReply) else reply
        error = refusal(plain)
        if plain.status in {401, 403} and b"ACL not found" in plain.body:
            unknown = "Consul does not know the token in tokenFile"
            raise NotAuthenticated(f"{server}: {error}; {unknown}", public=error.public)
        if plain.status in {401, 403}:
            advice = "give the token service:read on the service and node:read"
            raise NotAllowed(f"{server}: {error}; {advice}", public=error.public)
        connections = "let each client have more connections than there are services (limits.http_max_conns_per_client)"
        raise error.with_context(server, connections if plain.status == 429 else "")
    values = reply.headers
    streamed = values.get("X-Consul-Query-Backend") == "streaming"  # a streamed answer always has "false"
    if values.get("X-Consul-KnownLeader") == "false" and not streamed:
        raise SourceFailing(f"{server}: this Consul server knows no leader; look after the cluster's quorum")
    index = values.get("X-Consul-Index", "")
    return Headers(
        revision=int(index) if index.isdecimal() and len(index) <= _LONGEST_INDEX else 0,
        filtered=values.get("X-Consul-Results-Filtered-By-ACLs") == "true",
        default_deny=values.get("X-Consul-Default-ACL-Policy") == "deny",
    )


class Registration(NamedTuple):
    """An instance at one of its addresses.

    `id`: its node's and its own, for several may be registered at one address. `node_failed`: Consul lost the agent of
    its node, or has not seen yet that it is back. `unreported`: it is critical by checks without an output that may be
    silent alone: they failed without a note, or have not run since the agent started.
    """

    instance: Instance
    id: tuple[str, str]
    node_failed: bool
    unreported: bool


async def registrations(
    body: Body, server: str, *, pod_name_key: str, warning_is_out: bool
) -> tuple[Registration, ...]:
    """The registrations of a service, one for each LAN address of each. Raises WrongRegistryAnswer."""
    slices = Slices()
    listed: list[Registration] = []
    try:
        for piece in pieces(body, _ARRAY):
            for entry in _ENTRIES.decode(piece.text):
                listed.extend(_registrations(entry, pod_name_key, warning_is_out))
            await slices.breathe()
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongRegistryAnswer(f"{server}: {_NOT_CONSUL}: {error}") from error
    return tuple(listed)


def _registrations(entry: _Entry, pod_name_key: str, warning_is_out: bool) -> Iterator[Registration]:
    service, status = entry.service, _status(entry.checks)
    critical = [check for check in entry.checks if check.status == "critical"]
    of_node = [check for check in critical if check.id == _SERF_HEALTH]
    of_service = [check for check in critical if check.id != _SERF_HEALTH]
    # Where the agent has written another check since Consul lost it, it is back, and no leader has seen it yet: while
    # there is none, or a new one has just been elected, `serfHealth` stays as it was.
    written = max((check.modify_index for check in entry.checks), default=0)
    node_failed = any(check.modify_index >= written for check in of_node)
    has_failed = node_failed or any(_has_failed(check) for check in of_service)
    unreported = not has_failed and any(check.type in _SILENT for check in of_service)
    doubtful_until = None if status != CRITICAL or has_failed or unreported else UNTIL_CHECKED
    meta = service.meta or {}
    address = service.address or entry.node.address
    # The other family's address, too. Virtual and WAN addresses belong to no pod.
    tagged = [each for name, each in (service.tagged_addresses or {}).items() if name in _LAN]
    others = [(each.address, each.port or service.port) for each in tagged if each.address not in {"", address}]
    for ip, port in [(address, service.port), *others]:
        instance = Instance(
            ip=ip,
            port=port or None,
            healthy=status == "PASSING" or (status == "WARNING" and not warning_is_out),
            # A registration that states its passing weight alone gets an unintended warning weight of 0.
            weight=(service.weights.warning or None) if status == "WARNING" else service.weights.passing,
            status=status,
            pod_uid=meta.get(POD_UID, ""),
            pod_name=meta.get(pod_name_key or POD_NAME, ""),
            pod_namespace=meta.get(POD_NAMESPACE, ""),
            doubtful_until=doubtful_until,
            metadata=meta,
        )
        yield Registration(instance, (entry.node.id, service.id), bool(of_node), unreported)


def _status(checks: list[_Check]) -> str:
    """Consul's own aggregate: maintenance of node or service beats critical, that beats warning.

    The check `serfHealth` of a node counts like any other. It takes all pods of an agent out at once, and rightly:
    Consul hands out none of their addresses then. Where that means every pod, it is doubt (`load.states`).
    """
    if any(check.id == _NODE_MAINTENANCE or check.id.startswith(_SERVICE_MAINTENANCE) for check in checks):
        return MAINTENANCE
    statuses = {check.status for check in checks}
    return CRITICAL if "critical" in statuses else "WARNING" if "warning" in statuses else "PASSING"


def _has_failed(critical: _Check) -> bool:
    """Whether a critical check shows a run that failed.

    Where an agent starts, a check has no output, or the one that it had when its service was last registered.
    """
    if not critical.type:
        return True
    if critical.type in _SILENT:
        return bool(critical.output)
    return bool(critical.output) and _SUCCESS.match(critical.output) is None
