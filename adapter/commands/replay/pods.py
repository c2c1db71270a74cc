"""The pods of a replayed service, and the ReplicaSet controller that creates and deletes them."""

from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from adapter.commands.replay.model import Setup
from adapter.load.pods import LOWEST_COST, Container, Owner, Pod, PodCondition

LONG_AGO = 86_400.0
"""The age of the pods that exist at the beginning (seconds)."""
_number = attrgetter("number")


@dataclass(slots=True, eq=False)
class ServicePod:
    """A pod. Times are seconds since the epoch; `number` counts the pods in order of creation.

    It is `serving_since` then, also where it is no longer.
    """

    number: int
    name: str
    created: float
    ready_at: float
    serving_since: float
    is_ready: bool = False
    is_out: bool = False
    gone_at: float = inf
    shown: Pod | None = None


class ServicePods:
    """All pods of a service: `serving` ones carry load, `out` ones are pulled out; the oldest of each first.

    `version` changes with every change that the API would show. Pods are spread over `nodes`; a pod on the fullest
    node is deleted first.
    """

    def __init__(
        self,
        setup: Setup,
        at: float,
        *,
        deletes_pulled_out_first: bool = False,
        workload: str = "service",
        nodes: int = 1,
    ) -> None:
        self._setup, self._workload, self._nodes = setup, workload, nodes
        self._deletes_pulled_out_first = deletes_pulled_out_first
        self._containers = (Container("app", requests=setup.requests, limits=setup.limits, running=True),)
        self._made = 0
        self._starting: deque[ServicePod] = deque()
        self._stopping: deque[ServicePod] = deque()
        self._shown: tuple[Pod, ...] | None = None
        self.wanted_out = 0
        self.serving: list[ServicePod] = []
        self.out: list[ServicePod] = []
        self.version = 0
        self.next_event = inf
        self.scale(setup.replicas, at - LONG_AGO)
        self.advance(at)

    @property
    def replicas(self) -> int:
        """The pods that are not being deleted."""
        return len(self.serving) + len(self.out) + len(self._starting)

    @property
    def existing(self) -> int:
        """The pods that exist, those that are being deleted included."""
        return self.replicas + len(self._stopping)

    @property
    def are_settled(self) -> bool:
        """Whether no pod is starting or being deleted."""
        return not self._starting and not self._stopping

    def shown(self) -> tuple[Pod, ...]:
        """The pods as the API shows them; the same objects while they do not change."""
        if self._shown is None:
            pods = sorted([*self.serving, *self.out, *self._starting, *self._stopping], key=_number)
            self._shown = tuple(pod.shown or self._show(pod) for pod in pods)
        return self._shown

    def advance(self, now: float) -> None:
        """Pods become Ready, and deleted ones are gone."""
        while self._starting and self._starting[0].ready_at <= now:
            pod = self._starting.popleft()
            pod.is_ready = True
            self.serving.append(pod)
            self._changed(pod)
        while self._stopping and self._stopping[0].gone_at <= now:
            self._changed(self._stopping.popleft())
        self._settle(now)

    def scale(self, replicas: int, now: float) -> None:
        """Create or delete pods, so that there are this many."""
        for _ in range(replicas - self.replicas):
            self._made += 1
            ready_at = now + self._setup.pod_startup
            pod = ServicePod(self._made, f"{self._workload}-1-{self._made:06}", now, ready_at, ready_at)
            self._starting.append(pod)
            self._changed(pod)
        surplus = self.replicas - replicas
        if surplus > 0:
            # As the ReplicaSet controller deletes: not Ready ones, then by deletion cost, node, and time of readiness.
            ready = [*self.serving, *self.out]
            costly, nodes = self._deletes_pulled_out_first, self._nodes
            on_node = Counter(pod.number % nodes for pod in (*ready, *self._starting))
            ready.sort(
                key=lambda pod: (costly and not pod.is_out, -on_node[pod.number % nodes], -pod.ready_at, -pod.number)
            )
            for pod in [*reversed(self._starting), *ready][:surplus]:
                self._delete(pod, now)
        self._settle(now)

    def pull_out(self, count: int, now: float) -> None:
        """Have this many pods pulled out, as far as there are Ready ones."""
        self.wanted_out = count
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Pull out the oldest pods, or let those return that have been out longest."""
        while len(self.out) < self.wanted_out and self.serving:
            pod = self.serving.pop(0)
            pod.is_out = True
            self.out.append(pod)
            self._changed(pod)
        while len(self.out) > self.wanted_out:
            pod = self.out.pop(0)
            pod.is_out, pod.serving_since = False, now
            insort(self.serving, pod, key=_number)
            self._changed(pod)
        self.next_event = min(
            self._starting[0].ready_at if self._starting else inf, self._stopping[0].gone_at if self._stopping else inf
        )

    def _delete(self, pod: ServicePod, now: float) -> None:
        if not pod.is_ready:
            self._starting.remove(pod)
        else:
            (self.out if pod.is_out else self.serving).remove(pod)
        pod.gone_at = now + self._setup.pod_shutdown
        self._stopping.append(pod)
        self._changed(pod)

    def _changed(self, pod: ServicePod) -> None:
        pod.shown = self._shown = None
        self.version += 1

    def _show(self, pod: ServicePod) -> Pod:
        is_first = pod.is_out and self._deletes_pulled_out_first
        pod.shown = Pod(
            namespace="replay",
            name=pod.name,
            uid=pod.name,
            created_at=pod.created,
            started_at=pod.created,
            deleting=pod.gone_at != inf,
            ready=PodCondition(pod.is_ready, pod.ready_at if pod.is_ready else pod.created),
            containers_ready=pod.is_ready,
            pulled_out_annotation=pod.is_out,
            deletion_cost=LOWEST_COST if is_first else 0,
            marked=is_first,
            owner=Owner("ReplicaSet", f"{self._workload}-1"),
            template_hash="1",
            containers=self._containers,
        )
        return pod.shown
