"""What the arithmetic needs to know of a pod, and the states a pod can be in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PodState(StrEnum):
    """The place of a pod in the effective load; the first rule that matches decides (`membership.classify`)."""

    TERMINATING = "terminating"
    FINISHED = "finished"
    STARTING = "starting"
    UNREADY = "unready"
    PULLED_OUT = "pulledOut"
    DOUBTFUL = "doubtful"
    SERVING = "serving"


FINISHED_PHASES = frozenset({"Failed", "Succeeded"})
"""Phases in which a pod runs no more, whatever its conditions still say."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A pod condition: its status and when that last changed (seconds; None where the API does not say)."""

    status: bool
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A container: what it asks for and may use (nano-units by resource name), and how it runs.

    `ports` are those it declares, `image` is as the pod's spec names it. `running` is None where no container status
    is known (a hand-written document): it then counts as running.
    """

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    running: bool | None = None
    crash_looping: bool = False
    ports: tuple[int, ...] = ()
    image: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod's controller reference."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as far as its load and its place in the service matter. Times are seconds since the epoch.

    `ready` is None where the pod has no Ready condition. `gates` are the readiness gates with a known status (a gate
    whose condition is missing counts as False, as the kubelet counts it). `deletion_cost`: the ReplicaSet controller
    deletes pods of lower cost first, of those that are Ready; `marked` where the companion set one. `endpoint_serving`
    is False where an EndpointSlice lists the pod as not serving, True where one lists it as serving, None where none
    lists it.
    """

    namespace: str
    name: str
    uid: str
    created_at: float
    started_at: float | None = None
    deleting: bool = False
    phase: str = "Running"
    ready: PodCondition | None = None
    containers_ready: bool = False
    gates: Mapping[str, bool] = field(default_factory=dict)
    pulled_out_annotation: bool = False
    deletion_cost: int = 0
    marked: bool = False
    endpoint_serving: bool | None = None
    ips: tuple[str, ...] = ()
    host_ip: str = ""
    host_network: bool = False
    owner: Owner | None = None
    template_hash: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    pod_requests: Mapping[str, int] = field(default_factory=dict)
    pod_limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether the Ready condition is True."""
        return self.ready is not None and self.ready.status
