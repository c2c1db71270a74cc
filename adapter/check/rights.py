"""Whether this account may list and watch what every policy needs: without one of these rights nothing is decided."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from adapter.check.report import ReportSection
from adapter.kube.api import (
    ENDPOINT_SLICES,
    HPAS,
    PODS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    WATERMARK_POLICIES,
    GroupVersionResource,
)
from adapter.kube.errors import KubeError, MalformedAnswer
from adapter.kube.session import Session
from adapter.runtime.decoding import decode

NEEDED = (PODS, HPAS, ENDPOINT_SLICES, WATERMARK_POLICIES)
"""The resources that every policy needs."""
VERBS = ("list", "watch")


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
            _Lack(verb, resource.plural, namespace)
            for namespace in tuple(namespaces) or ("",)
            for resource in NEEDED
            for verb in VERBS
            if not await _may(session, verb, resource, namespace)
        ]
    except KubeError as error:
        section.note(f"what this account may do cannot be found out: {error}")
        return section
    for lack in lacks:
        section.wrong(f"this account may not {lack}: bind ClusterRole effective-load-server to it")
    if not lacks:
        section.ok(f"this account may list and watch {', '.join(one.plural for one in NEEDED)}")
    return section


async def _may(session: Session, verb: str, resource: GroupVersionResource, namespace: str) -> bool:
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = {
        "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await session.request("POST", SELF_SUBJECT_ACCESS_REVIEWS.collection(), body=msgspec.json.encode(review))
    try:
        return decode(answer.body, _Review).status.allowed
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"SelfSubjectAccessReview: {error}") from error
