"""The pods of a replayed service, and the ReplicaSet controller that creates and deletes them."""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from adapter.commands.replay.model import Setup
from adapter.hpa.pods import ModelPod, milli
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


class ServicePods:
    """All pods of a service: `serving` ones carry load, `out` ones are pulled out, `starting` ones are not Ready yet.

    The oldest of each come first. `version` changes with every change that the API would show.
    """

    def __init__(self, setup: Setup, at: float, *, deletes_pulled_out_first: bool = False) -> None:
        self._setup, self._deletes_pulled_out_first = setup, deletes_pulled_out_first
        self._containers = (Container("app", requests=setup.requests, limits=setup.limits, running=True),)
        self._made = 0
        self.starting: deque[ServicePod] = deque()
        self._shown: tuple[Pod, ...] | None = None
        self._models: tuple[ModelPod, ...] | None = None
        self.wanted_out = 0
        self.serving: list[ServicePod] = []
        self.out: list[ServicePod] = []
        self.version = 0
        self.next_event = inf
        self.scale(setup.replicas, at - LONG_AGO)
        self.advance(at)

    @property
    def replicas(self) -> int:
        """All pods."""
        return len(self.serving) + len(self.out) + len(self.starting)

    def shown(self) -> tuple[Pod, ...]:
        """The pods as the API shows them; the same object while they do not change."""
        if self._shown is None:
            self._shown = tuple(map(self._show, sorted([*self.serving, *self.out, *self.starting], key=_number)))
        return self._shown

    def models(self) -> tuple[ModelPod, ...]:
        """The pods as the model of the HPA takes them; the same object while they do not change."""
        if self._models is None:
            requests = {name: milli(amount) for name, amount in self._setup.requests.items()}
            self._models = tuple(
                ModelPod(
                    name=pod.name,
                    ready=str(pod.ready.status),
                    ready_since=pod.ready.since or 0.0,
                    started=pod.created_at,
                    requests=requests,
                    containers={"app": requests},
                )
                for pod in self.shown()
                if pod.ready is not None
            )
        return self._models

    def advance(self, now: float) -> None:
        """Pods become Ready."""
        while self.starting and self.starting[0].ready_at <= now:
            pod = self.starting.popleft()
            pod.is_ready = True
            self.serving.append(pod)
            self._changed()
        self._settle(now)

    def scale(self, replicas: int, now: float) -> None:
        """Create or delete pods, so that there are this many."""
        for _ in range(replicas - self.replicas):
            self._made += 1
            ready_at = now + self._setup.pod_startup
            pod = ServicePod(self._made, f"service-1-{self._made:06}", now, ready_at, ready_at)
            self.starting.append(pod)
            self._changed()
        surplus = self.replicas - replicas
        if surplus > 0:
            # As the ReplicaSet controller deletes: not Ready ones, then by deletion cost and time of readiness.
            costly, ready = self._deletes_pulled_out_first, [*self.serving, *self.out]
            ready.sort(key=lambda pod: (costly and not pod.is_out, -pod.ready_at, -pod.number))
            for pod in [*reversed(self.starting), *ready][:surplus]:
                (self.out if pod.is_out else self.serving if pod.is_ready else self.starting).remove(pod)
                self._changed()
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
            self._changed()
        while len(self.out) > self.wanted_out:
            pod = self.out.pop(0)
            pod.is_out, pod.serving_since = False, now
            insort(self.serving, pod, key=_number)
            self._changed()
        self.next_event = self.starting[0].ready_at if self.starting else inf

    def _changed(self) -> None:
        self._shown = self._models = None
        self.version += 1

    def _show(self, pod: ServicePod) -> Pod:
        is_first = pod.is_out and self._deletes_pulled_out_first
        return Pod(
            namespace="replay",
            name=pod.name,
            uid=pod.name,
            created_at=pod.created,
            started_at=pod.created,
            ready=PodCondition(pod.is_ready, pod.ready_at if pod.is_ready else pod.created),
            containers_ready=pod.is_ready,
            pulled_out_annotation=pod.is_out,
            deletion_cost=LOWEST_COST if is_first else 0,
            marked=is_first,
            owner=Owner("ReplicaSet", "service-1"),
            template_hash="1",
            containers=self._containers,
        )
