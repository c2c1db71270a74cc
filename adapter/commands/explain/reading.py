"""Reads what there is to explain: the server's document of the decision, the policy, and its HPA."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapter.commands.decide.reader import DecisionCase, DocumentError, read_document
from adapter.kube.api import HPAS, WATERMARK_POLICIES, path
from adapter.kube.errors import (
    ApiStatusError,
    CredentialsError,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Unauthorized,
)
from adapter.kube.objects import Condition
from adapter.kube.session import Session
from adapter.load.quantity import parse_nano
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument
from adapter.telemetry.metrics import package_version

_GROUP = "custom.metrics.k8s.io"
_VERSION = "v1beta2"
_SECONDS = 15.0

READER_ROLE = "effective-load-metrics-reader"
_API_SERVICE = "v1beta2.custom.metrics.k8s.io"
_FROM_AGGREGATOR = ("service unavailable", "error trying to reach service")
_NOT_SERVED = ("the server could not find the requested resource", "404 page not found")
"""Of the API server: no group of this name, or no longer."""
_OTHER_ADAPTER = "the server could not find the metric decision for"
"""Of every adapter that is made with custom-metrics-apiserver, such as prometheus-adapter."""
_OLD_SERVER = "has no metric decision"
_NO_POLICY = "there is no WatermarkPolicy"
_OF_HPAS = frozenset({404, 409, 422, 500, 503})
"""The codes that a request for `desired_replicas` gets for want of a count."""
_OF_DOCUMENT = ("other decisions took", "the inputs of WatermarkPolicy")
"""The server has no document to hand out, whatever HPAs get."""
_HPAS_APART = "what HPAs are served does not depend on it; the HPA's condition ScalingActive has that"


def refusal(error: KubeError) -> str:
    """The error that HPAs get as well, where this is one of the adapter; else empty."""
    if not isinstance(error, ApiStatusError) or error.code not in _OF_HPAS:
        return ""
    others = (*_FROM_AGGREGATOR, *_NOT_SERVED, *_OF_DOCUMENT, _NO_POLICY, _OTHER_ADAPTER)
    if error.message.startswith(others) or _OLD_SERVER in error.message:
        return ""
    return f"{error.code} {error.reason}: {error.message}"


def of_server(error: KubeError, namespace: str) -> tuple[str, ...]:
    """Why the server's decision on a policy of a namespace cannot be read."""
    if isinstance(error, Forbidden):
        right = "get watermarkpolicies.effective-load.io/decision of custom.metrics.k8s.io"
        return (
            f"you may not read the decision: {error.message}",
            f"missing: the right to {right} in namespace {namespace}",
            f"ClusterRole {READER_ROLE} has it, and with it the role view; an administrator binds it by",
            f"  kubectl create rolebinding {READER_ROLE} -n {namespace} --clusterrole={READER_ROLE} --user=YOU",
        )
    if isinstance(error, ApiStatusError) and (lines := _of_answer(error)):
        return lines
    if said := refusal(error):
        return (f"the server has no decision, and HPAs get this error: {said}",)
    if isinstance(error, ApiStatusError) and not isinstance(error, Unauthorized):
        return (f"the server hands out no document: {error.code} {error.reason}: {error.message}", _HPAS_APART)
    return of_connection(error)


def _of_answer(error: ApiStatusError) -> tuple[str, ...]:
    """Why the API server or the server has no decision; empty for an error that HPAs get as well."""
    if _OLD_SERVER in error.message:
        return (
            "the server is older than this command and serves no decisions",
            "upgrade the server, or use `effective-load decide` on a document made by hand (docs/decide.md)",
        )
    if isinstance(error, NotFound) and error.message.startswith(_NO_POLICY):
        return (error.message,)
    if isinstance(error, NotFound) and error.message.startswith(_NOT_SERVED):
        return (
            "custom.metrics.k8s.io/v1beta2 is not served: effective-load is not installed here",
            f"  kubectl get apiservice {_API_SERVICE}",
        )
    if isinstance(error, NotFound) and error.message.startswith(_OTHER_ADAPTER):
        return (
            f"another adapter serves custom.metrics.k8s.io/v1beta2: {error.message}",
            f"  kubectl get apiservice {_API_SERVICE} -o jsonpath='{{.spec.service}}'",
        )
    if isinstance(error, ServerError) and error.message.startswith(_FROM_AGGREGATOR):
        return (
            f"the API server does not reach effective-load: {error.message}",
            f"  kubectl get apiservice {_API_SERVICE} -o jsonpath='{{.status.conditions}}'",
            "  kubectl get pods,endpointslices -n effective-load",
        )
    return ()


def of_connection(error: KubeError) -> tuple[str, ...]:
    """Why the API server cannot be asked at all."""
    if isinstance(error, CredentialsError):
        return (f"no cluster can be asked: {error}", "name a kubeconfig by --kubeconfig or $KUBECONFIG")
    if isinstance(error, Unauthorized):
        return (f"the API server does not accept your credentials: {error.message}", "log in again, as for kubectl")
    return (f"the API server cannot be asked: {error}", "  kubectl get --raw /version")


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


class HpaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the status of an HPA says; of any other object its conditions."""

    current_replicas: int | None = None
    desired_replicas: int | None = None
    last_scale_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    hpa: str = ""


class _Object(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: HpaStatus | None = None


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
    hpa: Hpa | None = None
    hpa_status: HpaStatus = field(default_factory=HpaStatus)
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
        return {"refusal": refusal(error), "trouble": of_server(error, namespace)}
    except (msgspec.MsgspecError, DocumentError, UnicodeDecodeError) as error:
        is_ours = version == package_version()
        remedy = (
            _HPAS_APART
            if is_ours
            else "the server is of another version: use that version of the command, as in its image"
        )
        return {"trouble": (f"the server's document cannot be read: {error}", remedy)}


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
        return {"hpa": parse_hpa(body), "hpa_status": _OBJECT.decode(body).status or HpaStatus()}
    except Forbidden as error:
        missing = f"missing: the right to get {HPAS.name} in namespace {namespace}, which the role view has"
        return {"hpa_trouble": (f"you may not read it: {error.message}", missing)}
    except NotFound:
        return {"hpa_trouble": (f"there is none of the name {name} in namespace {namespace}",)}
    except KubeError as error:
        return {"hpa_trouble": (f"it cannot be read: {error}",)}
    except (msgspec.MsgspecError, FaultyDocument) as error:
        return {"hpa_trouble": (f"HorizontalPodAutoscaler {namespace}/{name} cannot be read: {error}",)}


_ANSWER = Decoder(_Answer)
_OBJECT = Decoder(_Object)
