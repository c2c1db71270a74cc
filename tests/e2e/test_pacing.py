"""The policy's own pace on the stock HPA: velocity, cooldown, fallback and zero."""

import datetime as dt

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

COOLDOWN = 12
SOON = 5
"""Seconds: a sync of the HPA, and a margin for a busy machine."""


NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def last_scale(workloads: Workloads, since: dt.datetime = NEVER) -> dt.datetime:
    """The HPA's own lastScaleTime, which follows the scaling after a moment."""
    told = lambda: dt.datetime.fromisoformat(workloads.hpa_status("web").get("lastScaleTime") or str(NEVER))  # noqa: E731
    until(lambda: told() > since, 30, lambda: "the HPA does not say when it scaled")
    return told()


@pytest.mark.usefixtures("adapter")
def test_velocity_is_kept_at_each_sync(workloads: Workloads, load: Load) -> None:
    rises, falls = {"scaleUpPercent": 20}, {"scaleDownPercent": 1}
    ways = {"up": (3, 600, rises, [4, 5, 6]), "down": (7, 120, falls, [6, 5, 4, 3])}
    for name, (current, queue, _, _) in ways.items():
        load.queue(name, queue)
        workloads.deployment(name, current)
    for name, (_, _, velocity, _) in ways.items():
        workloads.policy(name, [query_watermarks("queue", "100", "40")], velocity=velocity)
        workloads.hpa(name, minimum=2, maximum=7)
    for name, (*_, expected) in ways.items():
        workloads.wait_replicas(name, expected[-1])
        workloads.hold_replicas(name, expected[-1])
        assert workloads.rescaled(name) == expected


def test_a_cooldown_is_kept_by_an_adapter_started_during_it(
    adapter: AdapterProcess, workloads: Workloads, load: Load
) -> None:
    load.queue("web", 300)
    workloads.deployment("web", 2)
    workloads.policy("web", [query_watermarks("queue", "100", "40")], cooldown={"scaleUpSeconds": COOLDOWN})
    workloads.hpa("web")
    workloads.wait_replicas("web", 3)
    first = last_scale(workloads)
    load.queue("web", 600)
    adapter.kill()
    adapter.restart()
    workloads.wait_replicas("web", 6)
    until(lambda: workloads.rescaled("web") == [3, 6], 30, lambda: str(workloads.rescaled("web")))
    assert (last_scale(workloads, first) - first).total_seconds() >= COOLDOWN


def test_the_fallback_applies_once_the_error_has_lasted(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    settings = prometheus_settings(prometheus)
    settings["prometheus"]["queries"][0]["maxAgeSeconds"] = 5
    make_adapter(settings)
    workloads.deployment("web", 2)
    Load(exporter, workloads).each("web", 0.8)
    after = 8
    fallback = {"afterSeconds": after, "replicas": 5}
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")], fallback=fallback)
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    prometheus.kill()
    failing = workloads.wait_condition("web", "ScalingActive", status="False", contains="query load")
    workloads.wait_replicas("web", 5)
    since = dt.datetime.fromisoformat(failing["lastTransitionTime"])
    assert (last_scale(workloads) - since).total_seconds() >= after - SOON
    workloads.hold_replicas("web", 5)


@pytest.mark.usefixtures("adapter")
def test_an_idle_service_sleeps_and_wakes_with_its_queue(workloads: Workloads, load: Load) -> None:
    load.queue("web", 250)
    workloads.deployment("web", 3)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web", minimum=0)
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", 3, syncs=1)
    load.queue("web", 0)
    workloads.wait_replicas("web", 0)
    workloads.hold_replicas("web", 0)
    load.queue("web", 1)
    workloads.wait_replicas("web", 1)
    load.queue("web", 250)
    workloads.wait_replicas("web", 3)
