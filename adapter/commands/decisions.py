"""The server's decision on a policy, as `explain` and `check` ask for it."""

from typing import Any

import msgspec

from adapter.kube.api import WATERMARK_POLICIES, path
from adapter.kube.errors import ApiStatusError, KubeError
from adapter.kube.session import Session
from adapter.runtime.decoding import decode

_API = ("apis", "custom.metrics.k8s.io", "v1beta2")
_SECONDS = 15.0
_OF_ADAPTER = frozenset({409, 422, 500, 503})
"""The codes that a request for `desired_replicas` gets for want of a count."""
_OF_OTHERS = ("service unavailable", "error trying to reach service", "the inputs of")
"""Errors of these codes that are not answers for an HPA: the aggregator's, and one about the document alone."""


class Answer(msgspec.Struct, frozen=True):
    """The server's decision as `decide -o json` has it, and the document with its inputs."""

    decision: dict[str, Any]
    document: msgspec.Raw
    server: dict[str, str] = msgspec.field(default_factory=dict)


async def ask(session: Session, namespace: str, name: str) -> Answer | Exception:
    """The server's decision on a policy, or the error why it cannot be read."""
    target = path(*_API, "namespaces", namespace, WATERMARK_POLICIES.name, name, "decision")
    answer: Answer | Exception = await read_object(session, target, Answer)
    return answer


async def read_object(session: Session, target: str, kind: Any) -> Any:
    """An object, or the error why it cannot be read."""
    try:
        return decode(await session.get(target, timeout=_SECONDS), kind)
    except (KubeError, msgspec.MsgspecError) as error:
        return error


def refusal_of(error: Exception) -> str:
    """The error that HPAs get instead of a count, of a request for the decision; empty for an error of another kind."""
    if not isinstance(error, ApiStatusError) or error.code not in _OF_ADAPTER or error.message.startswith(_OF_OTHERS):
        return ""
    return f"{error.code} {error.reason}: {error.message}"
