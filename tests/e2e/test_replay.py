"""The replay of what Prometheus recorded sets the counts that the real control plane has set."""

import time
from typing import Any

import yaml

from adapter.commands.replay.autoscalers import PolicyAutoscaler, judged_by
from adapter.commands.replay.history import stretches
from adapter.commands.replay.loop import play
from adapter.commands.replay.model import Setup
from adapter.commands.replay.prometheus import read_history, read_source
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.settings import parse_settings
from lab.harness.client import condition_true
from lab.harness.hpa_log import logged_at
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter

NAME, FIRST_COUNT = "web", 5
HPA_SYNC = 1.0
SETTLED_SECONDS = 4.0
"""Every pod has a sample by then, and the policy keeps the count. Longer than a pulled-out pod waits for its
replacement, and a sync of the HPA.
"""
METRIC = {"name": "load", "query": {"name": "load"}, "highWatermark": "100", "lowWatermark": "50"}
QUERY = {"name": "load", "server": "main", "query": "sum by (namespace, pod) (load)", "intervalSeconds": 1}


def settings(url: str) -> dict[str, Any]:
    """The settings of the adapter, and of the replay: they name the query."""
    return {"prometheus": {"servers": [{"name": "main", "url": url}], "queries": [{**QUERY, "maxAgeSeconds": 10}]}}


class Service:
    """A Deployment whose load is shared equally among the pods that serve; pulled-out ones carry nothing."""

    def __init__(self, workloads: Workloads, exporter: Exporter) -> None:
        self._workloads, self._exporter = workloads, exporter
        self._out: set[str] = set()
        workloads.deployment(NAME, FIRST_COUNT)

    def pull_out_the_oldest(self) -> None:
        oldest = self._workloads.pod_names(NAME)[0]
        self._workloads.annotate(oldest, {"effective-load.io/pulled-out": "true"})
        self._out.add(oldest)

    def carry(self, load: float, wanted: int, still: float = SETTLED_SECONDS) -> None:
        """Carries this load until the count has been the wanted one for so long (seconds), for a minute at most."""
        began = since = time.monotonic()
        count = 0
        while count != wanted or time.monotonic() - since < still:
            assert time.monotonic() - began < 60, f"{count} replicas, not {wanted}"
            pods = [pod for pod in self._workloads.pods(NAME) if condition_true(pod, "Ready")]
            serving = {pod["metadata"]["name"] for pod in pods} - self._out
            shares = dict.fromkeys(serving, load / max(1, len(serving))) | dict.fromkeys(self._out, 0.0)
            self._exporter.pods("load", self._workloads.namespace, shares)
            if (now := self._workloads.replicas(NAME)) != count:
                since, count = time.monotonic(), now
            time.sleep(0.2)


def replayed(
    prometheus: Prometheus, policy: dict[str, Any], hpa: dict[str, Any], first_sync: float, ended: float
) -> list[int]:
    """The counts that a replay of what Prometheus recorded sets from a real sync on, so in the phase of real ones."""
    step = 1000  # milliseconds, as often as Prometheus scrapes
    watermarks, follower = parse_policy(policy), parse_hpa(hpa)
    moments = range((round(first_sync) - 5) * step, round(ended) * step + 1, step)
    source = read_source(parse_settings(yaml.safe_dump(settings(prometheus.url))), "", {}, moments)
    ticks = read_history(watermarks, follower.target.name, source)
    held = [tick for tick in ticks if tick.at <= first_sync][-1]._replace(at=first_sync)
    # KWOK's pods are Ready after 2 s; a load is 2 s old at a decision: a scrape and a poll a second.
    setup = Setup(replicas=FIRST_COUNT, pod_startup=2.0, sync=HPA_SYNC, sample_age=2.0, lasts=10.0)
    after = [held, *(tick for tick in ticks if tick.at > first_sync)]
    autoscaler = PolicyAutoscaler(watermarks, follower)
    run = play(stretches(after, setup), setup, autoscaler, judged_by(watermarks, setup))
    return [change.after for change in run.changes if change.at <= ended]


def test_the_replay_of_a_recorded_load_sets_the_same_counts(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter
) -> None:
    prometheus = Prometheus([exporter])
    adapter = make_adapter(settings(prometheus.url))
    targets = [exporter.address, f"127.0.0.1:{adapter.metrics_port}"]
    prometheus.config["scrape_configs"] = [{"job_name": "check", "static_configs": [{"targets": targets}]}]
    with prometheus:
        service = Service(workloads, exporter)
        service.carry(401, FIRST_COUNT, 1.0)
        policy = workloads.policy(NAME, [METRIC], pulledOut={"replaceAfterSeconds": 2, "minAgeSeconds": 0})
        hpa = workloads.hpa(NAME, minimum=2)
        workloads.wait_condition(NAME, "ScalingActive")
        service.carry(401, FIRST_COUNT)
        began = time.time()
        service.carry(753, 8)
        service.pull_out_the_oldest()
        service.carry(753, 9)
        ended = time.time()
        syncs = [(logged_at(sync.line) or 0.0, sync) for sync in workloads.syncs(NAME)]
        inside = [(at, sync) for at, sync in syncs if began <= at <= ended]
        counts = replayed(prometheus, policy, hpa, inside[0][0], ended)
    assert [sync.desired for _, sync in inside if sync.outcome == "rescaled"] == [8, 9]  # replaced after 2 s
    assert counts == [8, 9]
