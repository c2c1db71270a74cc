"""Twelve policies over several kinds, sources and registries, and what each of them is answered."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.engine import Engine
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import Settings
from adapter.telemetry.metrics import Metrics
from tests.engine.cluster import KINDS, PREFIXES, Cluster, Object
from tests.registries.http_kit import Platform, said
from tests.usage.fakes import FakePrometheus

SILENCE_SECONDS = 4.0
"""How long a watch is used without proof of life: longer than a busy machine keeps it from its turn."""
CREATED = "2026-01-01T00:00:00Z"
VERSIONS = {plural: PREFIXES[plural].removeprefix("/apis/") for plural in KINDS}


class Service(NamedTuple):
    """A policy, and what it uses. `source` is `cpu` or the Prometheus server's name."""

    namespace: str
    name: str
    kind: str
    source: str
    registry: str = ""


SERVICES = (
    Service("shop", "s0", "deployments", "cpu"),
    Service("shop", "s1", "deployments", "one", "first"),
    Service("shop", "s2", "deployments", "two", "second"),
    Service("shop", "s3", "statefulsets", "cpu", "first"),
    Service("shop", "s4", "statefulsets", "one"),
    Service("shop", "s5", "statefulsets", "two", "second"),
    Service("cart", "s6", "widgets", "cpu", "second"),
    Service("cart", "s7", "widgets", "one"),
    Service("cart", "s8", "widgets", "two", "first"),
    Service("cart", "s9", "deployments", "cpu", "first"),
    Service("cart", "s10", "statefulsets", "one", "second"),
    Service("cart", "s11", "deployments", "two"),
)
PODS = 3
DESIRED = "5"
"""Three pods at 150 with a high watermark of 100."""
PATIENCE_SECONDS = 120.0
"""Hundreds of objects on a processor that others use as well; a test that passes waits for none of it."""


@dataclass
class Stand:
    """The engine, what it hears, and what it has the server answer."""

    cluster: Cluster
    session: Session
    engine: Engine
    metrics: Metrics
    proms: dict[str, FakePrometheus]
    platforms: dict[str, Platform]
    provider: MetricsProvider
    services: list[Service] = field(default_factory=list)

    def add(self, service: Service) -> None:
        """The workload with its pods, its HPA and its policy."""
        self.services.append(service)
        cluster, namespace = self.cluster, service.namespace
        cluster.put(service.kind, _target(service))
        for pod in _pods(service):
            cluster.put("pods", pod)
            cluster.usage[namespace][pod["metadata"]["name"]] = "150m"
        cluster.put("horizontalpodautoscalers", _hpa(service))
        cluster.put("watermarkpolicies", _policy(service))
        if service.source != "cpu":
            rows = self.proms[service.source].rows.setdefault(_query(service.source), [])
            rows += [({"namespace": namespace, "pod": pod}, "150") for pod in names(service)]

    async def answer(self, service: Service) -> str:
        """What its HPA is answered: the count, or the sentence."""
        where = f"namespaces/{service.namespace}/watermarkpolicies.effective-load.io/{service.name}"
        try:
            body = await self.provider.answer(
                parse_target(f"/apis/custom.metrics.k8s.io/v1beta2/{where}/desired_replicas")
            )
        except StatusError as error:
            return error.message
        return str(msgspec.json.decode(body)["items"][0]["value"])

    async def answers(self, wanted: Collection[str] | None = None) -> dict[str, str]:
        """What these services, or all, are answered."""
        return {one.name: await self.answer(one) for one in self.services if wanted is None or one.name in wanted}

    async def until_answered(self, wanted: Collection[str] | None = None) -> None:
        """Wait until these services, or all, are answered the count."""

        async def counted() -> bool:
            return set((await self.answers(wanted)).values()) <= {DESIRED}

        await until(counted, PATIENCE_SECONDS, self.answers)

    async def until_refused(self, wanted: Collection[str], contains: str = "") -> None:
        """Wait until none of these services is answered a count."""

        async def refused() -> bool:
            found = await self.answers(wanted)
            return all(not answer.isdigit() and contains in answer for answer in found.values())

        await until(refused, PATIENCE_SECONDS, self.answers)

    def status(self, service: Service) -> Object:
        """What its policy's status says."""
        return dict(
            self.cluster.objects["watermarkpolicies"][f"{service.namespace}/{service.name}"].get("status") or {}
        )

    def silent(self, resource: str) -> float | None:
        """The metric of silent watches."""
        return self.metrics.registry.get_sample_value("effective_load_watch_stale", {"resource": resource})


async def until(holds: Callable[[], Any], seconds: float, otherwise: Callable[[], Any]) -> None:
    """Poll until it holds: what the engine makes of its inputs is told by nobody."""
    deadline = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s: {await otherwise()}")
        await asyncio.sleep(0.25)


