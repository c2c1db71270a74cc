"""Wrong or outdated samples of sources, which must not shrink a service."""

import shutil
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from lab.chaos.proxies import before_prometheus
from lab.chaos.scene import freeze, thaw
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks, scaled


def test_a_source_that_reports_zeros_for_some_pods_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 10)
    load.each("web", 1.19)
    scaled(workloads, 10)
    broken = workloads.pod_names("web")[:9]
    load.each("web", 1.19, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, 8)
    load.each("web", 0.5, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, 8)


def _some(answer: Any, **more: Any) -> Any:
    """The answer without the series of every second pod."""
    data = answer["data"]
    pods = sorted({one["metric"].get("pod", "") for one in data["result"]})[::2]
    result = [one for one in data["result"] if one["metric"].get("pod", "") in pods]
    return {**answer, "data": {**data, "result": result}, **more}


def _not_a_number(answer: Any) -> Any:
    result = [{**one, "value": [one["value"][0], "NaN"]} for one in answer["data"]["result"]]
    return {**answer, "data": {**answer["data"], "result": result}}


FAULTS: dict[str, Callable[[Any], Any]] = {
    "every second pod is not there": _some,
    "nor behind a warning": lambda answer: _some(answer, warnings=["a store does not answer"]),
    "nor in a part of the answer": lambda answer: _some(answer, isPartial=True),
    "NaN": _not_a_number,
    "5xx": lambda _: HTTPStatus.BAD_GATEWAY,
    "an error": lambda _: {"status": "error", "errorType": "internal", "error": "no"},
    "another service": lambda _: {"kind": "PodList", "items": []},
    "32 MiB": lambda answer: {**answer, "infos": ["x" * (33 << 20)]},
    "nothing": lambda answer: {**answer, "data": {**answer["data"], "result": []}},
}


def test_bad_answers_of_prometheus_shrink_nothing_and_a_fall_is_followed(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    with before_prometheus(prometheus.port) as proxy:
        settings = prometheus_settings(prometheus)
        settings["prometheus"]["servers"][0]["url"] = f"http://127.0.0.1:{proxy.port}"
        make_adapter(settings)
        workloads.deployment("web", 6)
        load.each("web", 0.45)
        scaled(workloads, 6)
        for fault in FAULTS.values():
            proxy.falsify = lambda _, answer, lie=fault: lie(answer)  # type: ignore[misc]
            workloads.hold_replicas("web", 6, 3)
        proxy.falsify = None
        workloads.hold_replicas("web", 6, 3)
        load.each("web", 0.2)
        workloads.wait_replicas("web", 3)


def test_a_total_keeps_the_count_while_one_of_its_exporters_is_down(
    make_adapter: MakeAdapter, workloads: Workloads
) -> None:
    """Two brokers report half of the queue each: the half that is left would shrink the service, or send it to 0."""
    with Exporter() as broker, Exporter() as other, Prometheus([broker, other]) as server:
        make_adapter(prometheus_settings(server))
        labels = f'namespace="{workloads.namespace}", workload="web"'
        for one in (broker, other):
            one.set({f"queue{{{labels}}}": 2.4})
        workloads.deployment("web", 8)
        workloads.policy("web", [query_watermarks("queue", "1200m", "400m")])
        workloads.hpa("web", minimum=0)
        workloads.wait_condition("web", "ScalingActive")
        workloads.hold_replicas("web", 8, syncs=1)
        other.failing = True
        workloads.hold_replicas("web", 8, 5)
        broker.set({f"queue{{{labels}}}": 0})
        workloads.hold_replicas("web", 8, 5)
        other.failing = False
        other.set({f"queue{{{labels}}}": 1.2})
        workloads.wait_replicas("web", 3)


def test_a_prometheus_that_is_killed_wiped_or_frozen_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter
) -> None:
    load = Load(exporter, workloads)
    with Prometheus([exporter]) as server:
        make_adapter(prometheus_settings(server))
        workloads.deployment("web", 6)
        load.each("web", 0.45)
        scaled(workloads, 6)
        server.kill()
        workloads.wait_condition("web", "ScalingActive", status="False", contains="Prometheus main: connection refused")
        shutil.rmtree(server.folder / "data")
        server.resume()
        workloads.wait_condition("web", "ScalingActive")
        workloads.hold_replicas("web", 6, 3)
        freeze(server.component)
        workloads.wait_condition("web", "ScalingActive", status="False", contains="(last answer at")
        thaw(server.component)
        load.each("web", 0.2)
        workloads.wait_replicas("web", 3)
