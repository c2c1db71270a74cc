"""Whom the companion tells of what, in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import re
import string
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import Field

from adapter.runtime.faults import Fault, closest
from adapter.settings.base import Seconds, Section

FIELDS = ("cluster", "event", "severity", "namespace", "policy", "target", "at", "text", "from", "to", "why")
"""What templates may put in."""
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_LABEL = re.compile(rf"(?:{_WORD}/)?{_WORD}(?:=(?:{_WORD})?)?")

Percent = Annotated[int, Field(ge=1, le=100)]


class Topic(StrEnum):
    """What people are told of."""

    SCALED = "scaled"
    VERSION_MISMATCH = "versionMismatch"
    MASS_PULL_OUT = "massPullOut"
    DATA_LOST = "dataLost"
    DATA_RECOVERED = "dataRecovered"
    AT_MAXIMUM = "atMaximum"


class Severity(StrEnum):
    """How much it matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class RateLimit(Section):
    """At most so many in so long."""

    count: int = Field(ge=1, le=10_000)
    """How many."""
    seconds: Seconds = 3600
    """In how long."""


class NotificationRoute(Section):
    """One place to tell people in, by the addresses of the Apprise library."""

    name: str = Field(min_length=1)
    """The name by which policies refer to it in `notify`."""
    url_file: str = ""
    """File with Apprise URLs, one a line; `#` begins a comment. They hold tokens, so keep them in a Secret. It is read
    anew for every notification."""
    urls: tuple[str, ...] = Field(default=(), repr=False)
    """The same in place; for addresses that hold no secret, such as `json://hooks.internal/scaling`."""
    default: bool = False
    """Whether it is told of every policy, also of those that do not name it."""
    namespaces: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """The namespaces whose policies it is told of, at least one; `*` and `?` are wildcards, and `["*"]` is all of them.
    Policies of other namespaces cannot use it, whether they name it or not."""
    events: tuple[Topic, ...] = ()
    """Only of these. Empty: of all."""
    severities: tuple[Severity, ...] = ()
    """Only of these. Empty: of all."""
    title: str = "[$severity] $namespace/$policy: $event"
    """The title, where there can be one. `$cluster`, `$event`, `$severity`, `$namespace`, `$policy`, `$target`, `$at`,
    `$text`, and for `scaled` `$from`, `$to`, `$why` are put in; `$$` is a dollar."""
    template: str = "$text"
    """The text; the same names are put in."""
    rate_limit: RateLimit = RateLimit(count=60)
    """How many this route gets at most. Critical ones have limits of their own, and are not counted here."""
    policy_rate_limit: RateLimit = RateLimit(count=12)
    """How many of one policy this route gets at most, likewise."""
    critical_rate_limit: RateLimit = RateLimit(count=600)
    """How many critical ones this route gets at most."""
    critical_namespace_rate_limit: RateLimit = RateLimit(count=120)
    """How many critical ones of the policies of one namespace this route gets at most, so that no namespace silences
    the others."""
    timeout_seconds: Annotated[float, Field(ge=1, le=60, allow_inf_nan=False)] = 10
    """How long one attempt may take; what then still hangs is left to itself."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 4
    """How often it is tried, at growing distances."""

    def serves(self, namespace: str) -> bool:
        """Whether it may be told of policies there."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)


class Notifications(Section):
    """Whom the companion tells of scaling and of trouble. Without routes it tells nobody."""

    cluster: str = ""
    """What people call this cluster; `$cluster` in templates."""
    routes: tuple[NotificationRoute, ...] = ()
    """The places to tell people in."""
    queue: Annotated[int, Field(ge=1, le=10_000)] = 200
    """How many notifications may wait for a route; further ones are dropped, and counted."""
    mass_pull_out_percent: Percent = 30
    """From which share of a target's running pods on it is a mass pull-out; two pods at least."""


class Production(Section):
    """Which namespaces are production: there a version mismatch is critical."""

    namespaces: tuple[str, ...] = ()
    """Names; `*` and `?` are wildcards."""
    label: str = ""
    """A label by which a namespace says so, as `key=value`, or `key` for any value but `false`. It is read from the
    namespace, which needs the component `companion-namespaces`."""


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
