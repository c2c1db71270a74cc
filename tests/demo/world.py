"""Test data of the demo: ticks, timelines, and observations of plain dictionaries."""

import dataclasses
import datetime as dt
from typing import Any

from lab.demo.objects import OURS, STOCK, USAGE, Object, manifests
from lab.demo.observe import Observation
from lab.demo.timeline import Mark, Side, Tick, Timeline

START = dt.datetime(2026, 1, 1, 12, 0, 0, tzinfo=dt.UTC)


def side(replicas: int, serving: int | None = None, **more: Any) -> Side:
    given = {"pods": replicas, **more}
    return Side(replicas=replicas, serving=replicas if serving is None else serving, **given)


def tick(at: float, demand: int = 5000, ours: Side | None = None, stock: Side | None = None) -> Tick:
    return Tick(at, demand, ours or side(5, seen=1000, raw=1000), stock or side(5, seen=1000))


def timeline(*ticks: Tick, end: float = 60, marks: tuple[Mark, ...] = ()) -> Timeline:
    return Timeline(1200, 400, 1200, end, ticks, marks)


def pulled_out_story() -> Timeline:
    """7 pods each, two pulled out at 10 s; ours recovers at 20 s, the stock service when demand falls at 40 s."""
    both = side(7, seen=1143, raw=1143)
    hit = side(7, serving=5, out=2, seen=1143, raw=1143)
    blind = side(7, serving=5, out=2, seen=1149)
    mended = side(9, serving=7, out=2, seen=1143, raw=830)
    return timeline(
        tick(0, 8000, both, both),
        tick(10, 8000, hit, hit),
        tick(20, 8000, mended, blind),
        tick(40, 3000, mended, blind),
        end=60,
        marks=(Mark(10, "2 pods pulled out"),),
    )


def stamp(seconds: float) -> str:
    return (START + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(app: str, name: str, *, usage: int | None = None, ready: bool = True, out: bool = False) -> Object:
    """A pod created long before the story."""
    notes = {"effective-load.io/pulled-out": "true"} if out else {}
    notes |= {USAGE: f"{usage}m"} if usage is not None else {}
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": stamp(-3600)}
    return {
        "metadata": {
            "name": name,
            "namespace": "demo",
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(-3600),
            "labels": {"app": app, "pod-template-hash": "abc"},
            "annotations": notes,
            "managedFields": [{"manager": "kwok"}],
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-abc", "uid": "rs", "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "app", "image": "example.invalid/app:1"}], "nodeName": "node-0"},
        "status": {
            "phase": "Running",
            "startTime": stamp(-3600),
            "conditions": [condition],
            "containerStatuses": [{"name": "app", "ready": ready, "state": {"running": {"startedAt": stamp(-3600)}}}],
        },
    }


def pods(app: str, count: int, **more: Any) -> list[Object]:
    return [pod(app, f"{app}-{index}", **more) for index in range(count)]


def observation(
    ours: list[Object],
    stock: list[Object],
    *,
    at: float = 0,
    counts: tuple[int, int] | None = None,
    figures: dict[str, int] | None = None,
    usage: dict[str, int] | None = None,
    stock_average: str | None = None,
) -> Observation:
    """An observation of these pods; `usage` is millicores by pod in metrics.k8s.io."""
    made = {(item["kind"], item["metadata"]["name"]): item for item in manifests("demo")}
    set_to = dict(zip((OURS, STOCK), counts or (len(ours), len(stock)), strict=True))
    deployments = {}
    for name, count in set_to.items():
        deployment = made["Deployment", name]
        status = {"replicas": count, "conditions": []}
        deployments[name] = {**deployment, "spec": {**deployment["spec"], "replicas": count}, "status": status}
    hpas = {name: dict(made["HorizontalPodAutoscaler", name]) for name in (OURS, STOCK)}
    if stock_average is not None:
        current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": stock_average}}}
        hpas[STOCK]["status"] = {"currentMetrics": [current]}
    return Observation(
        now=START + dt.timedelta(seconds=at),
        pods={OURS: ours, STOCK: stock},
        deployments=deployments,
        hpas=hpas,
        usage=[pod_metrics(name, cpu, at) for name, cpu in (usage or {}).items()],
        figures=figures or {},
    )


def pod_metrics(name: str, cpu: int, at: float) -> Object:
    containers = [{"name": "app", "usage": {"cpu": f"{cpu}m", "memory": "10Mi"}}]
    return {"metadata": {"name": name}, "timestamp": stamp(at), "window": "10s", "containers": containers}


def changed(one: Side, **fields: Any) -> Side:
    return dataclasses.replace(one, **fields)
