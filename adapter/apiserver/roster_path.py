"""The paths that platforms PUT rosters to, and the right that each takes.

`/registries/REGISTRY[/namespaces/NAMESPACE][/groups/GROUP]/services/SERVICE`, in this order; where a policy leaves the
namespace or group empty, it is left out with its word. RBAC compares paths as text and knows one wildcard, a `*` at the
end of a rule. So however a request spells its path, one spelling is authorized: each name is decoded and encoded anew.
No two targets share it, and a name can neither end its segment nor look like a wildcard.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

ROOT = "/registries/"
ADVICE = (
    "a roster is PUT to /registries/REGISTRY/namespaces/NAMESPACE/groups/GROUP/services/SERVICE, without "
    "/namespaces/NAMESPACE and /groups/GROUP where the policy names none, and without a query"
)
_PLAIN = "!$&'()+,;=:@"
"""What a path segment may hold beside letters, digits and `-._~` (RFC 3986), without `*`: RBAC's wildcard."""


class RosterTarget(NamedTuple):
    """Whose roster is told: a service in a registry; `namespace` and `group` in that registry's own sense."""

    registry: str
    service: str
    namespace: str = ""
    group: str = ""


def authorized(segments: Sequence[str]) -> str:
    """The path that is authorized, of the decoded segments below ROOT. Raises UnicodeEncodeError for surrogates."""
    return ROOT + "/".join(quote(segment, safe=_PLAIN) for segment in segments)


def target(segments: Sequence[str]) -> RosterTarget | None:
    """The target that decoded segments below ROOT name, None where they name none."""
    match segments:
        case [registry, "namespaces", namespace, "groups", group, "services", service]:
            named = RosterTarget(registry, service, namespace, group)
        case [registry, "namespaces", namespace, "services", service]:
            named = RosterTarget(registry, service, namespace)
        case [registry, "groups", group, "services", service]:
            named = RosterTarget(registry, service, group=group)
        case [registry, "services", service]:
            named = RosterTarget(registry, service)
        case _:
            return None
    return named if all(segments) else None
