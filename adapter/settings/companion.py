"""The companion in the settings, and its notifications: routes, topics and limits.

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
from adapter.settings.server import own_namespace

FIELDS = ("cluster", "event", "severity", "namespace", "policy", "target", "at", "text", "from", "to", "why")
"""The names that templates may use."""
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_LABEL = re.compile(rf"(?:{_WORD}/)?{_WORD}(?:=(?:{_WORD})?)?")

Percent = Annotated[int, Field(ge=1, le=100)]


class Topic(StrEnum):
    """What a notification is about."""

    SCALED = "scaled"
    VERSION_MISMATCH = "versionMismatch"
    MASS_PULL_OUT = "massPullOut"
    DATA_LOST = "dataLost"
    DATA_RECOVERED = "dataRecovered"
    AT_MAXIMUM = "atMaximum"


class Severity(StrEnum):
    """The severity of a notification."""

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
    """One destination of notifications, by addresses of the Apprise library."""

    name: str = Field(min_length=1)
    """The name by which policies refer to it in `notify`."""
    url_file: str = ""
    """File with Apprise URLs, one a line; `#` begins a comment. They hold tokens, so keep them in a Secret. It is read
    anew for each attempt."""
    urls: tuple[str, ...] = Field(default=(), repr=False)
    """The same in place; for addresses that hold no secret, such as `json://hooks.internal/scaling`."""
    default: bool = False
    """Whether it receives notifications of every policy, also of those that do not name it."""
    namespaces: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """The namespaces whose policies may use it, at least one; `*` and `?` are wildcards, and `["*"]` is all of them.
    Other policies cannot use it, even if they name it."""
    events: tuple[Topic, ...] = ()
    """Only these. Empty: all."""
    severities: tuple[Severity, ...] = ()
    """Only these. Empty: all."""
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
    """How long one attempt may take; one that still hangs is abandoned."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 4
    """How often a notification is tried, with growing waits."""

    def serves(self, namespace: str) -> bool:
        """Whether it may be told of policies there."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)


class Notifications(Section):
    """Notifications of scaling and of problems. Without routes none are sent."""

    cluster: str = ""
    """The name of this cluster; `$cluster` in templates."""
    routes: tuple[NotificationRoute, ...] = ()
    """The destinations."""
    queue: Annotated[int, Field(ge=1, le=10_000)] = 200
    """How many notifications may wait for a route; further ones are dropped, and counted."""
    mass_pull_out_percent: Percent = 30
    """From which share of a target's running pods on it is a mass pull-out; two pods at least."""


class Production(Section):
    """Which namespaces are production: there a version mismatch is critical."""

    namespaces: tuple[str, ...] = ()
    """Names; `*` and `?` are wildcards."""
    label: str = ""
    """A label that marks a production namespace, as `key=value`, or `key` for any value but `false`. Reading it from
    the namespace needs the component `companion-namespaces`."""


def label_faults(path: str, label: object) -> Iterator[Fault]:
    """The fault of a label that no namespace can have: no namespace would count as production."""
    if isinstance(label, str) and label and not _LABEL.fullmatch(label):
        yield Fault(path, label, "is no label; write key=value, or key alone, without spaces")


def route_faults(path: str, route: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of one raw route. URLs are not shown: they hold secrets."""
    if bool(route.get("urlFile")) == bool(route.get("urls")):
        yield Fault(path, None, "needs exactly one of urlFile and urls; prefer the file")
    if route.get("namespaces", []) == []:
        wanted = 'names nobody; list the namespaces whose policies it is told of, or write ["*"] for all of them'
        yield Fault(f"{path}.namespaces", None, wanted)
    for key in ("title", "template"):
        if isinstance(route.get(key), str):
            template = string.Template(route[key])
            if not template.is_valid():
                yield Fault(f"{path}.{key}", route[key], "has a $ that begins no name; write $$ for a dollar")
                continue
            for name in template.get_identifiers():
                if name not in FIELDS:
                    advice = f"is not known{closest(name, FIELDS)}; there are {', '.join(FIELDS)}"
                    yield Fault(f"{path}.{key}", f"${name}", advice)


class CompanionFeatures(Section):
    """The companion's features; each has rights of its own in the manifests. With all of them off it only reads."""

    status: bool = True
    """Whether policies get a status: conditions, counts, the decision, and the memory that replicas share."""
    events: bool = True
    """Whether policies get Events: on scaling, and when a condition has changed and stays so."""
    fast_scale_up: bool = False
    """Whether the counts of policies with `fastScaleUp: true` are raised before the HPA's next sync, as far as its
    `behavior` allows at that moment."""
    deletion_cost: bool = False
    """Whether pulled-out pods of policies with `pulledOut.deleteFirst: true` are marked to be deleted first; this needs
    the right to patch pods."""
    hpa_configuration: bool = False
    """Whether the HPAs of policies with `hpaConfiguration: Manage` get tolerance 0, and scaling policies that hold
    nothing back before the policy does, and keep them. It needs the right to patch HPAs."""


class CompanionSettings(Section):
    """The companion, of which one replica leads."""

    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Lease. Default: as for `server.tls.namespace`."""
    lease: str = Field(default="effective-load-companion", min_length=1)
    """Name of the Lease by which the leader is elected."""
    writes_per_second: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 15
    """The most write requests a second to the API server, without those that scale. Statuses alone take one for every
    120 policies: with more than a thousand policies set it to a sixtieth of their number."""
    features: CompanionFeatures = CompanionFeatures()
    """The companion's features."""
    version_mismatch_seconds: Seconds = 600
    """How long serving pods may run more than one version without a progressing rollout before it is reported."""
    production: Production = Production()
    """Which namespaces are production."""
    notifications: Notifications = Notifications()
    """Notifications of scaling and of problems."""
