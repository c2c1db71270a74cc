"""What the types of the notification settings cannot say."""

import string
from collections.abc import Iterator, Mapping
from typing import Any

from adapter.faults import Fault, closest

FIELDS = ("cluster", "event", "severity", "namespace", "policy", "target", "at", "text", "from", "to", "why")
"""What templates may put in."""


def route_faults(path: str, route: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of one route as the file has it. URLs are not shown: they hold secrets."""
    if bool(route.get("urlFile")) == bool(route.get("urls")):
        yield Fault(path, None, "needs exactly one of urlFile and urls; prefer the file")
    for key in ("title", "template"):
        if isinstance(route.get(key), str):
            yield from _template_faults(f"{path}.{key}", route[key])


def _template_faults(path: str, text: str) -> Iterator[Fault]:
    template = string.Template(text)
    if not template.is_valid():
        yield Fault(path, text, "has a $ that begins no name; write $$ for a dollar")
        return
    for name in template.get_identifiers():
        if name not in FIELDS:
            yield Fault(path, f"${name}", f"is not known{closest(name, FIELDS)}; there are {', '.join(FIELDS)}")
