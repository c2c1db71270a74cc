"""Paths of the Kubernetes API, built from segments: a value that an object carries can never become another path."""

from urllib.parse import quote

from adapter.kube.errors import UnsafePath

_RELATIVE = {"", ".", ".."}
_FORBIDDEN = frozenset("/%")


def path(*segments: str) -> str:
    """`/a/b/c`, each segment percent-encoded. Raises UnsafePath for one that Kubernetes takes for no path segment.

    The rule is `IsValidPathSegmentName` of k8s.io/apimachinery: neither `.` nor `..`, and without `/` and `%`.
    """
    for segment in segments:
        if segment in _RELATIVE or not _FORBIDDEN.isdisjoint(segment):
            raise UnsafePath(f"{segment[:80]!r} cannot be part of a path of the Kubernetes API")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def group_version(api_version: str) -> str:
    """`/apis/apps/v1`, or `/api/v1` for the core group. Raises UnsafePath."""
    group, slash, version = api_version.partition("/")
    return path("apis", group, version) if slash else path("api", api_version)


def collection(api_version: str, plural: str, namespace: str = "") -> str:
    """The path of all objects of a resource, or of those in a namespace. Raises UnsafePath."""
    place = path("namespaces", namespace) if namespace else ""
    return f"{group_version(api_version)}{place}{path(plural)}"
