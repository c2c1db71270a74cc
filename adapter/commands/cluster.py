"""What commands read of a cluster: objects as they are, and the server's decision on a policy with its inputs."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.commands.decide.reader import DecisionCase, DocumentError, read_document
from adapter.kube.api import WATERMARK_POLICIES, GroupVersionResource, path
from adapter.kube.errors import ApiStatusError, KubeError, MalformedAnswer, decode_answer
from adapter.kube.objects import ObjectList
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.telemetry.metrics import package_version

T = TypeVar("T")
_SECONDS = 15.0
_OF_ADAPTER = frozenset({409, 422, 500, 503})
"""The codes that a request for `desired_replicas` gets for want of a count."""
_OF_OTHERS = ("service unavailable", "error trying to reach service", "the inputs of")
"""Errors of these codes that are not answers for an HPA: the aggregator's, and one about the document alone."""


class Metric(msgspec.Struct, frozen=True, rename="camel"):
    """A metric of a decision; values are quantities."""

    name: str
    verdict: str
    error: str | None = None
    low: str | None = None
    high: str | None = None
    target: str | None = None
    raw: str | None = None
    usage: str | None = None
    stale_at: str | None = None


class Pod(msgspec.Struct, frozen=True):
    """A pod of a decision: its usage by metric, or why it has none."""

    name: str
    state: str = ""
    reason: str = ""
    evidence: str | None = None
    usage: dict[str, str] = {}
    missing: dict[str, str] = {}


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What commands read of a decision in the form of `decide -o json`."""

    current: int
    served: str | None = None
    desired_replicas: int | None = None
    error: str | None = None
    lower_bound: int | None = None
    upper_bound: int | None = None
    pods: list[Pod] = []
    metrics: list[Metric] = []
    conditions: dict[str, str] = {}
    explanation: list[str] = []


class _Answer(msgspec.Struct):
    decision: Decision
    document: msgspec.Raw
    server: dict[str, str] = {}


class Answer(NamedTuple):
    """The server's decision; its inputs as a document, and read (None: of another version)."""

    decision: Decision
    document: str
    case: DecisionCase | None
    version: str


def read_answer(body: bytes) -> Answer:
    """What the server answers. Raises MsgspecError for another form."""
    wire, case = Decoder(_Answer).decode(body), None
    document = bytes(wire.document).decode()
    with contextlib.suppress(DocumentError):
        case = read_document(document)
    version = wire.server.get("version", "unknown")
    return Answer(decision=wire.decision, document=document, case=case, version=version)


async def ask(session: Session, namespace: str, name: str) -> Answer | KubeError:
    """The server's decision on a policy, or the error why it cannot be read."""
    kind, group = WATERMARK_POLICIES.name, "custom.metrics.k8s.io"
    target = path("apis", group, "v1beta2", "namespaces", namespace, kind, name, "decision")
    return await read_object(session, target, read_answer)


async def read_object(session: Session, target: str, read: Callable[[bytes], T]) -> T | KubeError:
    """An object, or the error why it cannot be read."""
    try:
        return read(await session.get(target, timeout=_SECONDS))
    except KubeError as error:
        return error
    except msgspec.MsgspecError:
        return MalformedAnswer(f"the answer is not in a form that version {package_version()} reads")


def refusal_of(error: KubeError) -> str:
    """The error that HPAs get instead of a count, of a request for the decision; empty for an error of another kind."""
    if not isinstance(error, ApiStatusError) or error.code not in _OF_ADAPTER or error.message.startswith(_OF_OTHERS):
        return ""
    return f"{error.code} {error.reason}: {error.message}"


def reason(error: Exception) -> str:
    """The message of the API server, else the whole error."""
    return error.message if isinstance(error, ApiStatusError) else str(error)


async def list_objects(
    session: Session, resource: GroupVersionResource, namespaces: Iterable[str] = (), **params: str
) -> list[Mapping[str, Any]]:
    """The objects of a kind in these namespaces (empty: in all). Raises KubeError."""
    found = list[Mapping[str, Any]]()
    for namespace in tuple(namespaces) or ("",):
        path = resource.collection(namespace)
        body = await session.get(path, params=params or None, timeout=30)
        found += map(msgspec.json.decode, decode_answer(Decoder(ObjectList).decode, body, path).items or ())
    return found
