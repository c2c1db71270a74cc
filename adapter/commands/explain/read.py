"""Reads what there is to explain: the server's decision, the policy with its status, its HPA, and what is wrong."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from adapter.commands.check.links import check_links
from adapter.commands.check.report import Finding, Level
from adapter.commands.check.world import World, fill_from_cluster
from adapter.commands.cluster import Answer, ask, reason, refusal_of
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.session import Session
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import DEFAULT_TOLERANCE, Hpa
from adapter.telemetry.metrics import package_version

_READER_ROLE = "effective-load-metrics-reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Everything that is shown. `at` is the API server's time (seconds).

    `trouble` says what cannot be read, and what to do; `findings` are those of `check` on the policy and its HPA;
    `refusal` is the error that HPAs get instead of a count. `conditions` are those of the policy's status.
    """

    namespace: str
    name: str
    at: float
    answer: Answer | None = None
    hpa: Hpa | None = None
    hpa_status: Mapping[str, Any] = field(default_factory=dict)
    trouble: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    refusal: str = ""
    conditions: Sequence[Mapping[str, Any]] = ()

    @property
    def error(self) -> str:
        """The error that HPAs get instead of a count; empty without one."""
        return self.refusal or (self.answer.decision.error or "" if self.answer is not None else "")

    @property
    def tolerance(self) -> Fraction:
        """That of an HPA that sets none: the server's setting where it asks for our count, else the controller's."""
        case = self.answer.case if self.answer is not None else None
        if self.hpa is None or not self.hpa.asks_for(self.name) or case is None:
            return DEFAULT_TOLERANCE
        return max(case.inputs.bounds.tolerance or (Fraction(0),))


async def read(session: Session, namespace: str, name: str) -> Explained:
    """Read everything about one policy. What cannot be read is named, with what to do; raises nothing of the API."""
    world = World(is_live=True, only=f"{namespace}/{name}")
    asked, _ = await asyncio.gather(ask(session, namespace, name), fill_from_cluster(world, session, [namespace]))
    answer = None if isinstance(asked, KubeError) else asked
    trouble = _trouble(asked, namespace) if isinstance(asked, KubeError) else []
    trouble += [f"not read: {one.text}" for one in world.findings if one.level is Level.SKIPPED]
    if answer is not None and answer.case is None:
        versions = f"the server is of version {answer.version}, and this program of {package_version()}"
        trouble.append(f"the inputs of the decision cannot be read: {versions}")
    policy = world.policies.get((namespace, name))
    hpa_name = policy.value.hpa if policy is not None and policy.value is not None else name
    hpa = world.hpas.get((namespace, hpa_name))
    return Explained(
        namespace=namespace, name=name, at=session.now(), answer=answer, trouble=trouble,
        hpa=hpa.value if hpa is not None else None,
        hpa_status=mapping_at(hpa.at.data, "status") if hpa is not None else {},
        findings=[one for one in (*world.findings, *check_links(world)) if one.level in {Level.ERROR, Level.WARNING}],
        refusal=refusal_of(asked) if isinstance(asked, KubeError) else "",
        conditions=mapping_at(policy.at.data, "status").get("conditions") or () if policy is not None else (),
    )  # fmt: skip


def _trouble(error: KubeError, namespace: str) -> list[str]:
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
    return [f"no decision can be read: {reason(error)}", "`effective-load check` finds the cause"]
