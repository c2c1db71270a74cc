"""The rights of the adapter's accounts: the API server reviews each rule of the roles that come with this program."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from adapter.commands.check.report import Section, reason
from adapter.commands.files import ManifestObject, objects_of
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import KubeError, MalformedAnswer
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.decoding import decode
from adapter.settings import Settings

_AT_ONCE = 8
_PACKAGED = Path(__file__).parents[2] / "manifests"
_MANIFESTS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "manifests"
"""In a wheel the manifests are part of the package; in a clone they are beside it."""
_OPTIONAL = "customresourcedefinitions"
"""Only scale targets that are custom resources need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource (with its subresource behind a slash) that a role of a file grants.

    `namespace` is empty for rights in the whole cluster.
    """

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""
    role: str = ""
    file: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}"

    def attributes(self, namespace: str) -> dict[str, str]:
        """The resourceAttributes of an access review."""
        resource, _, subresource = self.resource.partition("/")
        given = {"verb": self.verb, "group": self.group, "resource": resource, "namespace": namespace}
        return given | {key: text for key, text in (("subresource", subresource), ("name", self.name)) if text}


def needed_rights(component: str, settings: Settings, namespace: str) -> Iterator[Right]:
    """The rights that `server` or `companion` needs with these settings, from the roles of the manifests.

    `namespace` is that of the installation.
    """
    objects = {
        file: objects_of((_MANIFESTS / file).read_text(), f"manifests/{file}")[0]
        for file in _files(settings, component)
    }
    roles = {(one.kind, one.name): one for found in objects.values() for one in found}
    skipped = set[str]()
    if settings.server.tls.mode != "SelfSigned":
        skipped.add("effective-load-certificates")
    if not settings.server.tls.inject_ca_bundle:
        skipped |= {"effective-load-apiservices", "effective-load-external-apiservice"}
    account = "effective-load" if component == "server" else "effective-load-companion"
    names = {"secrets": settings.server.tls.secret, "leases": settings.companion.lease}
    for binding in (one for found in objects.values() for one in found if one.kind.endswith("Binding")):
        role = roles.get((binding.data["roleRef"]["kind"], binding.data["roleRef"]["name"]))
        subjects = {subject["name"] for subject in binding.data["subjects"]}
        if role is None or role.name in skipped or account not in subjects:
            continue
        yield from _of_role(role, namespace if binding.kind == "RoleBinding" else "", names)


def _files(settings: Settings, component: str) -> Iterator[str]:
    """The manifests with the roles that the settings need; roles of the base are the server's and the companion's."""
    yield "base/rbac.yaml"
    features = settings.companion.features
    if component == "server":
        wanted = {"external-metrics": settings.server.external_metrics}
    else:
        wanted = {
            "companion": True,
            "companion-status": features.status,
            "companion-events": features.events,
            "companion-fast-scale-up": features.fast_scale_up,
            "companion-deletion-cost": features.deletion_cost,
            "companion-hpa-configuration": features.hpa_configuration,
        }
    yield from (f"components/{name}/rbac.yaml" for name, is_wanted in wanted.items() if is_wanted)


def _of_role(role: ManifestObject, namespace: str, names: Mapping[str, str]) -> Iterator[Right]:
    for rule in role.data["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    for verb in rule["verbs"]:
                        yield Right(
                            verb=verb, group=group, resource=resource, name=name and names.get(resource, name),
                            namespace=namespace, role=role.name, file=role.file,
                        )  # fmt: skip


async def rights_section(session: Session, settings: Settings, component: str, namespace: str, account: str) -> Section:
    """Whether a service account has the rights that the settings need: an error for each role that lacks one."""
    section = Section(f"rights of service account {namespace}/{account}")
    rights = list(dict.fromkeys(needed_rights(component, settings, namespace)))
    user = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
    }
    slots = asyncio.Semaphore(_AT_ONCE)

    async def may(right: Right, where: str) -> bool:
        spec: dict[str, Any] = {"resourceAttributes": right.attributes(where), **user}
        kind = "SubjectAccessReview"
        body = msgspec.json.encode({"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": kind, "spec": spec})
        async with slots:
            answer = await session.request("POST", SUBJECT_ACCESS_REVIEWS.collection(), body=body)
        try:
            return (decode(answer.body, AnyObject).status or {}).get("allowed") is True
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"{kind}: {error}") from error

    async def lacks(right: Right) -> list[str]:
        """The namespaces without the right; a lone empty one for the cluster."""
        if await may(right, right.namespace):
            return []
        everywhere = not right.namespace and settings.kubernetes.namespaces
        return [where for where in everywhere or [""] if not (everywhere and await may(right, where))]

    try:
        found = await asyncio.gather(*map(lacks, rights))
    except KubeError as error:
        return section.skipped(
            f"its rights, for {reason(error)}; reviewing them takes the right to create subjectaccessreviews"
        )
    if all(found):
        return section.error(
            "it has none of its rights: apply the manifests again (the service account, its roles and their bindings)"
        )
    for (role, file), phrases in _missing(section, dict(zip(rights, found, strict=True))).items():
        section.error(f"it may not {'; '.join(phrases)}: apply {role} and its binding ({file})")
    return section if section.findings else section.ok(f"it has all {len(rights)} rights that the settings need")


def _missing(section: Section, found: Mapping[Right, list[str]]) -> dict[tuple[str, str], list[str]]:
    """The missing rights by role and file; adds a warning for one that only some uses need."""
    missing: dict[tuple[str, str], list[str]] = {}
    for right, places in found.items():
        where = f" in {', '.join(places)}" if places not in ([], [""]) else ""
        if places and right.resource == _OPTIONAL:
            section.warning(f"it may not {right}, which scale targets that are custom resources need ({right.file})")
        elif places:
            missing.setdefault((right.role, right.file), []).append(f"{right}{where}")
    return missing
