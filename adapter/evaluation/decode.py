"""Objects as the watches bring them: policies valid or with the sentence that says what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from adapter.kube.objects import some_labels
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.objects import PolicyMetadata, PolicyObject
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A WatermarkPolicy object: `policy` where it is valid, else `fault`. `memory` is its status's, still JSON."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Policy | None = None
    fault: str = ""
    memory: bytes = b""
    created: str = ""
    """Its creationTimestamp, as the API server writes it: these sort as they stand."""


class _Status(msgspec.Struct, frozen=True):
    memory: msgspec.Raw = msgspec.Raw()


class _Watched(msgspec.Struct, frozen=True):
    metadata: PolicyMetadata = PolicyMetadata()
    spec: dict[str, Any] | None = None
    status: _Status | None = None


_DECODER = Decoder(_Watched)


def decode_policy(body: bytes | msgspec.Raw) -> PolicyEntry:
    """Read a WatermarkPolicy; one that is not valid keeps its name and says why. Raises msgspec.MsgspecError."""
    wire = _DECODER.decode(body)
    metadata, policy, fault = wire.metadata, None, ""
    memory = bytes(wire.status.memory) if wire.status is not None else b""
    try:
        policy = parse_policy(PolicyObject(metadata=metadata, spec=wire.spec))
    except FaultyDocument as error:
        fault = str(error)
    return PolicyEntry(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=some_labels(metadata.labels),
        policy=policy,
        fault=fault,
        memory=memory,
        created=metadata.created or "",
    )


def decode_hpa(body: bytes | msgspec.Raw, tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read an HPA; `tolerance` is that of those that set none themselves.

    Raises msgspec.MsgspecError for one that cannot be used, with the sentence that says why.
    """
    try:
        return parse_hpa(body, tolerance)
    except FaultyDocument as error:
        raise msgspec.ValidationError(str(error)) from error