@contextlib.asynccontextmanager
async def standing(*services: Service, **settings: Any) -> AsyncIterator[Stand]:
    """An engine with two Prometheus servers and two registries, over a cluster of these services."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster())
        proms = {name: await stack.enter_async_context(FakePrometheus()) for name in ("one", "two")}
        for prom in proms.values():
            prom.handler = _dated(prom)
        platforms = {name: Platform() for name in ("first", "second")}
        for platform in platforms.values():
            await _served(stack, platform)
        metrics = Metrics()
        session = await stack.enter_async_context(Session(cluster.load, metrics=metrics))
        engine = Engine(_settings(proms, platforms, settings), session, metrics)
        scales = ScaleReader(session, metrics)
        scales.deadline_seconds = 5.0  # a busy machine is no slow server
        provider = MetricsProvider(engine.snapshots, scales, engine.stale, engine.filling, session.now)
        stand = Stand(cluster, session, engine, metrics, proms, platforms, provider)
        for service in services:
            stand.add(service)
        yield stand


@contextlib.asynccontextmanager
async def running(stand: Stand) -> AsyncIterator[Stand]:
    """The same while the engine runs."""
    task = asyncio.create_task(stand.engine.run())
    try:
        yield stand
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _served(stack: contextlib.AsyncExitStack, platform: Platform) -> None:
    platform.answer = said()
    app = web.Application()
    app.router.add_route("*", "/roster", platform.handle)
    server = await stack.enter_async_context(TestServer(app))
    platform.url = str(server.make_url("/roster"))


def _dated(prom: FakePrometheus) -> Callable[[web.Request, dict[str, str]], Any]:
    """Answers of this moment."""

    async def answer(request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        prom.sampled_at = time.time()
        return await prom.by_rows(request, form)

    return answer


def _query(source: str) -> str:
    return f"sum by (namespace, pod) ({source})"


def _settings(proms: dict[str, FakePrometheus], platforms: dict[str, Platform], more: dict[str, Any]) -> Settings:
    brief = {"interval_seconds": 0.5, "max_age_seconds": 12}  # a busy machine must not make other samples too old
    more["kubernetes"] = {"watch_silence_seconds": SILENCE_SECONDS, **more.get("kubernetes", {})}
    return Settings.model_validate(
        {
            "resource_metrics": brief,
            "prometheus": {
                "servers": [{"name": name, "url": prom.url} for name, prom in proms.items()],
                "queries": [{"name": name, "server": name, "query": _query(name), **brief} for name in proms],
            },
            "registries": [
                {"name": name, "type": "HTTP", "url": platform.url, "interval_seconds": 0.5}
                for name, platform in platforms.items()
            ],
            **more,
        }
    )


def names(service: Service) -> list[str]:
    """Its pods' names."""
    return [f"{service.name}-{index}" for index in range(PODS)]


def _meta(namespace: str, name: str, **more: Any) -> Object:
    return {"namespace": namespace, "name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, **more}


def _target(service: Service) -> Object:
    selector: Any = {"matchLabels": {"app": service.name}}
    return {
        "apiVersion": VERSIONS[service.kind],
        "kind": KINDS[service.kind],
        "metadata": _meta(service.namespace, service.name),
        "spec": {"replicas": PODS, "selector": selector},
        "status": {"replicas": PODS, "selector": f"app={service.name}"},
    }


def _pods(service: Service) -> Iterable[Object]:
    by = {"Deployment": ("ReplicaSet", f"{service.name}-abc")}
    kind, owner = by.get(KINDS[service.kind], (KINDS[service.kind], service.name))
    for name in names(service):
        labels = {"app": service.name, "pod-template-hash": "abc"}
        owners = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}]
        yield {
            "metadata": _meta(service.namespace, name, labels=labels, ownerReferences=owners),
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {
                "phase": "Running",
                "startTime": CREATED,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
                "containerStatuses": [{"name": "app", "state": {"running": {}}}],
            },
        }


def _hpa(service: Service) -> Object:
    calm = {"tolerance": "0", "stabilizationWindowSeconds": 0}
    described = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": service.name}
    aim = {"type": "AverageValue", "averageValue": "1"}
    metric = {"describedObject": described, "metric": {"name": "desired_replicas"}, "target": aim}
    return {
        "metadata": _meta(service.namespace, service.name),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": VERSIONS[service.kind],
                "kind": KINDS[service.kind],
                "name": service.name,
            },
            "minReplicas": 1,
            "maxReplicas": 20,
            "behavior": {"scaleUp": calm, "scaleDown": calm},
            "metrics": [{"type": "Object", "object": metric}],
        },
        "status": {"conditions": [{"type": "ScalingActive", "status": "True"}]},
    }


def _policy(service: Service) -> Object:
    if service.source == "cpu":
        load: Object = {"resource": {"name": "cpu"}, "highWatermark": "100m", "lowWatermark": "40m"}
    else:
        load = {"query": {"name": service.source}, "highWatermark": "100", "lowWatermark": "40"}
    spec: Object = {"metrics": [{"name": "load", **load}]}
    if service.registry:
        spec["registry"] = {"name": service.registry, "service": service.name}
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": _meta(service.namespace, service.name, generation=1),
        "spec": spec,
    }
