"""A service registry's answer about one service, whatever the registry."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One registration.

    `status` is the registry's own word where it has one (Eureka's UP, DOWN, OUT_OF_SERVICE …; Consul's warning,
    critical, maintenance); `registered_at` is when this registration was made (seconds), None where the registry does
    not say. `pod_uid` and `pod_name` come from metadata and beat the address; where there is a `pod_namespace`, only
    pods of that one are meant. `doubtful_until` (seconds): until then it is no sufficient evidence of being out.
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
    doubtful_until: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """A registry's whole answer for one service, or the fact that it is no answer at all (`valid` False).

    `protected`: the registry reports unhealthy instances as healthy just now, so health says nothing. `alive`: an
    independent sign of life accompanies an empty answer. `registry_total`: instances of all services watched in this
    registry. `reconnected_at`: the last reconnect or restart that was seen. `error`
    says why the latest answer is not valid; where `valid` is True, these are the instances of the last one that was.
    `absence_counts`: False where the registry does not promise to list every pod that serves; one that it does not list
    serves then.
    """

    at: float
    valid: bool = True
    protected: bool = False
    alive: bool = False
    registry_total: int | None = None
    reconnected_at: float | None = None
    error: str | None = None
    absence_counts: bool = True
    instances: tuple[Instance, ...] = ()
