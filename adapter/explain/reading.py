"""Reads what there is to explain: the server's document of the decision, the policy, and its HPA."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapter.document.reader import DecisionCase, DocumentError, read_document
from adapter.explain import advice
from adapter.kube.api import HPAS, WATERMARK_POLICIES, GroupVersionResource, path
from adapter.kube.errors import KubeError
from adapter.kube.objects import Condition
from adapter.kube.session import Session
from adapter.load.quantity import parse_nano
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument
from adapter.runtime.times import parse_time

_GROUP = "custom.metrics.k8s.io"
_VERSION = "v1beta2"
_SECONDS = 15.0


class Served(msgspec.Struct, frozen=True, rename="camel"):
    """What the server decided. `served` is the metric's value; `error` is set where there is none."""

    current: int
    desired_replicas: int | None
    served: str | None
    error: str | None
    held_by: str | None

    def __post_init__(self) -> None:
        """Raises QuantityError for a value that is no quantity."""
        if self.served is not None:
            parse_nano(self.served)


class _Server(msgspec.Struct, frozen=True):
    version: str = ""


class _Answer(msgspec.Struct, frozen=True):
    decision: Served
    document: msgspec.Raw
    server: _Server = _Server()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    current_replicas: int | None = None
    desired_replicas: int | None = None
    last_scale_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    hpa: str = ""


class _Object(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaState:
    """An HPA as it is: its spec, and what its status says. Times are seconds."""

    hpa: Hpa
    current: int | None
    desired: int | None
    last_scale: float | None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Everything that a page shows. `at` is the API server's time (seconds).

    `document` is what `decide` reads, and `case` is that; both are empty where `trouble` says why (with what to do).
    `refusal` is the error that HPAs get instead of a count. `conditions` are those of the policy's status.
    """

    namespace: str
    name: str
    at: float
    served: Served | None = None
    server_version: str = ""
    case: DecisionCase | None = None
    document: bytes = b""
    trouble: tuple[str, ...] = ()
    refusal: str = ""
    hpa: HpaState | None = None
    hpa_trouble: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = field(default=())


async def read(session: Session, namespace: str, name: str) -> Explained:
    """Read everything about one policy. What cannot be read is named, with what to do; raises nothing of the API."""
    policy, decision = await asyncio.gather(_policy(session, namespace, name), _decision(session, namespace, name))
    hpa_name = (policy.spec.hpa if policy is not None else "") or name
    if isinstance(case := decision.get("case"), DecisionCase):
        hpa_name = case.inputs.policy.hpa
    hpa = await _hpa(session, namespace, hpa_name)
    conditions = policy.status.conditions if policy is not None and policy.status is not None else ()
    return Explained(namespace=namespace, name=name, at=session.now(), conditions=conditions, **decision, **hpa)


async def _decision(session: Session, namespace: str, name: str) -> dict[str, Any]:
    """The fields of Explained that come from the server's document."""
    where = advice.Place(namespace, name)
    target = path("apis", _GROUP, _VERSION, "namespaces", namespace, WATERMARK_POLICIES.name, name, "decision")
    version = ""
    try:
        body = await session.get(target, timeout=_SECONDS)
        answer = _ANSWER.decode(body)
        version = answer.server.version
        document = bytes(answer.document)
        return {
            "served": answer.decision,
            "server_version": version,
            "case": read_document(document.decode()),
            "document": document,
        }
    except KubeError as error:
        return {"refusal": advice.refusal(error), "trouble": advice.of_server(error, where)}
    except (msgspec.MsgspecError, DocumentError, UnicodeDecodeError) as error:
        return {"trouble": advice.of_version(str(error), version)}


async def _policy(session: Session, namespace: str, name: str) -> "_Object | None":
    """The policy's HPA and status; None where it cannot be read: the page has the rest."""
    try:
        return _OBJECT.decode(await session.get(WATERMARK_POLICIES.path(namespace, name), timeout=_SECONDS))
    except (KubeError, msgspec.MsgspecError):
        return None


async def _hpa(session: Session, namespace: str, name: str) -> Mapping[str, Any]:
    """The fields of Explained about the HPA."""
    try:
        body = await session.get(HPAS.path(namespace, name), timeout=_SECONDS)
        status = _OBJECT.decode(body).status or _Status()
        state = HpaState(
            hpa=parse_hpa(body),
            current=status.current_replicas,
            desired=status.desired_replicas,
            last_scale=parse_time(status.last_scale_time),
            conditions=status.conditions,
        )
    except KubeError as error:
        return {"hpa_trouble": advice.of_object(error, _right(HPAS), advice.Place(namespace, name))}
    except (msgspec.MsgspecError, FaultyDocument) as error:
        return {"hpa_trouble": (f"HorizontalPodAutoscaler {namespace}/{name} cannot be read: {error}",)}
    return {"hpa": state}


def _right(resource: GroupVersionResource) -> str:
    return f"get {resource.name}"


_ANSWER = Decoder(_Answer)
_OBJECT = Decoder(_Object)
