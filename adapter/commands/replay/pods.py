"""The pods of a replayed service, and the ReplicaSet controller that creates and deletes them."""

from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from adapter.commands.replay.service import Setup
from adapter.load.pods import LOWEST_COST, Container, Owner, Pod, PodCondition
from adapter.runtime.faults import Fault, FaultyDocument

MOST_PODS = 100_000
"""Each pod of the model is an object in memory."""
LONG_AGO = 86_400.0
"""The age of the pods that there are at the beginning (seconds)."""
_NAMESPACE = "replay"
_number = attrgetter("number")


@dataclass(slots=True, eq=False)
class ServicePod:
    """A pod. Times are seconds since the epoch; `number` counts the pods in order of creation.

    `revision` is that of its template. `carries_since`: since when it carries load, None while it does not. `spells`:
    earlier times of carrying load, as far as samples still cover them.
    """

    number: int
    name: str
    revision: int
    created: float
    ready_at: float
    is_ready: bool = False
    is_out: bool = False
    gone_at: float | None = None
    carries_since: float | None = None
    spells: list[tuple[float, float]] = field(default_factory=list)
    shown: Pod | None = None


class ServicePods:
    """All pods of a service. `serving` ones carry load, the oldest first.

    `out` ones are pulled out, the first of them first; at most `wanted_out` are. `version` changes with every change
    that the API would show. Pods are spread over `nodes`; a pod on the fullest one is deleted first.
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
        self._setup = setup
        self._deletes_pulled_out_first = deletes_pulled_out_first
        self._workload = workload
        self._nodes = nodes
        self._containers = (Container("app", requests=setup.requests, limits=setup.limits, running=True),)
        self._made = 0
        self._wanted = 0
        self._revision = 1
        self._surge = 0
        self.wanted_out = 0
        self._starting: deque[ServicePod] = deque()
        self._stopping: deque[ServicePod] = deque()
        self._shown: tuple[Pod, ...] | None = None
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
        """The pods that there are, those that are being deleted included."""
        return self.replicas + len(self._stopping)

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
            pod.is_ready, pod.carries_since = True, pod.ready_at
            self.serving.append(pod)
            self._changed(pod)
        while self._stopping and (self._stopping[0].gone_at or 0.0) <= now:
            self._changed(self._stopping.popleft())
        self._settle(now)

    def scale(self, replicas: int, now: float) -> None:
        """Create or delete pods, so that there are this many, and the surge of a rolling update.

        Raises FaultyDocument for more than MOST_PODS.
        """
        if replicas > MOST_PODS:
            advice = f"a replay has at most {MOST_PODS:,} pods; lower maxReplicas, or look at the history's numbers"
            raise FaultyDocument([Fault("replicas", replicas, advice)], "this cannot be replayed")
        self._wanted = replicas
        for _ in range(replicas - self.replicas):
            self._create(now)
        surplus = self.replicas - replicas - self._surge
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

    def roll(self, surge: int, now: float) -> None:
        """Begin a rolling update, which replaces every pod: up to `surge` pods beyond the count, and none below it."""
        self._surge = surge
        self._revision += 1
        self._settle(now)

    def _replace_old(self, now: float) -> None:
        """The next step of a rolling update: delete old pods that new ones stand in for, and create new ones."""
        old = [pod for pod in (*self._starting, *self.serving, *self.out) if pod.revision < self._revision]
        surplus = len(self.serving) + len(self.out) - self._wanted
        gone = [pod for pod in old if not pod.is_ready]
        gone += [pod for pod in old if pod.is_ready][: max(0, surplus)]
        for pod in gone:
            self._delete(pod, now)
        left = len(old) - len(gone)
        new = self.replicas - left
        for _ in range(min(self._wanted - new, self._wanted + self._surge - self.replicas)):
            self._create(now)
        if not left:
            self._surge = 0

    def pull_out(self, count: int, now: float) -> None:
        """Have this many pods pulled out, as far as there are Ready ones."""
        self.wanted_out = count
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Go on with a rolling update. Pull out the oldest pods, or let those return that have been out longest."""
        if self._surge:
            self._replace_old(now)
        while len(self.out) < self.wanted_out and self.serving:
            pod = self.serving.pop(0)
            self._stop_carrying(pod, now)
            pod.is_out = True
            self.out.append(pod)
            self._changed(pod)
        while len(self.out) > self.wanted_out:
            pod = self.out.pop(0)
            pod.is_out, pod.carries_since = False, now
            insort(self.serving, pod, key=_number)
            self._changed(pod)
        ready = self._starting[0].ready_at if self._starting else inf
        gone = self._stopping[0].gone_at if self._stopping else None
        self.next_event = min(ready, inf if gone is None else gone)

    def _create(self, now: float) -> None:
        self._made += 1
        name = f"{self._workload}-{self._revision}-{self._made:06}"
        pod = ServicePod(self._made, name, self._revision, now, now + self._setup.starts)
        self._starting.append(pod)
        self._changed(pod)

    def _delete(self, pod: ServicePod, now: float) -> None:
        if not pod.is_ready:
            self._starting.remove(pod)
        elif pod.is_out:
            self.out.remove(pod)
        else:
            self.serving.remove(pod)
            self._stop_carrying(pod, now)
        pod.gone_at = now + self._setup.stops
        self._stopping.append(pod)
        self._changed(pod)

    def _stop_carrying(self, pod: ServicePod, now: float) -> None:
        if pod.carries_since is not None:
            oldest = now - self._setup.delay - (self._setup.window or 0.0) - 2 * self._setup.sync
            pod.spells = [spell for spell in pod.spells if spell[1] > oldest]
            pod.spells.append((pod.carries_since, now))
        pod.carries_since = None

    def _changed(self, pod: ServicePod) -> None:
        pod.shown = self._shown = None
        self.version += 1

    def _show(self, pod: ServicePod) -> Pod:
        is_first = pod.is_out and self._deletes_pulled_out_first
        pod.shown = Pod(
            namespace=_NAMESPACE,
            name=pod.name,
            uid=pod.name,
            created_at=pod.created,
            started_at=pod.created,
            deleting=pod.gone_at is not None,
            ready=PodCondition(pod.is_ready, pod.ready_at if pod.is_ready else pod.created),
            containers_ready=pod.is_ready,
            pulled_out_annotation=pod.is_out,
            deletion_cost=LOWEST_COST if is_first else 0,
            marked=is_first,
            owner=Owner("ReplicaSet", f"{self._workload}-{pod.revision}"),
            template_hash=str(pod.revision),
            containers=self._containers,
        )
        return pod.shown
