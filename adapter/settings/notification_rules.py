"""What the types of the notification settings cannot say."""

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from adapter.runtime.faults import Fault, closest

FIELDS = ("cluster", "event", "severity", "namespace", "policy", "target", "at", "text", "from", "to", "why")
"""What templates may put in."""
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_LABEL = re.compile(rf"(?:{_WORD}/)?{_WORD}(?:=(?:{_WORD})?)?")


def label_faults(path: str, label: object) -> Iterator[Fault]:
    """The fault of a label that no namespace can have: nothing would be production, and nobody told."""
    if isinstance(label, str) and label and not _LABEL.fullmatch(label):
        yield Fault(path, label, "is no label; write key=value, or key alone, without spaces")


def route_faults(path: str, route: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of one route as the file has it. URLs are not shown: they hold secrets."""
    if bool(route.get("urlFile")) == bool(route.get("urls")):
        yield Fault(path, None, "needs exactly one of urlFile and urls; prefer the file")
    if route.get("namespaces", []) == []:
        wanted = 'names nobody; list the namespaces whose policies it is told of, or write ["*"] for all of them'
        yield Fault(f"{path}.namespaces", None, wanted)
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
