"""The rights that the adapter's two accounts need, from the settings: one table, and its review by the API server.

A test compares the table with the roles of `manifests/`: neither asks for more than the other grants.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from adapter.commands.check.report import ReportSection, reason
from adapter.kube.api import SELF_SUBJECT_ACCESS_REVIEWS, SELF_SUBJECT_REVIEWS, SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import ApiStatusError, Forbidden, KubeError, MalformedAnswer
from adapter.kube.objects import AccessReview, AnyObject
from adapter.kube.session import Session
from adapter.policy.watermark_policy import GROUP
from adapter.runtime.decoding import decode
from adapter.settings import Settings

_AT_ONCE = 8
_TARGETS = (
    ("apps", "deployments"), ("apps", "statefulsets"), ("apps", "replicasets"), ("", "replicationcontrollers"),
)  # fmt: skip
_BASE = "manifests/base/rbac.yaml"
_COMPONENTS = "manifests/components"
SERVER_ROLE = "effective-load-server"


class Account(StrEnum):
    """The service accounts of an installation, by their part."""

    SERVER = "server"
    COMPANION = "companion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on a resource (with its subresource behind a slash), or on a path that is no resource.

    `namespaced`: needed in every namespace that is watched; else in `namespace`, which is empty for resources of the
    whole cluster. `name`: of the only object. `role` grants it, in `file`. `only_for`: what lacks without it, where
    all else works; empty: it is needed.
    """

    verbs: tuple[str, ...]
    group: str = ""
    resource: str = ""
    path: str = ""
    namespaced: bool = False
    namespace: str = ""
    name: str = ""
    role: str
    file: str = _BASE
    only_for: str = ""

    def attributes(self, verb: str, namespace: str) -> dict[str, Any]:
        """The spec of an access review for one verb."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path.replace("*", "check"), "verb": verb}}
        resource, _, subresource = self.resource.partition("/")
        attributes = {"verb": verb, "group": self.group, "resource": resource, "namespace": namespace}
        if subresource:
            attributes["subresource"] = subresource
        if self.name:
            attributes["name"] = self.name
        return {"resourceAttributes": attributes}

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{', '.join(self.verbs)} {self.path or resource}{f' {self.name}' if self.name else ''}"


def needed_rights(account: Account, settings: Settings) -> Iterator[Right]:
    """Every right that an account needs with these settings: what both processes watch and poll, then its own."""
    for group, resource in (
        ("", "pods"),
        ("discovery.k8s.io", "endpointslices"),
        ("autoscaling", "horizontalpodautoscalers"),
        (GROUP, "watermarkpolicies"),
        *_TARGETS,
    ):
        yield Right(verbs=("list", "watch"), group=group, resource=resource, namespaced=True, role=SERVER_ROLE)
    yield Right(verbs=("list",), group="metrics.k8s.io", resource="pods", namespaced=True, role=SERVER_ROLE)
    crds = "customresourcedefinitions"
    group, targets = "apiextensions.k8s.io", "scale targets that are custom resources"
    yield Right(verbs=("get",), group=group, resource=crds, role=SERVER_ROLE, only_for=targets)
    yield from _server(settings) if account is Account.SERVER else _companion(settings)


def _server(settings: Settings) -> Iterator[Right]:
    tls, server = settings.server.tls, settings.server
    for group, plural in _TARGETS:
        yield Right(
            verbs=("get",), group=group, resource=f"{plural}/scale", namespaced=True, role="effective-load-scales"
        )
    role = "effective-load-authorization"
    yield Right(verbs=("create",), group="authorization.k8s.io", resource="subjectaccessreviews", role=role)
    yield Right(
        verbs=("get",),
        resource="configmaps",
        namespace="kube-system",
        name="extension-apiserver-authentication",
        role="extension-apiserver-authentication-reader",
    )
    if tls.mode == "SelfSigned":
        role = "effective-load-certificates"
        yield Right(verbs=("get", "patch"), resource="secrets", namespace=tls.namespace, name=tls.secret, role=role)
    if tls.inject_ca_bundle:
        role, external = "effective-load-apiservices", f"{_COMPONENTS}/external-metrics/rbac.yaml"
        served = [(f"{version}.custom.metrics.k8s.io", role, _BASE) for version in ("v1beta2", "v1beta1")]
        if server.external_metrics:
            served.append(("v1beta1.external.metrics.k8s.io", "effective-load-external-apiservice", external))
        verbs, group = ("get", "patch"), "apiregistration.k8s.io"
        for name, role, file in served:
            yield Right(verbs=verbs, group=group, resource="apiservices", name=name, role=role, file=file)


def _companion(settings: Settings) -> Iterator[Right]:
    companion = settings.companion
    features = companion.features

    yield Right(
        verbs=("get", "update"),
        group="coordination.k8s.io",
        resource="leases",
        namespace=companion.namespace,
        name=companion.lease,
        role="effective-load-companion-lease",
        file=f"{_COMPONENTS}/companion/rbac.yaml",
    )
    if features.status:
        yield _component("effective-load-companion-status", ("patch",), GROUP, "watermarkpolicies/status")
    if features.events:
        yield _component("effective-load-companion-events", ("create",), "events.k8s.io", "events")
    if features.fast_scale_up:
        for group, plural in _TARGETS:
            yield _component("effective-load-companion-fast-scale-up", ("get", "update"), group, f"{plural}/scale")
    if features.deletion_cost:
        yield _component("effective-load-companion-deletion-cost", ("patch",), "", "pods")
    if features.hpa_configuration:
        yield _component(
            "effective-load-companion-hpa-configuration", ("patch",), "autoscaling", "horizontalpodautoscalers"
        )


def _component(role: str, verbs: tuple[str, ...], group: str, resource: str, *, namespaced: bool = True) -> Right:
    """A right of a feature: its component has the same name as its role."""
    file = f"{_COMPONENTS}/{role.removeprefix('effective-load-')}/rbac.yaml"
    return Right(verbs=verbs, group=group, resource=resource, namespaced=namespaced, role=role, file=file)


# --- reviews ---


async def own_name(session: Session) -> str:
    """The user's name of the session's account; empty where the API server does not tell."""
    body = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": "SelfSubjectReview"}
    try:
        answer = await session.request("POST", SELF_SUBJECT_REVIEWS.collection(), body=msgspec.json.encode(body))
        user = (decode(answer.body, AnyObject).status or {}).get("userInfo") or {}
        return str(user.get("username", ""))
    except (KubeError, msgspec.MsgspecError, AttributeError):
        return ""


class Reviewer:
    """Asks the API server what a service account may do, in the first of three ways that this account may use.

    As itself where it is that account, else by SubjectAccessReview, else by impersonation.
    """

    def __init__(self, session: Session, own_namespace: str, namespace: str, account: str) -> None:
        self._session = session
        self._user = f"system:serviceaccount:{namespace}:{account}"
        self._groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        self._is_own = own_namespace == self._user
        self._impersonates = False
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def choose(self) -> None:
        """Try which way is open. Raises KubeError, the first refusal, where none is."""
        probe = Right(verbs=("list",), resource="pods", role="")
        try:
            await self.may(probe, "list", "")
        except ApiStatusError as refusal:
            if self._is_own or not isinstance(refusal, Forbidden):
                raise
            self._impersonates = True
            try:
                await self.may(probe, "list", "")
            except ApiStatusError:
                raise refusal from None

    async def may(self, right: Right, verb: str, namespace: str) -> bool:
        """Whether the account has one right. Raises KubeError."""
        spec = right.attributes(verb, namespace)
        resource, kind = SELF_SUBJECT_ACCESS_REVIEWS, "SelfSubjectAccessReview"
        if not self._is_own and not self._impersonates:
            resource, kind = SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview"
            spec |= {"user": self._user, "groups": self._groups}
        review = msgspec.json.encode({"apiVersion": resource.api_version, "kind": kind, "spec": spec})
        async with self._slots:
            answer = await self._session.request(
                "POST", resource.collection(), body=review, impersonate=self._user if self._impersonates else ""
            )
        try:
            return decode(answer.body, AccessReview).status.allowed
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"{kind}: {error}") from error

    async def missing(self, right: Right, namespaces: Sequence[str]) -> str:
        """What is missing of a right, as a phrase; empty where nothing is. Raises KubeError."""
        verbs = [verb for verb in right.verbs if not await self.may(right, verb, right.namespace)]
        where: set[str] = set()
        if right.namespaced and namespaces:
            lacks = [
                (verb, namespace)
                for namespace in namespaces
                for verb in verbs
                if not await self.may(right, verb, namespace)
            ]
            verbs = [verb for verb in verbs if verb in {lack for lack, _ in lacks}]
            where = {place for _, place in lacks}
        if not verbs:
            return ""
        lack = replace(right, verbs=tuple(verbs))
        return f"{lack} in {', '.join(sorted(where))}" if where else str(lack)


async def rights_section(
    session: Session, settings: Settings, account: Account, namespace: str, name: str, own_namespace: str
) -> ReportSection:
    """Whether a service account has the rights that it needs: a finding for each role that does not grant them."""
    section = ReportSection(f"rights of service account {namespace}/{name}")
    reviewer = Reviewer(session, own_namespace, namespace, name)
    rights = list(needed_rights(account, settings))
    try:
        await reviewer.choose()
        lacks = await asyncio.gather(*(reviewer.missing(right, settings.kubernetes.namespaces) for right in rights))
    except KubeError as error:
        return section.skipped(
            f"its rights, for {reason(error)}; that takes the right to create subjectaccessreviews, or to "
            f"impersonate it; or run the check in a pod of the {account.value}"
        )
    if all(lacks):
        return section.wrong(
            "it has none of its rights: apply the manifests again (the service account, its roles and their bindings)"
        )
    missing = [(right, lack) for right, lack in zip(rights, lacks, strict=True) if lack]
    by_role: dict[tuple[str, str], list[str]] = defaultdict(list)
    for right, lack in missing:
        if not right.only_for:
            by_role[right.role, right.file].append(lack)
    for (role, file), phrases in by_role.items():
        section.wrong(f"it may not {'; '.join(phrases)}: apply {role} and its binding ({file})")
    for right, lack in missing:
        if right.only_for and (right.role, right.file) not in by_role:
            section.note(f"it may not {lack} ({right.role}, {right.file}), which is for {right.only_for}")
    if not section.findings:
        section.ok(f"it has all {len(rights)} rights that the settings need")
    return section
