"""The grammar of a scale target's reference: the API server admits values that name no kind and no object.

Kubernetes 1.36 holds `kind` and `name` of a `scaleTargetRef` to the rules of a path segment, and `apiVersion` to having
at most one slash: `%61pps/v1` and `apps?x=1/v1` are admitted.
"""

import re
from collections.abc import Iterator

from adapter.runtime.faults import Fault

LONGEST = 253
"""Characters of a group or a name."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""A DNS-1123 subdomain: a group, and the name of every kind of object that Kubernetes itself or a definition brings."""
_VERSION = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS-1035 label."""
_KIND = re.compile(r"[A-Za-z](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""A DNS-1035 label in letters of any case, as definitions of custom resources are held to."""


def kind_faults(api_version: str, kind: str) -> Iterator[Fault]:
    """What keeps these from naming a kind of the Kubernetes API."""
    group, slash, version = api_version.rpartition("/")
    if (slash and not _is_subdomain(group)) or not _VERSION.fullmatch(version):
        advice = "is no group and version of the Kubernetes API; write them as `kubectl api-resources` does: apps/v1"
        yield Fault("spec.scaleTargetRef.apiVersion", api_version, advice)
    if not _KIND.fullmatch(kind):
        advice = "is no kind (letters, digits and -, at most 63); write it as `kubectl api-resources` does: Deployment"
        yield Fault("spec.scaleTargetRef.kind", kind, advice)


def reference_faults(api_version: str, kind: str, name: str) -> Iterator[Fault]:
    """What keeps these from naming an object of the Kubernetes API."""
    yield from kind_faults(api_version, kind)
    if not _is_subdomain(name):
        advice = f"is no object's name (small letters, digits, - and ., at most {LONGEST}); write that of the target"
        yield Fault("spec.scaleTargetRef.name", name, advice)


def _is_subdomain(text: str) -> bool:
    return len(text) <= LONGEST and _SUBDOMAIN.fullmatch(text) is not None
