"""The story's cluster in a model: pods as KWOK simulates them, metrics-server, the adapter, and the HPA controller.

Time is virtual, and nothing is started: `ModelStage` has what the player needs of a stage. The adapter's count is that
of `effective-load decide` on the observed objects, and the HPAs are those of `effective-load hpa`.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field

from adapter.hpa.controller import Controller, Sync, Values
from adapter.hpa.pods import ModelPod, ModelSample
from adapter.load.quantity import parse_quantity
from adapter.policy.hpa import parse_hpa
from lab.demo.objects import AT_FIRST, OURS, PODS_AT_FIRST, PULLED_OUT, STOCK, USAGE, Object, manifests
from lab.demo.observe import Observation
from lab.demo.reasons import Reason, Reasoner
from lab.demo.sharing import usages

BEGAN = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_AGE = 60
"""The pods' age at the beginning of the story, in seconds."""
_STARTS = 1
_STOPS = 1
"""Seconds until KWOK makes a pod Ready, and until it removes a deleted one."""
_NODES = 3
_RESOLUTION = 10
"""The interval of metrics-server in seconds, which is also the window of its samples."""
_FIRST_SCRAPE = 7
"""The first scrape of the story in seconds: the stage begins it 3 s after one (`stage.AFTER_SCRAPE`)."""
_SCRAPES_BEFORE = 2
"""Scrapes of a new pod without a sample: metrics-server drops a counter of 0, and a rate needs two values."""
_FETCH = 2
_SYNC = 3
"""The intervals at which the adapter reads samples and the HPA controller syncs, in seconds."""


@dataclass
class SimulatedPod:
    """A pod. Times are seconds since the story began; `usage` is in millicores."""

    name: str
    node: int
    created: int
    usage: int = AT_FIRST
    deleted: int | None = None
    out: bool = False
    scrapes: int = 0

    def ready(self, now: int) -> bool:
        return now >= self.created + _STARTS

    def as_object(self, app: str, now: int) -> Object:
        """The pod as the API server shows it."""
        notes = {USAGE: f"{self.usage}m"} | ({PULLED_OUT: "true"} if self.out else {})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-abc", "uid": "rs", "controller": True}
        metadata = {
            "name": self.name,
            "namespace": "demo",
            "uid": self.name,
            "creationTimestamp": _stamp(self.created),
            "labels": {"app": app, "pod-template-hash": "abc"},
            "annotations": notes,
            "ownerReferences": [owner],
        }
        if self.deleted is not None:
            metadata["deletionTimestamp"] = _stamp(self.deleted)
        since = self.created + _STARTS if self.ready(now) else self.created
        ready = {"type": "Ready", "status": str(self.ready(now)), "lastTransitionTime": _stamp(since)}
        running = {"name": "app", "ready": self.ready(now), "state": {"running": {"startedAt": _stamp(self.created)}}}
        status = {
            "phase": "Running",
            "startTime": _stamp(self.created),
            "conditions": [ready],
            "containerStatuses": [running],
        }
        return {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}, "status": status}

    def as_seen_by_hpa(self, now: int) -> ModelPod:
        since = self.created + (_STARTS if self.ready(now) else 0)
        return ModelPod(
            name=self.name,
            deleting=self.deleted is not None,
            ready=str(self.ready(now)),
            ready_since=since,
            started=self.created,
        )


@dataclass
class SimulatedService:
    """A Deployment with its HPA: the count, the pods, and the samples of metrics-server (time and millicores)."""

    name: str
    controller: Controller
    count: int = PODS_AT_FIRST
    pods: list[SimulatedPod] = field(default_factory=list)
    samples: dict[str, tuple[int, int]] = field(default_factory=dict)
    last: Sync | None = None
    messages: dict[int, str] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.count):
            self._create(-_AGE)
        for pod in self.pods:
            pod.scrapes = _SCRAPES_BEFORE
        self.scrape(_FIRST_SCRAPE - _RESOLUTION)

    def _create(self, now: int) -> None:
        self.pods.append(SimulatedPod(f"{self.name}-{self._made:02}", self._made % _NODES, now))
        self._made += 1

    @property
    def staying(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods if pod.deleted is None]

    def scrape(self, now: int) -> None:
        """A scrape of metrics-server: KWOK counts a pod's present usage for all of the time since the last one."""
        for pod in self.pods:
            if pod.ready(now):
                pod.scrapes += 1
            if pod.scrapes > _SCRAPES_BEFORE and pod.deleted is None:
                self.samples[pod.name] = now, pod.usage

    def sync(self, now: int, values: Values) -> None:
        """A sync of the HPA controller with the metric's answer, then the ReplicaSet controller."""
        pods = tuple(pod.as_seen_by_hpa(now) for pod in self.pods)
        self.last = self.controller.sync(now, self.count, [values], pods, status_replicas=len(self.staying))
        if self.last.replicas != self.count:
            self.count = self.last.replicas
            self.messages[self.count] = f"New size: {self.count}; reason: {self.last.reason}"
            self._scale(now)

    def _scale(self, now: int) -> None:
        """Creates pods, or deletes them: first on the fullest nodes, there the youngest, as a ReplicaSet does."""
        for _ in range(self.count - len(self.staying)):
            self._create(now)
        nodes = [pod.node for pod in self.staying]
        order = sorted(self.staying, key=lambda pod: (nodes.count(pod.node), pod.created, pod.name), reverse=True)
        for pod in order[: max(0, len(order) - self.count)]:
            pod.deleted = now

    def remove_deleted(self, now: int) -> None:
        self.pods = [pod for pod in self.pods if pod.deleted is None or now < pod.deleted + _STOPS]
        names = {pod.name for pod in self.pods}
        self.samples = {name: sample for name, sample in self.samples.items() if name in names}


