"""The story's cluster in a model: pods, the adapter and the HPA controller as in a replay, and metrics-server.

Time is virtual, and nothing is started: `ModelStage` has what the player needs of a stage. The adapter's count is that
of `effective-load decide` on the observed objects, the HPAs are the model of `adapter.hpa`, and pods come and go as
those of `effective-load replay`. Unlike a replay it has the moments of each scrape, fetch and sync, as the real stage.
"""

import datetime as dt
from collections import Counter

from adapter.commands.replay.autoscalers import ModelPods
from adapter.commands.replay.model import Setup
from adapter.commands.replay.pods import ServicePods
from adapter.hpa.controller import Controller, Sync, Values
from adapter.hpa.pods import ModelSample
from adapter.load.pods import Pod
from adapter.policy.hpa import parse_hpa
from lab.demo.curve import usages
from lab.demo.objects import AT_FIRST, OURS, PODS_AT_FIRST, PULLED_OUT, STOCK, Object, scaling, workloads
from lab.demo.observe import Observation, milli_of
from lab.demo.reasons import Reason, Reasoner
from lab.harness.kwok import USAGE_CPU

BEGAN = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_SETUP = Setup(replicas=PODS_AT_FIRST, pod_startup=1, pod_shutdown=1)
"""KWOK makes a pod Ready, and removes a deleted one, after a second."""
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


class SimulatedService:
    """A Deployment with its HPA: the count, the pods, and what metrics-server has measured of them.

    Times are seconds since the story began. `usage` is in millicores by pod, `samples` are (time, millicores) by pod.
    """

    def __init__(self, deployment: Object, hpa: Object) -> None:
        self.name: str = deployment["metadata"]["name"]
        self.count = PODS_AT_FIRST
        self.pods = ServicePods(_SETUP, 0, workload=self.name, nodes=_NODES)
        self.usage: dict[str, int] = {}
        self.samples: dict[str, tuple[int, int]] = {}
        self.last: Sync | None = None
        self.messages: dict[int, str] = {}
        self._deployment, self.hpa = deployment, hpa
        self._controller = Controller(parse_hpa(hpa))
        self._models = ModelPods()
        self._scrapes = Counter({pod.name: _SCRAPES_BEFORE for pod in self.pods.serving})
        self.scrape(_FIRST_SCRAPE - _RESOLUTION)

    def scrape(self, now: int) -> None:
        """A scrape of metrics-server: KWOK counts a pod's present usage for all of the time since the last one."""
        for pod in self.pods.serving:
            self._scrapes[pod.name] += 1
            if self._scrapes[pod.name] > _SCRAPES_BEFORE:
                self.samples[pod.name] = now, self.usage.get(pod.name, AT_FIRST)

    def sync(self, now: int, values: Values) -> None:
        """A sync of the HPA controller with the metric's answer, then the ReplicaSet controller."""
        pods = self._models.of(self.pods.shown())
        self.last = self._controller.sync(now, self.count, [values], pods, status_replicas=self.pods.replicas)
        if self.last.replicas != self.count:
            self.count = self.last.replicas
            self.messages[self.count] = f"New size: {self.count}; reason: {self.last.reason}"
            self.pods.scale(self.count, now)

    def advance(self, now: int) -> None:
        """Pods become Ready, and deleted ones are gone, with their samples."""
        self.pods.advance(now)
        names = {pod.name for pod in self.pods.shown()}
        self.samples = {name: sample for name, sample in self.samples.items() if name in names}

    def deployment(self) -> Object:
        """The Deployment as the API server shows it."""
        status = {"replicas": self.pods.replicas, "conditions": []}
        return {**self._deployment, "spec": {**self._deployment["spec"], "replicas": self.count}, "status": status}

    def pod(self, pod: Pod, now: int, *, is_out: bool) -> Object:
        """A pod as the API server shows it."""
        assert pod.ready is not None
        since = _stamp(pod.created_at)
        notes = {USAGE_CPU: f"{self.usage.get(pod.name, AT_FIRST)}m"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{self.name}-abc", "uid": "rs"}
        metadata = {
            "name": pod.name,
            "namespace": "demo",
            "uid": pod.uid,
            "creationTimestamp": since,
            "labels": {"app": self.name, "pod-template-hash": "abc"},
            "annotations": notes | ({PULLED_OUT: "true"} if is_out else {}),
            "ownerReferences": [owner | {"controller": True}],
            **({"deletionTimestamp": _stamp(now)} if pod.deleting else {}),
        }
        ready = {"type": "Ready", "status": str(pod.is_ready), "lastTransitionTime": _stamp(pod.ready.since or 0)}
        running = {"name": "app", "ready": pod.is_ready, "state": {"running": {"startedAt": since}}}
        status = {"phase": "Running", "startTime": since, "conditions": [ready], "containerStatuses": [running]}
        return {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}, "status": status}


