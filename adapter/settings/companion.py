"""The companion in the settings, and its notifications: routes, topics and limits."""

import string
from collections.abc import Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from adapter.runtime.faults import Fault, closest
from adapter.settings.base import UNIQUE_NAMES, Seconds, Section, refuse
from adapter.settings.server import own_namespace

FIELDS = ("cluster", "event", "severity", "namespace", "policy", "target", "at", "text", "from", "to", "why")
"""The names that templates may use."""


def _template_faults(text: str) -> Iterator[Fault]:
    template = string.Template(text)
    if not template.is_valid():
        yield Fault("", text, "has a $ without a name; write $$ for a dollar")
        return
    for name in template.get_identifiers():
        if name not in FIELDS:
            yield Fault("", f"${name}", f"is unknown{closest(name, FIELDS)}; known are {', '.join(FIELDS)}")


Template = Annotated[str, refuse(_template_faults)]


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
    """File with Apprise URLs, one a line; `#` begins a comment. Keep it in a Secret. Each attempt reads it again."""
    urls: tuple[str, ...] = Field(default=(), repr=False)
    """The same in place, for addresses without secrets, such as `json://hooks.internal/scaling`."""
    default: bool = False
    """Whether it receives the notifications of all policies, named or not."""
    namespaces: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """The namespaces whose policies may use it; `*` and `?` are wildcards, and `["*"]` is all of them."""
    events: tuple[Topic, ...] = ()
    """The events that it receives; empty: all."""
    severities: tuple[Severity, ...] = ()
    """The severities that it receives; empty: all."""
    title: Template = "[$severity] $namespace/$policy: $event"
    """The title, for services that have one. Variables: `$cluster`, `$event`, `$severity`, `$namespace`, `$policy`,
    `$target`, `$at`, `$text`, and for `scaled` `$from`, `$to`, `$why`; `$$` is a dollar."""
    template: Template = "$text"
    """The text, with the same variables."""
    rate_limit: RateLimit = RateLimit(count=60)
    """The limit of the route."""
    timeout_seconds: Annotated[float, Field(ge=1, le=60, allow_inf_nan=False)] = 10
    """How long one attempt may take."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 4
    """How many attempts to send a notification, with growing waits."""

    def serves(self, namespace: str) -> bool:
        """Whether policies of the namespace may use it."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def accepts(self, namespace: str, topic: Topic, severity: Severity) -> bool:
        """Whether it receives such a notification of that namespace."""
        is_selected = (not self.events or topic in self.events) and (not self.severities or severity in self.severities)
        return is_selected and self.serves(namespace)

    def _faults(self) -> Iterator[Fault]:
        if bool(self.url_file) == bool(self.urls):
            yield Fault("", None, "needs exactly one of urlFile and urls; prefer the file")


class Notifications(Section):
    """Notifications of scaling and of problems. Without routes none are sent."""

    cluster: str = ""
    """The name of this cluster; `$cluster` in templates."""
    routes: Annotated[tuple[NotificationRoute, ...], UNIQUE_NAMES] = ()
    """The destinations."""
    mass_pull_out_percent: Annotated[int, Field(ge=1, le=100)] = 30
    """The share of a target's running pods that is a mass pull-out; at least two pods."""
    after_seconds: Seconds = 60
    """How long data must be lost, or the maximum too little, before a notification; the same for the end of it."""


class Production(Section):
    """Which namespaces are production: there a version mismatch is critical."""

    namespaces: tuple[str, ...] = ()
    """Names; `*` and `?` are wildcards."""

    def has(self, namespace: str) -> bool:
        """Whether the namespace is production."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)


class CompanionFeatures(Section):
    """The companion's features; each has rights of its own in the manifests. Without any of them it only reads."""

    status: bool = True
    """Whether policies get a status: conditions, counts, the decision, and the memory that replicas share."""
    events: bool = True
    """Whether policies get Events: on scaling, and when a condition has changed and stays so."""
    fast_scale_up: bool = False
    """Whether policies with `fastScaleUp: true` are scaled up before the HPA's next sync, within its `behavior`."""
    deletion_cost: bool = False
    """Whether pods of policies with `pulledOut.deleteFirst: true` are marked. Needs the right to patch pods."""
    hpa_configuration: bool = False
    """Whether HPAs of policies with `hpaConfiguration: Manage` are kept conformant. Needs the right to patch HPAs."""


class CompanionSettings(Section):
    """The companion, of which one replica leads."""

    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Lease. Default: as for `server.tls.namespace`."""
    lease: str = Field(default="effective-load-companion", min_length=1)
    """Name of the Lease by which the leader is elected."""
    lease_seconds: Annotated[int, Field(ge=10, le=120)] = 10
    """How long after the last renewal another replica leads. Raise it if a slow API server ends leaderships."""
    status_interval_seconds: Seconds = 10
    """The shortest time between two statuses of a policy. Raise it for thousands of policies: 60."""
    hpa_sync_seconds: Seconds = 15
    """The kube-controller-manager's `--horizontal-pod-autoscaler-sync-period`: fast scale-ups are so far apart."""
    writes_per_second: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 15
    """The most write requests a second, without those that scale. For more than 1,000 policies: a sixtieth of them."""
    features: CompanionFeatures = CompanionFeatures()
    """The companion's features."""
    version_mismatch_seconds: Seconds = 600
    """How long serving pods may run more than one version without a progressing rollout before it is reported."""
    production: Production = Production()
    """Which namespaces are production."""
    notifications: Notifications = Notifications()
    """Notifications of scaling and of problems."""
