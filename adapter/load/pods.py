"""A pod, as far as the load arithmetic needs it, and the states that a pod can be in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class PodState(StrEnum):
    """How a pod counts for the effective load (`states.classify`)."""

    TERMINATING = "terminating"
    FINISHED = "finished"
    STARTING = "starting"
    UNREADY = "unready"
    PULLED_OUT = "pulledOut"
    DOUBTFUL = "doubtful"
    SERVING = "serving"


GONE = frozenset({PodState.TERMINATING, PodState.FINISHED})
"""The states of pods that do not count any more."""
AWAY = frozenset({PodState.PULLED_OUT, PodState.DOUBTFUL})
"""The states of pods that are out, or may be."""
LOWEST_COST = -(2**31)
"""The lowest deletion cost that the ReplicaSet controller reads."""
FINISHED_PHASES = frozenset({"Failed", "Succeeded"})
"""Phases of pods that no longer run, whatever their conditions say."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A pod condition: its status, and when that last changed (seconds; None: unknown)."""

    status: bool
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its requests and limits (nano-units by resource name) and its status.

    `requests_in_force` and `limits_in_force` are those of its status, None where that has none: while a resize is
    pending, deferred or refused they differ from the wanted ones. `ports` are the declared ones. `running` is None
    without a container status (in a document for `decide`); the container then counts as running.
    """

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    requests_in_force: Mapping[str, int] | None = None
    limits_in_force: Mapping[str, int] | None = None
    running: bool | None = None
    crash_looping: bool = False
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod's controller reference."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. Times are seconds since the epoch.

    `restarted_at`: the last start of a container that had run before. `ready` is None without a Ready condition.
    `gates` are the readiness gates with their status (False where the condition is missing, as for the kubelet).
    `deletion_cost`: of Ready pods the ReplicaSet controller deletes those with a lower cost first; `marked`: the
    companion set it. `endpoint_serving`: whether an EndpointSlice has the pod as serving, None where none lists it;
    with `endpoints_silent` that is what their silent watch last said. `waits_for`: why no node takes it, if none does.
    """

    namespace: str
    name: str
    uid: str
    created_at: float
    started_at: float | None = None
    restarted_at: float | None = None
    deleting: bool = False
    phase: str = "Running"
    ready: PodCondition | None = None
    containers_ready: bool = False
    gates: Mapping[str, bool] = field(default_factory=dict)
    pulled_out_annotation: bool = False
    deletion_cost: int = 0
    marked: bool = False
    endpoint_serving: bool | None = None
    endpoints_silent: bool = False
    ips: tuple[str, ...] = ()
    host_ip: str = ""
    host_network: bool = False
    owner: Owner | None = None
    template_hash: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    pod_requests: Mapping[str, int] = field(default_factory=dict)
    pod_limits: Mapping[str, int] = field(default_factory=dict)
    pod_requests_in_force: Mapping[str, int] | None = None
    pod_limits_in_force: Mapping[str, int] | None = None
    waits_for: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the Ready condition is True."""
        return self.ready is not None and self.ready.status

    @property
    def ready_since(self) -> float:
        """When the Ready condition last changed (seconds); when the pod was created where that is not known."""
        return self.ready.since if self.ready is not None and self.ready.since is not None else self.created_at


class PodAssessment(NamedTuple):
    """A pod, its state and the reason for it. `evidence` names the source of the state."""

    pod: Pod
    state: PodState
    reason: str
    evidence: str = ""
