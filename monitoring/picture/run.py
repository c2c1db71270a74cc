"""The demo's story on a real control plane, with more services beside it, seen by a real Prometheus."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.demo.curve import FULL
from lab.demo.play import Player
from lab.demo.stage import HPA_SYNC, Stage
from lab.demo.story import Narrator
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Prometheus
from lab.harness.registries.consul import Consul
from monitoring.picture.fleet import REGISTRY, SETTINGS, fleet, lose

STEP = 1.0
"""Seconds between two scrapes."""
BEFORE, AFTER = 5.0, 5.0
"""Seconds before the story's first moment and after its last that the pictures show."""
NODES = 5

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Story:
    """A Prometheus that has seen the story, and when that was (epoch seconds)."""

    server: Prometheus
    begin: float
    end: float


@contextmanager
def told(announce: Announce) -> Iterator[Story]:
    """Plays the story, and gives Prometheus while it runs."""
    with ControlPlane(nodes=NODES, hpa_sync=HPA_SYNC, announce=announce) as cluster, Consul() as registry:
        install_crds(cluster)
        reset_lease(cluster)
        settings = {**SETTINGS, "registries": [{"name": REGISTRY, "type": "Consul", "servers": [registry.url]}]}
        adapter = AdapterProcess(cluster, settings, kubeconfig=account_kubeconfig(cluster))
        companion = CompanionProcess(cluster, settings, kubeconfig=companion_kubeconfig(cluster))
        with adapter, companion, scraping(adapter, companion) as server, fleet(cluster, registry):
            lose(cluster, registry)
            stage = Stage(cluster)
            stage.set_up(FULL.demand(0), announce)
            begin = time.time() - BEFORE
            Player(stage, FULL, Narrator(), _each_by(announce)).play()
            time.sleep(AFTER)
            yield Story(server, begin, time.time())


def _each_by(announce: Announce) -> Callable[[list[str]], None]:
    def print_lines(lines: list[str]) -> None:
        for line in lines:
            announce(line)

    return print_lines


def scraping(adapter: AdapterProcess, companion: CompanionProcess) -> Prometheus:
    """A Prometheus that scrapes both processes as the manifests have it: the label `namespace` is the policy's."""
    jobs = {"effective-load": adapter.metrics_port, "effective-load-companion": companion.metrics_port}
    scrapes = [
        {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in jobs.items()
    ]
    return Prometheus(interval=f"{STEP:g}s", config={"scrape_configs": scrapes})
