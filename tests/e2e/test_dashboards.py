"""The dashboards on a real Prometheus that scrapes the real adapter and companion: every query has an answer."""

import json
import math
import time
from typing import Any

from lab.harness.adapter import AdapterProcess
from lab.harness.companion import CompanionProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter, MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, query_watermarks
from tests.monitoring.dashboards import dashboards, filled

LIMITED, OBSERVED, ALONE = "web", "observed", "alone"
"""Policies: at the HPA's most; only observed; without an HPA. Together they have every series of a policy."""
NOBODY = "127.0.0.1:9"


def settings_of(source: Prometheus, registry: Exporter) -> dict[str, Any]:
    """Settings with a load source and a registry that answer, and a load source and an upstream that do not."""
    settings = prometheus_settings(source)
    settings["prometheus"]["servers"].append({"name": "nobody", "url": f"http://{NOBODY}"})
    settings["prometheus"]["queries"].append({"name": "unknown", "server": "nobody", "query": "sum by (pod) (unknown)"})
    settings["registries"] = [{"name": "platform", "type": "HTTP", "url": f"http://{registry.address}/"}]
    return settings | {"upstreams": {"custom": {"url": f"https://{NOBODY}"}}}


def create_policies(workloads: Workloads, exporter: Exporter) -> None:
    """Three services with their policies: the load of the first needs twice its most pods, the second's is low."""
    load = Load(exporter, workloads)
    for name in (LIMITED, OBSERVED, ALONE):
        workloads.deployment(name, 2)
        load.each(name, 100)
    targets = [{"name": name, "query": {"name": name}, "target": "50"} for name in ("load", "unknown")]
    registry = {"name": "platform", "service": LIMITED}
    workloads.policy(LIMITED, targets, strategy="Ratio", registry=registry)
    workloads.policy(OBSERVED, [query_watermarks("load", "500", "200")], mode="Observe")
    workloads.policy(ALONE, [query_watermarks("load", "50", "10")])
    workloads.hpa(LIMITED, maximum=2)
    workloads.hpa(OBSERVED, maximum=9)


def scraping(adapter: AdapterProcess, companion: CompanionProcess) -> Prometheus:
    """A Prometheus that scrapes both processes as the manifests have it: the label `namespace` is the policy's."""
    jobs = {"effective-load": adapter.metrics_port, "effective-load-companion": companion.metrics_port}
    scrapes = [
        {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in jobs.items()
    ]
    return Prometheus(interval="1s", config={"scrape_configs": scrapes})


def queries(namespace: str) -> dict[str, tuple[bool, list[str]]]:
    """Each panel's query by dashboard, panel and expression: whether it is instant, and its text for each policy."""
    given = {"cluster": ".*", "job": ".+", "namespace": namespace, "metric": ".+", "__rate_interval": "5s"}
    found = {}
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                texts = [filled(target["expr"], given | {"policy": one}) for one in (LIMITED, OBSERVED, ALONE)]
                found[f"{name}: {panel['title']}: {target['expr']}"] = target.get("instant", False), texts
    return found


def answered(server: Prometheus, begin: float, instant: bool, texts: list[str]) -> bool:
    """Whether a query has a series with finite values for one of the policies."""
    for text in texts:
        now = time.time()
        series = server.query(text, at=now) if instant else server.query_range(text, begin, now, 1)
        values = [float(value) for each in series for _, value in each.get("values", [each.get("value")])]
        assert not any(map(math.isinf, values)), text
        if any(map(math.isfinite, values)):
            return True
    return False


def test_each_query_of_the_dashboards_has_an_answer(
    control_plane: ControlPlane,
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    workloads: Workloads,
    prometheus: Prometheus,
    exporter: Exporter,
) -> None:
    begin = time.time()
    with Exporter() as registry:
        registry.set_text(json.dumps({"service": LIMITED, "complete": True, "instances": []}))
        settings = settings_of(prometheus, registry)
        adapter, companion = make_adapter(settings), make_companion(settings)
        with scraping(adapter, companion) as observer:
            create_policies(workloads, exporter)
            until(lambda: adapter.metric('effective_load_registry_up{registry="platform"}') == 1, 30, adapter.logs)
            registry.failing = True
            waiting = queries(workloads.namespace)

            def all_answered() -> bool:
                # Requests that fail, of ours and of the upstream; the HPAs' own requests are answered.
                for one in (f"watermarkpolicies.effective-load.io/{ALONE}/desired_replicas", "pods/*/orders"):
                    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{workloads.namespace}/{one}"
                    assert control_plane.client.raw(path).status >= 400
                for name in [name for name, each in waiting.items() if answered(observer, begin, *each)]:
                    del waiting[name]
                return not waiting

            until(all_answered, 45, lambda: f"no answer: {'; '.join(waiting)}")