class ModelStage:
    """Both services in a model. It is a stage, and the reader of that stage; `sleep` lets its time pass."""

    def __init__(self) -> None:
        self.namespace = "demo"
        self.pulled_out: dict[str, set[str]] = {OURS: set(), STOCK: set()}
        self.now = 0
        self._objects = {(item["kind"], item["metadata"]["name"]): item for item in manifests(self.namespace)}
        self._services = {name: SimulatedService(name, self._controller(name)) for name in (OURS, STOCK)}
        self._reasoner = Reasoner(self.namespace)
        self._fetched: list[Object] = self._usage()
        self._reason: Reason | None = None
        self._sync()

    def _controller(self, name: str) -> Controller:
        return Controller(parse_hpa(self._objects["HorizontalPodAutoscaler", name]))

    @property
    def reader(self) -> "ModelStage":
        return self

    def clock(self) -> float:
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        """Lets whole seconds pass."""
        for _ in range(max(1, round(seconds))):
            self.now += 1
            self._second()

    def _second(self) -> None:
        for service in self._services.values():
            service.remove_deleted(self.now)
            if (self.now - _FIRST_SCRAPE) % _RESOLUTION == 0:
                service.scrape(self.now)
        if self.now % _FETCH == 0:
            self._fetched = self._usage()
        self._reason = self._reasoner.consider(self._observed(self._fetched)) or self._reason
        if self.now % _SYNC == 0:
            self._sync()

    def _sync(self) -> None:
        if self._reason is None:
            self._reason = self._reasoner.consider(self._observed(self._fetched))
        served = self._reason.answer["served"] if self._reason else None
        answer: Values = "no answer yet" if served is None else [_milli(served)]
        self._services[OURS].sync(self.now, answer)
        stock = self._services[STOCK]
        stock.sync(self.now, {name: ModelSample(value, at, _RESOLUTION) for name, (at, value) in stock.samples.items()})

    # -- what a player needs

    def observe(self) -> Observation:
        """The objects at this moment, as the API server would show them."""
        return self._observed(self._usage())

    def _observed(self, usage: list[Object]) -> Observation:
        return Observation(
            now=BEGAN + dt.timedelta(seconds=self.now),
            pods={
                name: [pod.as_object(name, self.now) for pod in service.pods]
                for name, service in self._services.items()
            },
            deployments={name: self._deployment(service) for name, service in self._services.items()},
            hpas={name: self._hpa(service) for name, service in self._services.items()},
            usage=usage,
            figures=dict(self._figures()),
        )

    def rescale_message(self, name: str, count: int) -> str:
        """The message of the HPA's event for this count."""
        return self._services[name].messages.get(count, "")

    def load(self, observation: Observation, demand: int) -> None:
        """Sets each pod's share of the demand."""
        for name, service in self._services.items():
            wanted = usages(observation.replicas(name), self.pulled_out[name], demand)
            for pod in service.pods:
                pod.usage = wanted.get(pod.name, pod.usage)

    def pull_out(self, name: str, pods: list[str], annotation: str) -> None:
        """Stops requests to these pods; the adapter learns it by annotation, the stock HPA has no way to learn it."""
        self.pulled_out[name].update(pods)
        for pod in self._services[name].pods:
            if name == OURS and pod.name in pods:
                pod.out = annotation == PULLED_OUT

    def _usage(self) -> list[Object]:
        return [
            _pod_metrics(name, *sample)
            for service in self._services.values()
            for name, sample in service.samples.items()
        ]

    def _deployment(self, service: SimulatedService) -> Object:
        made = self._objects["Deployment", service.name]
        status = {"replicas": len(service.staying), "conditions": []}
        return {**made, "spec": {**made["spec"], "replicas": service.count}, "status": status}

    def _hpa(self, service: SimulatedService) -> Object:
        made = self._objects["HorizontalPodAutoscaler", service.name]
        usage = [one.usage for one in (service.last.proposals if service.last else ()) if not isinstance(one, str)]
        current = [{"resource": {"name": "cpu", "current": {"averageValue": f"{one}m"}}} for one in usage]
        return made if service.name == OURS else {**made, "status": {"currentMetrics": current}}

    def _figures(self) -> Iterator[tuple[str, int]]:
        if self._reason is None:
            return
        answer = self._reason.answer
        (cpu,) = answer["metrics"]
        values = {"effective_cpu": cpu["usage"], "raw_cpu": cpu["raw"], "desired_replicas": answer["served"]}
        yield from ((name, _milli(value)) for name, value in values.items() if value is not None)


def _milli(text: str) -> int:
    return round(parse_quantity(text) * 1000)


def _stamp(seconds: int) -> str:
    return (BEGAN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod_metrics(name: str, at: int, cpu: int) -> Object:
    containers = [{"name": "app", "usage": {"cpu": f"{cpu}m", "memory": "10Mi"}}]
    return {"metadata": {"name": name}, "timestamp": _stamp(at), "window": f"{_RESOLUTION}s", "containers": containers}
