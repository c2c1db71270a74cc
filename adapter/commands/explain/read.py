"""Reads what there is to explain: the server's decision, the policy's conditions, and its HPA."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from adapter.commands.decisions import Answer, ask, read_object, refusal_of
from adapter.kube.api import HPAS, WATERMARK_POLICIES
from adapter.kube.errors import ApiStatusError, Forbidden, NotFound
from adapter.kube.objects import AnyObject, Condition
from adapter.kube.session import Session
from adapter.policy.hpa import DEFAULT_TOLERANCE, Hpa, parse_hpa
from adapter.runtime.faults import FaultyDocument

_READER_ROLE = "effective-load-metrics-reader"
_CHECK = "`effective-load check` finds the cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Everything that is shown. `at` is the API server's time (seconds).

    `trouble` says why there is no `answer`, or no `hpa`, and what to do; `refusal` is the error that HPAs get instead
    of a count. `conditions` are those of the policy's status.
    """

    namespace: str
    name: str
    at: float
    answer: Answer | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    hpa: Hpa | None = None
    hpa_status: Mapping[str, Any] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()
    refusal: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def error(self) -> str:
        """The error that HPAs get instead of a count; empty without one."""
        return self.refusal or (str(self.answer.decision["error"] or "") if self.answer is not None else "")

    @property
    def tolerance(self) -> Fraction:
        """That of an HPA that sets none: the server's setting where it asks for our count, else the controller's."""
        if self.hpa is None or not self.hpa.asks_for(self.name) or self.answer is None:
            return DEFAULT_TOLERANCE
        known = parse_hpa(self.inputs["hpa"]).bounds.tolerance
        return max(known) if known is not None else Fraction(0)


async def read(session: Session, namespace: str, name: str) -> Explained:
    """Read everything about one policy. What cannot be read is named, with what to do; raises nothing of the API."""
    answer, policy = await asyncio.gather(
        ask(session, namespace, name), read_object(session, WATERMARK_POLICIES.path(namespace, name), AnyObject)
    )
    trouble: list[str] = []
    refusal, hpa_name = "", name
    inputs, conditions = dict[str, Any](), tuple[Condition, ...]()
    if isinstance(answer, Answer):
        inputs = msgspec.json.decode(answer.document)
        hpa_name = inputs["hpa"]["metadata"]["name"]
    else:
        refusal = refusal_of(answer)
        trouble += _trouble(answer, namespace)
    if isinstance(policy, AnyObject):
        hpa_name = (policy.spec or {}).get("hpa") or name
        conditions = msgspec.convert((policy.status or {}).get("conditions") or (), tuple[Condition, ...], strict=False)
    hpa, status = None, dict[str, Any]()
    found = await read_object(session, HPAS.path(namespace, hpa_name), dict)
    try:
        if isinstance(found, dict):
            hpa, status = parse_hpa(found), found.get("status") or {}
        elif isinstance(found, NotFound):
            trouble.append(f"there is no HPA {hpa_name} in namespace {namespace}")
        elif isinstance(found, Forbidden):
            trouble.append(f"you may not read HPA {hpa_name}: the role view in namespace {namespace} has that right")
        else:
            trouble.append(f"HPA {hpa_name} cannot be read: {found}")
    except FaultyDocument as error:
        trouble.append(f"HPA {hpa_name} cannot be read: {error}")
    return Explained(
        namespace=namespace, name=name, at=session.now(), answer=answer if isinstance(answer, Answer) else None,
        inputs=inputs, hpa=hpa, hpa_status=status, trouble=tuple(trouble), refusal=refusal, conditions=conditions,
    )  # fmt: skip


def _trouble(error: Exception, namespace: str) -> list[str]:
    """Why the server's decision cannot be read, and what to do."""
    if isinstance(error, Forbidden):
        right = "get watermarkpolicies.effective-load.io/decision of custom.metrics.k8s.io"
        return [
            f"you may not read the decision: {error.message}",
            f"missing: the right to {right} in namespace {namespace}; an administrator grants it:",
            f"  kubectl create rolebinding {_READER_ROLE} -n {namespace} --clusterrole={_READER_ROLE} --user=YOU",
        ]
    if refusal := refusal_of(error):
        return [f"the server has no decision, and HPAs get this error: {refusal}"]
    message = error.message if isinstance(error, ApiStatusError) else str(error)
    return [f"no decision can be read: {message}", _CHECK]