class ModelStage:
    """Both services in a model; `sleep` lets its time pass."""

    def __init__(self) -> None:
        self.namespace = "demo"
        self.pulled_out: dict[str, set[str]] = {OURS: set(), STOCK: set()}
        self.now = 0
        _, *hpas = scaling(self.namespace)
        made = [SimulatedService(*pair) for pair in zip(workloads(self.namespace), hpas, strict=True)]
        self._services = {service.name: service for service in made}
        self._reasoner = Reasoner(self.namespace)
        self._reason: Reason | None = None
        self._fetched = self._usage()
        self._decide()
        self._sync()

    def clock(self) -> float:
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        """Lets whole seconds pass."""
        for _ in range(max(1, round(seconds))):
            self.now += 1
            for service in self._services.values():
                service.advance(self.now)
                if (self.now - _FIRST_SCRAPE) % _RESOLUTION == 0:
                    service.scrape(self.now)
            if self.now % _FETCH == 0:
                self._fetched = self._usage()
            self._decide()
            if self.now % _SYNC == 0:
                self._sync()

    def _decide(self) -> None:
        """The adapter decides on what it fetched last."""
        self._reason = self._reasoner.consider(self._observed(self._fetched)) or self._reason

    def _sync(self) -> None:
        served = self._reason.answer["served"] if self._reason else None
        self._services[OURS].sync(self.now, "no answer yet" if served is None else [milli_of(served)])
        stock = self._services[STOCK]
        stock.sync(self.now, {name: ModelSample(value, at, _RESOLUTION) for name, (at, value) in stock.samples.items()})

    # -- what a player needs

    def observe(self) -> Observation:
        """The objects at this moment, as the API server would show them."""
        return self._observed(self._usage())

    def rescale_message(self, name: str, count: int) -> str:
        """The message of the HPA's event for this count."""
        return self._services[name].messages.get(count, "")

    def load(self, observation: Observation, demand: int) -> None:
        """Sets each pod's share of the demand."""
        for name, service in self._services.items():
            service.usage |= usages(observation.replicas(name), self.pulled_out[name], demand)

    def pull_out(self, name: str, pods: list[str]) -> None:
        """Stops requests to these pods; the adapter learns it by annotation, the stock HPA has no way to learn it."""
        self.pulled_out[name].update(pods)

    # -- the objects

    def _observed(self, usage: list[Object]) -> Observation:
        annotated = self.pulled_out[OURS]
        services = self._services.items()
        return Observation(
            now=BEGAN + dt.timedelta(seconds=self.now),
            pods={
                name: [service.pod(pod, self.now, is_out=pod.name in annotated) for pod in service.pods.shown()]
                for name, service in services
            },
            deployments={name: service.deployment() for name, service in services},
            hpas={OURS: self._services[OURS].hpa, STOCK: self._stock_hpa()},
            usage=usage,
            figures=self._figures(),
        )

    def _usage(self) -> list[Object]:
        return [
            {
                "metadata": {"name": name},
                "timestamp": _stamp(at),
                "window": f"{_RESOLUTION}s",
                "containers": [{"name": "app", "usage": {"cpu": f"{cpu}m", "memory": "10Mi"}}],
            }
            for service in self._services.values()
            for name, (at, cpu) in service.samples.items()
        ]

    def _stock_hpa(self) -> Object:
        stock = self._services[STOCK]
        usage = [one.usage for one in (stock.last.proposals if stock.last else ()) if not isinstance(one, str)]
        current = [{"resource": {"name": "cpu", "current": {"averageValue": f"{one}m"}}} for one in usage]
        return {**stock.hpa, "status": {"currentMetrics": current}}

    def _figures(self) -> dict[str, int]:
        if self._reason is None:
            return {}
        answer = self._reason.answer
        (cpu,) = answer["metrics"]
        values = {"effective_cpu": cpu["usage"], "raw_cpu": cpu["raw"], "desired_replicas": answer["served"]}
        return {name: milli_of(value) for name, value in values.items() if value is not None}


def _stamp(seconds: float) -> str:
    return (BEGAN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
