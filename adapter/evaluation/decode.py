"""Decodes WatermarkPolicies and HPAs as the watches deliver them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from adapter.kube.objects import bounded_labels
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.objects import PolicyMetadata, PolicyObject
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPolicy:
    """A WatermarkPolicy: `policy` if it is valid, else `fault` with the reason. `memory` is JSON from its status.

    `spec` is the spec of a valid policy as JSON, as it was written.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Policy | None = None
    fault: str = ""
    memory: bytes = b""
    spec: bytes = b""
    created: str = ""
    """The creationTimestamp as the API server writes it; as text it sorts by time."""


class _Status(msgspec.Struct, frozen=True):
    memory: msgspec.Raw = msgspec.Raw()


class _Watched(msgspec.Struct, frozen=True):
    metadata: PolicyMetadata = PolicyMetadata()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: _Status | None = None


_DECODER = Decoder(_Watched)
_SPEC: Decoder[dict[str, Any] | None] = Decoder(dict[str, Any] | None)


def decode_policy(body: bytes | msgspec.Raw) -> DecodedPolicy:
    """Decode a WatermarkPolicy; an invalid one keeps its name and gets a fault. Raises msgspec.MsgspecError."""
    wire = _DECODER.decode(body)
    metadata, policy, fault = wire.metadata, None, ""
    memory = bytes(wire.status.memory) if wire.status is not None else b""
    try:
        policy = parse_policy(PolicyObject(metadata=metadata, spec=_SPEC.decode(wire.spec)))
    except FaultyDocument as error:
        fault = str(error)
    return DecodedPolicy(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=bounded_labels(metadata.labels),
        policy=policy,
        fault=fault,
        memory=memory,
        spec=b"" if policy is None else bytes(wire.spec),
        created=metadata.created or "",
    )


def decode_hpa(body: bytes | msgspec.Raw, tolerance: Fraction = Fraction(0)) -> Hpa:
    """Decode an HPA; `tolerance` applies if the HPA sets none. Raises msgspec.MsgspecError with the reason."""
    try:
        return parse_hpa(body, tolerance)
    except FaultyDocument as error:
        raise msgspec.ValidationError(str(error)) from error
