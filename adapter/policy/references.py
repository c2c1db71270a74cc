"""The grammar of a scale target's reference: the API server admits values that name no kind and no object.

Kubernetes 1.36 holds `kind` and `name` of a `scaleTargetRef` to the rules of a path segment, and `apiVersion` to having
at most one slash: `%61pps/v1` and `apps?x=1/v1` are admitted.
"""

import re
from collections.abc import Iterator

from adapter.faults import Fault

LONGEST_GROUP = 253
LONGEST_NAME = 253

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_GROUP = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""A DNS-1123 subdomain."""
_VERSION = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS-1035 label."""
_KIND = re.compile(r"[A-Za-z](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""A DNS-1035 label in letters of any case, as definitions of custom resources are held to."""


def kind_faults(api_version: str, kind: str) -> Iterator[Fault]:
    """What keeps these from naming a kind of the Kubernetes API."""
    group, slash, version = api_version.rpartition("/")
    if not (_is_group(group) or not slash) or not _VERSION.fullmatch(version):
        advice = "is no group and version of the Kubernetes API; write them as `kubectl api-resources` does: apps/v1"
        yield Fault("spec.scaleTargetRef.apiVersion", api_version, advice)
    if not _KIND.fullmatch(kind):
        advice = "is no kind (letters, digits and -, at most 63); write it as `kubectl api-resources` does: Deployment"
        yield Fault("spec.scaleTargetRef.kind", kind, advice)


def reference_faults(api_version: str, kind: str, name: str) -> Iterator[Fault]:
    """What keeps these from naming an object of the Kubernetes API."""
    yield from kind_faults(api_version, kind)
    if name in {"", ".", ".."} or "/" in name or "%" in name or len(name) > LONGEST_NAME or not name.isprintable():
        advice = f"is no object's name (at most {LONGEST_NAME} characters, no / and no %); write the target's own name"
        yield Fault("spec.scaleTargetRef.name", name, advice)


def _is_group(group: str) -> bool:
    return len(group) <= LONGEST_GROUP and _GROUP.fullmatch(group) is not None
