"""A service registry's answer for one service, the same for every kind of registry."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One registration. Times are seconds since the epoch.

    `status` is the registry's own status where it has one (Eureka's UP, DOWN, OUT_OF_SERVICE …; Consul's warning,
    critical, maintenance). `registered_at` is None where the registry does not tell. `pod_uid` and `pod_name` come from
    metadata and take precedence over the address; with a `pod_namespace` the instance is of a pod there.
    """

    ip: str = ""
    port: int | None = None
    enabled: bool = True
    healthy: bool = True
    weight: float | None = None
    isolated: bool = False
    status: str = ""
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    registered_at: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Roster:
    """A registry's complete answer for one service, read or confirmed at `at` (seconds).

    `valid` is False where it was no usable answer. `protected`: the registry currently reports unhealthy instances as
    healthy, so health is not considered. `error`: why the latest answer is not valid; if `valid` is True, the instances
    are those of the last valid one. `absence_counts`: False where the registry lists only pods that are out; then one
    that it does not list is serving.
    """

    instances: tuple[Instance, ...] = ()
    at: float = 0.0
    valid: bool = True
    protected: bool = False
    error: str | None = None
    absence_counts: bool = True
