"""The age of the sample behind an answer: each page has the moment of its scrape, and the adapters are asked for it."""

import random
import time
from typing import Any

from lab.benchmarks.peers.contenders import (
    Contender,
    OfKeda,
    OfKedaCached,
    OfPrometheusAdapter,
    OursQuery,
    announce,
    sample_time_path,
)
from lab.benchmarks.prometheus_scene import PrometheusScene, Size
from lab.benchmarks.scene import Service
from lab.harness.client import Client
from lab.harness.quantities import number
from lab.harness.workloads import until

SERVICES = 40
SETTLE_SECONDS = 35
"""The first answer of an adapter that polls is younger than later ones."""
SECONDS = 90.0

Figures = dict[str, Any]


def run() -> Figures:
    """Asks all adapters at once, at random moments."""
    with PrometheusScene(Size(services=100, scaled=SERVICES), wait=False) as stage:
        live = OfKeda(stage, stage.scaled[: SERVICES // 2])
        cached = OfKedaCached(stage, stage.scaled[SERVICES // 2 :], programs=live.keda)
        contenders: list[Contender] = [OursQuery(stage), OfPrometheusAdapter(stage), live, cached]
        try:
            for contender in contenders[:2]:
                contender.start()
            live.install()
            for one in (live, cached):
                for service in one.services:
                    stage.cluster.client.apply(_timed(stage, service, cached=one.cached))
            announce("wait")
            asked = {
                contender: [sample_time_path(contender, service) for service in contender.services]
                for contender in contenders
            }
            for contender, paths in asked.items():
                client = contender.client()
                for path in paths:
                    until(lambda c=client, p=path: _value(c, p) > 1e9, 60, lambda p=path: p)
            time.sleep(SETTLE_SECONDS)
            ages = _ages(asked)
        finally:
            for contender in contenders:
                contender.kill()
    titles = {contender.name: {"title": contender.title} for contender in contenders}
    scraped = {"scrape_seconds": stage.size.scrape_seconds}
    return {**scraped, "contenders": {name: {**titles[name], **age} for name, age in ages.items()}}


def _ages(asked: dict[Contender, list[str]]) -> Figures:
    chance = random.Random(15)
    ages: dict[str, list[float]] = {contender.name: [] for contender in asked}
    clients = {contender.name: contender.client() for contender in asked}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for contender, paths in asked.items():
            value = _value(clients[contender.name], chance.choice(paths))
            ages[contender.name].append(time.time() - value)
        time.sleep(chance.uniform(0.05, 0.2))
    return {name: _summary(values) for name, values in ages.items()}


def _timed(stage: PrometheusScene, service: Service, *, cached: bool) -> Figures:
    item = stage.scaled_object(service, cached=cached)
    selector = f'{{namespace="{service.namespace}",service="{service.name}"}}'
    item["spec"]["triggers"][0]["metadata"] |= {"query": f"max(sample_time_seconds{selector})", "threshold": "1e9"}
    return item


def _value(client: Client, path: str) -> float:
    answer = client.raw(path, timeout=10)
    items = answer.json().get("items") or [{}] if answer.status == 200 else [{}]
    return float(number(str(items[0].get("value", "0"))))


def _summary(values: list[float]) -> Figures:
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return {"mean": round(sum(values) / len(values), 1), "p50": round(middle, 1), "max": round(ordered[-1], 1)}
