"""The companion in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

from typing import Annotated

from pydantic import Field

from adapter.settings.base import Seconds, Section
from adapter.settings.notifications import Notifications, Production
from adapter.settings.server import own_namespace


class CompanionFeatures(Section):
    """What the companion may write; each has rights of its own in the manifests. With all of them off it only reads."""

    status: bool = True
    """Whether policies get a status: conditions, counts, the decision, and what replicas have to remember together."""
    events: bool = True
    """Whether policies get Events: on scaling, and when a condition has changed for longer than a moment."""
    fast_scale_up: bool = False
    """Whether the counts of policies with `fastScaleUp: true` are raised before the HPA's next sync, as far as its
    `behavior` allows at that moment."""
    deletion_cost: bool = False
    """Whether pulled-out pods of policies with `pulledOut.deleteFirst: true` are marked to be deleted first; this needs
    the right to patch pods."""
    hpa_wiring: bool = False
    """Whether the HPAs of policies with `hpaWiring: Enforce` get tolerance 0, and scaling policies that hold nothing
    back before the policy does, and keep them. It needs the right to patch HPAs."""


class CompanionSettings(Section):
    """The companion, of which one replica leads."""

    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Lease. Default: as for `server.tls.namespace`."""
    lease: str = Field(default="effective-load-companion", min_length=1)
    """Name of the Lease by which the leader is elected."""
    writes_per_second: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 15
    """How many requests that write are sent to the API server at most, scaling left aside. Statuses alone take one for
    every 120 policies: with more than a thousand policies set it to a sixtieth of their number."""
    features: CompanionFeatures = CompanionFeatures()
    """What the companion may write."""
    version_mismatch_seconds: Seconds = 600
    """How long serving pods may run more than one version while no rollout moves on, before that is said."""
    production: Production = Production()
    """Which namespaces are production."""
    notifications: Notifications = Notifications()
    """Whom it tells of scaling and of trouble."""
