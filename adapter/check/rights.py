"""Whether this account may list and watch what every policy needs: without one of these rights nothing is decided."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from adapter.check.report import ReportSection
from adapter.kube.errors import KubeError, MalformedAnswer
from adapter.kube.session import Session
from adapter.runtime.decoding import decode

NEEDED = (
    ("", "pods"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("discovery.k8s.io", "endpointslices"),
    ("effective-load.io", "watermarkpolicies"),
)
"""Group and plural of what every policy needs."""
VERBS = ("list", "watch")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Lack(NamedTuple):
    verb: str
    plural: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.verb} {self.plural}{f' in namespace {self.namespace}' if self.namespace else ''}"


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def rights_section(session: Session, namespaces: Iterable[str]) -> ReportSection:
    """Whether the account that asks has these rights, in these namespaces or in all of them where none is named."""
    section = ReportSection("rights")
    try:
        lacks = [
            _Lack(verb, plural, namespace)
            for namespace in tuple(namespaces) or ("",)
            for group, plural in NEEDED
            for verb in VERBS
            if not await _may(session, verb, group, plural, namespace)
        ]
    except KubeError as error:
        section.note(f"what this account may do cannot be found out: {error}")
        return section
    for lack in lacks:
        section.wrong(f"this account may not {lack}: bind ClusterRole effective-load-server to it")
    if not lacks:
        section.ok(f"this account may list and watch {', '.join(plural for _, plural in NEEDED)}")
    return section


async def _may(session: Session, verb: str, group: str, plural: str, namespace: str) -> bool:
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await session.request("POST", _REVIEWS, body=msgspec.json.encode(review))
    try:
        return decode(answer.body, _Review).status.allowed
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"SelfSubjectAccessReview: {error}") from error
