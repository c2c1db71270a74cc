"""The rights of the adapter's accounts: the API server reviews each rule of the roles that come with this program."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapter.commands.check.report import Finding, error, ok, skipped
from adapter.commands.cluster import reason
from adapter.commands.files import objects_of
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import KubeError, decode_answer
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.settings import Settings

_AT_ONCE = 8
_PACKAGED = Path(__file__).parents[2] / "manifests"
_MANIFESTS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "manifests"
"""In a wheel the manifests are part of the package; in a clone they are beside it."""
_OPTIONAL = "customresourcedefinitions"
"""Only scale targets that are custom resources need it, so it is not asked for."""
ACCOUNTS = {"server": "effective-load", "companion": "effective-load-companion"}
"""The service accounts of the manifests, by component."""


class Right(NamedTuple):
    """One verb on one resource (with its subresource behind a slash) that a role of a file grants.

    `name` is empty for all objects, `namespace` for rights in the whole cluster.
    """

    verb: str
    group: str
    resource: str
    name: str
    namespace: str
    role: str
    file: str

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}"


def needed_rights(component: str, settings: Settings, namespace: str) -> Iterator[Right]:
    """The rights that `server` or `companion` needs with these settings, from the roles of the manifests.

    `namespace` is that of the installation.
    """
    tls, features = settings.server.tls, settings.companion.features
    renamed = {"secrets": tls.secret, "leases": settings.companion.lease}
    parts = {
        "base": True,
        "components/external-metrics": settings.server.external_metrics,
        "components/companion": True,
        "components/companion-status": features.status,
        "components/companion-events": features.events,
        "components/companion-fast-scale-up": features.fast_scale_up,
        "components/companion-deletion-cost": features.deletion_cost,
        "components/companion-hpa-configuration": features.hpa_configuration,
    }
    files = [f"{part}/rbac.yaml" for part, is_wanted in parts.items() if is_wanted]
    objects = [one for file in files for one in objects_of((_MANIFESTS / file).read_text(), f"manifests/{file}")[0]]
    unused = {"effective-load-certificates"} if tls.mode != "SelfSigned" else set()
    if not tls.inject_ca_bundle:
        unused |= {"effective-load-apiservices", "effective-load-external-apiservice"}
    roles = {(one.kind, one.name): one for one in objects if one.name not in unused}
    for binding in (one for one in objects if "roleRef" in one.data):
        role = roles.get((binding.data["roleRef"]["kind"], binding.data["roleRef"]["name"]))
        if role is None or ACCOUNTS[component] not in {subject["name"] for subject in binding.data["subjects"]}:
            continue
        where = namespace if binding.kind == "RoleBinding" else ""
        for rule in role.data["rules"]:
            names = rule.get("resourceNames", [""])
            resources = [resource for resource in rule["resources"] if resource != _OPTIONAL]
            for group, resource, name, verb in product(rule["apiGroups"], resources, names, rule["verbs"]):
                yield Right(verb, group, resource, name and renamed.get(resource, name), where, role.name, role.file)


async def check_rights(
    session: Session, settings: Settings, component: str, namespace: str, account: str
) -> list[Finding]:
    """Whether a service account has the rights that the settings need: an error for each role that lacks one."""
    about = f"rights of service account {namespace}/{account}"
    rights = list(dict.fromkeys(needed_rights(component, settings, namespace)))
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    user = {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}
    kind = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview"}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def may(right: Right, where: str) -> bool:
        resource, _, subresource = right.resource.partition("/")
        asked = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        asked |= {"name": right.name, "namespace": where}
        async with slots:
            body = msgspec.json.encode({**kind, "spec": {"resourceAttributes": asked, **user}})
            answer = await session.request("POST", SUBJECT_ACCESS_REVIEWS.collection(), body=body)
        reviewed = decode_answer(Decoder(AnyObject).decode, answer.body, "SubjectAccessReview")
        return (reviewed.status or {}).get("allowed") is True

    async def lacks(right: Right) -> list[str]:
        """The namespaces without the right; a lone empty one for the cluster."""
        if await may(right, right.namespace):
            return []
        places = () if right.namespace else settings.kubernetes.namespaces
        return [where for where in places if not await may(right, where)] if places else [""]

    try:
        found = await asyncio.gather(*map(lacks, rights))
    except KubeError as fault:
        remedy = "reviewing them takes the right to create subjectaccessreviews"
        return [skipped(about, f"its rights, for {reason(fault)}", remedy)]
    if all(found):
        remedy = "apply the manifests again (the service account, its roles and their bindings)"
        return [error(about, "it has none of its rights", remedy)]
    missing = defaultdict[tuple[str, str], list[str]](list)
    for right, places in zip(rights, found, strict=True):
        if places:
            missing[right.role, right.file].append(f"{right}{' in ' * any(places)}{', '.join(places)}")
    findings = [
        error(about, f"it may not {', '.join(phrases)}", f"apply {role} and its binding ({file})")
        for (role, file), phrases in missing.items()
    ]
    return findings or [ok(about, f"it has all {len(rights)} rights that the settings need")]
