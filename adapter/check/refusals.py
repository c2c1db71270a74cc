"""Refusals of the API server in few words: what this account may not do."""

import re

from adapter.kube.errors import Forbidden

_REFUSAL = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


def reason(error: Exception) -> str:
    """A refusal as `this account may not list pods in namespace shop`; any other error as it is."""
    if not isinstance(error, Forbidden):
        return str(error)
    found = _REFUSAL.search(error.message)
    if found is None:
        return str(error)
    resource = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    return f"this account may not {found['verb']} {resource}{where}"
