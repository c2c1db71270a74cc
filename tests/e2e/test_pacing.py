"""The policy's own pace on the stock HPA: velocity, cooldown, fallback and zero."""

import datetime as dt

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings

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
    load.serve(3, queue=600, name="up", hpa={"maximum": 7}, velocity={"scaleUpPercent": 20})
    load.serve(7, queue=120, name="down", hpa={"minimum": 2}, velocity={"scaleDownPercent": 1})
    for name, expected in {"up": [4, 5, 6], "down": [6, 5, 4, 3]}.items():
        workloads.wait_replicas(name, expected[-1])
        workloads.hold_replicas(name, expected[-1])
        assert workloads.rescaled(name) == expected


def test_a_cooldown_is_kept_by_an_adapter_started_during_it(
    adapter: AdapterProcess, workloads: Workloads, load: Load
) -> None:
    load.serve(2, queue=300, cooldown={"scaleUpSeconds": COOLDOWN})
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
    after = 8
    fallback = {"afterSeconds": after, "replicas": 5}
    Load(exporter, workloads).serve(2, each=0.8, marks=("1200m", "400m"), fallback=fallback)
    workloads.wait_condition("web", "ScalingActive")
    prometheus.kill()
    failing = workloads.wait_condition("web", "ScalingActive", status="False", contains="query load")
    workloads.wait_replicas("web", 5)
    since = dt.datetime.fromisoformat(failing["lastTransitionTime"])
    assert (last_scale(workloads) - since).total_seconds() >= after - SOON
    workloads.hold_replicas("web", 5)


@pytest.mark.usefixtures("adapter")
def test_an_idle_service_sleeps_and_wakes_with_its_queue(workloads: Workloads, load: Load) -> None:
    load.serve(3, queue=250, hpa={"minimum": 0})
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", 3, syncs=1)
    load.queue("web", 0)
    workloads.wait_replicas("web", 0)
    workloads.hold_replicas("web", 0)
    load.queue("web", 1)
    workloads.wait_replicas("web", 1)
    load.queue("web", 250)
    workloads.wait_replicas("web", 3)
