"""What the stock HPA reads while its Prometheus is broken: each sentence names the fault, and the count stays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest

from adapter.usage.promql import INPUT_PREFIX
from lab.chaos.proxies import FalsifyingProxy, before_prometheus
from lab.chaos.scene import freeze, thaw
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks, scaled

pytestmark = [pytest.mark.builds("prometheus"), pytest.mark.timeout(300)]


def _not_a_number(answer: Any) -> Any:
    """The load is NaN; what dates it is as it was."""
    loads = [
        one for one in answer["data"]["result"] if not any(label.startswith(INPUT_PREFIX) for label in one["metric"])
    ]
    for one in loads:
        one["value"][1] = "NaN"
    return answer


def _some(answer: Any) -> Any:
    """The answer without the series of every second pod."""
    data = answer["data"]
    pods = sorted({one["metric"].get("pod", "") for one in data["result"]})[::2]
    result = [one for one in data["result"] if one["metric"].get("pod", "") in pods]
    return {**answer, "data": {**data, "result": result}}


def _nothing(answer: Any) -> Any:
    return {**answer, "data": {**answer["data"], "result": []}}


LIES: dict[str, Callable[[Any], Any]] = {
    "query load: Prometheus main: HTTP 502": lambda _: HTTPStatus.BAD_GATEWAY,
    "query load: answers NaN": _not_a_number,
    "main: answers with a warning, so a part": lambda it: {**it, "warnings": ["a store does not answer"]},
    "main: the answer is larger than its limit": lambda it: {**it, "infos": ["x" * (33 << 20)]},
    "main: the answer is not what is expected": lambda _: {"kind": "PodMetricsList", "items": []},
}
"""Answers by what the HPA's condition says of each: the last one is another service's document."""


@contextmanager
def killed(server: Prometheus, _: FalsifyingProxy) -> Iterator[None]:
    server.kill()
    yield
    server.wipe()
    server.resume()  # without its data, which is no error and no fall of the load


@contextmanager
def frozen(server: Prometheus, _: FalsifyingProxy) -> Iterator[None]:
    freeze(server.component)
    yield
    thaw(server.component)


def test_the_hpa_names_each_fault_of_prometheus_and_keeps_its_count(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    with before_prometheus(prometheus.port) as proxy:
        settings = prometheus_settings(prometheus)
        [behind, _] = settings["prometheus"]["queries"]
        settings["prometheus"] = {
            "servers": [
                {"name": "main", "url": f"http://127.0.0.1:{proxy.port}"},
                {"name": "direct", "url": prometheus.url, "timeoutSeconds": 2},
            ],
            "queries": [
                behind | {"maxAgeSeconds": 5},
                behind | {"name": "direct", "server": "direct", "maxAgeSeconds": 5},
            ],
        }
        make_adapter(settings)
        for name in ("web", "direct"):
            workloads.deployment(name, 6)
            load.each(name, 0.45)
        workloads.policy("direct", [query_watermarks("direct", "1200m", "400m")])
        workloads.hpa("direct")
        scaled(workloads, 6)
        workloads.wait_condition("direct", "ScalingActive")

        for sentence, lie in LIES.items():
            proxy.falsify = lambda _, answer, lie=lie: lie(answer)  # type: ignore[misc]
            workloads.wait_condition("web", "ScalingActive", status="False", contains=sentence)
            proxy.falsify = None
            workloads.wait_condition("web", "ScalingActive")
        for lie in (_some, _nothing):
            proxy.falsify = lambda _, answer, lie=lie: lie(answer)  # type: ignore[misc]
            workloads.hold_replicas("web", 6, 2, syncs=1)
        proxy.falsify = None
        for broken, sentence in ((killed, "direct: connection refused"), (frozen, "direct: timed out")):
            with broken(prometheus, proxy):
                text = f"query direct: Prometheus {sentence} (last answer at "
                workloads.wait_condition("direct", "ScalingActive", status="False", contains=text)
            workloads.wait_condition("direct", "ScalingActive")
        assert [workloads.rescaled(name) for name in ("web", "direct")] == [[], []]
