"""The adapters that are compared: how each is set up, asked, paused and registered.

Every one gives the HPA of a service the same signal, the service's requests a second, by the settings that its manuals
show. Only one of them works at a time: the others are stopped by SIGSTOP.
"""

import datetime as dt
import json
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.benchmarks import scene, store
from lab.benchmarks.processes import cpu_seconds, memory
from lab.benchmarks.prometheus_page import requests_per_second
from lab.benchmarks.prometheus_scene import RATE, PrometheusScene
from lab.harness import keda, objects
from lab.harness.adapter import AdapterProcess, account_kubeconfig
from lab.harness.client import Client, condition_true
from lab.harness.keda import Keda
from lab.harness.processes import Component
from lab.harness.prometheus_adapter import PrometheusAdapter
from lab.harness.quantities import number
from lab.harness.workloads import until

EXTERNAL = "external.metrics.k8s.io"
SAMPLE_TIME = "sample_time"
"""The metric whose value is the time of the sample."""
PEER_NAMESPACE = "peer"
_MATCHERS = "{<<.LabelMatchers>>}"
_NEAR = 0.08

Object = dict[str, Any]


class Contender:
    """One adapter in one way of using it; `title` is its row in the tables."""

    name = title = ""
    by_policy = False
    """Whether its answer is a count of pods; otherwise it is the requests a second of the service."""

    def __init__(self, stage: PrometheusScene, services: Sequence[scene.Service] | None = None) -> None:
        self.scene, self.services = stage, services or stage.scaled

    @property
    def components(self) -> Mapping[str, Component]:
        raise NotImplementedError

    @property
    def port(self) -> int:
        raise NotImplementedError

    def path(self, service: scene.Service) -> str:
        """Where the HPA asks for the service."""
        raise NotImplementedError

    def put_hpas(self) -> None:
        """Makes the HPAs that follow it, and leads their API group to it."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Comes before each measurement without a controller."""

    def done(self) -> None:
        """Comes after its last measurement: it uses nothing any more, and has no HPAs."""
        self.pause()
        self.scene.remove_policies()

    # -- processes

    def processes(self) -> dict[str, int]:
        return {name: component.pid or 0 for name, component in self.components.items() if component.running}

    def pause(self) -> None:
        for component in self.components.values():
            component.signal(signal.SIGSTOP)

    def resume(self) -> None:
        for component in self.components.values():
            component.signal(signal.SIGCONT)

    def start(self) -> None:
        for component in self.components.values():
            component.start()

    def wait_ready(self) -> None:
        for component in self.components.values():
            component.wait_ready()

    def kill(self) -> None:
        for component in self.components.values():
            component.kill()

    def cpu(self) -> float:
        return sum(map(cpu_seconds, self.processes().values()))

    def mib(self) -> dict[str, float]:
        return {name: memory(pid)["now"] for name, pid in self.processes().items()}

    # -- answers

    def client(self) -> Client:
        """Asks it directly as the HPA controller, through the front proxy."""
        return self.scene.cluster.as_aggregator(self.port, "system:hpa", "system:masters")

    def right(self, service: scene.Service, answer: Object) -> bool:
        """Whether an answer is what the service's load asks for."""
        items = answer.get("items") or [{}]
        value = number(str(items[0].get("value", "0")))
        wanted = float(self.scene.size.pods) * (1 if self.by_policy else requests_per_second(service))
        return abs(value / wanted - 1) < (_NEAR if not self.by_policy else 1e-9)

    def wait_right(self, timeout: float = 120) -> None:
        """Waits until the answers for all services are right."""
        client = self.client()
        waiting = list(self.services)

        def answered() -> bool:
            while waiting and self.asks(client, waiting[-1]):
                waiting.pop()
            return not waiting

        until(answered, timeout, lambda: f"{self.name}: {self.last} for {waiting[-1]}, {len(waiting)} left", every=0.2)

    last: object = None

    def asks(self, client: Client, service: scene.Service) -> bool:
        try:
            response = client.raw(self.path(service), timeout=10)
        except OSError as error:
            self.last = error
            return False
        self.last = response.text
        return response.status == 200 and self.right(service, response.json())


class Ours(Contender):
    """This adapter with a policy for each service; the HPA asks for `desired_replicas`."""

    name, title, by_policy = "ours", "this adapter, a policy for each service", True
    queries: tuple[str, ...] = ("requests",)
    external = False

    def __init__(self, stage: PrometheusScene, services: Sequence[scene.Service] | None = None) -> None:
        super().__init__(stage, services)
        rights = account_kubeconfig(stage.cluster)
        self.adapter = AdapterProcess(
            stage.cluster, stage.settings(*self.queries), external=self.external, kubeconfig=rights, name=self.name
        )

    @property
    def components(self) -> Mapping[str, Component]:
        return {"adapter": self.adapter.component}

    @property
    def port(self) -> int:
        return self.adapter.port

    def path(self, service: scene.Service) -> str:
        return self.scene.count_path(service)

    def prepare(self) -> None:
        self.scene.put_policies(self.services)

    def put_hpas(self) -> None:
        self.adapter.register()
        self.adapter.wait_available()
        self.scene.put_policies(self.services)


class Earlier(Ours):
    """The adapter of another checkout (`folder`), with the same policies."""

    name, title = "earlier", "an earlier adapter, a policy for each service"

    def __init__(self, stage: PrometheusScene, folder: Path) -> None:
        super().__init__(stage)
        self.adapter.component.cwd = folder.resolve()  # `python -m` looks there first
        self.adapter.component.ready = None  # its probes may be elsewhere; what follows waits for the API service


class OursQuery(Ours):
    """This adapter without policies: a named query as an External metric, asked once for all services."""

    name, title, by_policy = "ours_query", "this adapter, a named query, no policy", False
    queries = ("service_requests", SAMPLE_TIME)
    external = True

    def path(self, service: scene.Service) -> str:
        return self.scene.external_path(service, "service_requests")

    def prepare(self) -> None:
        pass

    def put_hpas(self) -> None:
        self.adapter.register()
        self.adapter.wait_available()
        self.scene.put_metric_hpas(lambda service: external_metric(service, "service_requests"), self.services)


class OfPrometheusAdapter(Contender):
    """prometheus-adapter with an External rule, listed every minute as its manifests do."""

    name, title = "prometheus_adapter", "prometheus-adapter 0.12, an External rule"

    def __init__(self, stage: PrometheusScene, services: Sequence[scene.Service] | None = None) -> None:
        super().__init__(stage, services)
        rules = [
            _rule("http_requests_total", f"sum({RATE.format(selector=_MATCHERS)})", "service_requests"),
            _rule("sample_time_seconds", f"max(sample_time_seconds{_MATCHERS})", SAMPLE_TIME),
        ]
        self.adapter = PrometheusAdapter(
            stage.cluster, stage.prometheus.url, config={"externalRules": rules}, relist="1m"
        )

    @property
    def components(self) -> Mapping[str, Component]:
        return {"adapter": self.adapter.component}

    @property
    def port(self) -> int:
        return self.adapter.port

    def path(self, service: scene.Service) -> str:
        return self.scene.external_path(service, "service_requests")

    def put_hpas(self) -> None:
        serve_external(self.scene, self.name, self.port)
        self.scene.put_metric_hpas(lambda service: external_metric(service, "service_requests"), self.services)


class OfKeda(Contender):
    """KEDA, operator and adapter, with a ScaledObject for each service; asks Prometheus at each request."""

    name, title = "keda", "KEDA 2.21, a ScaledObject for each service"
    cached = False

    def __init__(
        self,
        stage: PrometheusScene,
        services: Sequence[scene.Service] | None = None,
        programs: Keda | None = None,
    ) -> None:
        super().__init__(stage, services)
        self.keda = programs or Keda(stage.cluster)

    @property
    def components(self) -> Mapping[str, Component]:
        return {"operator": self.keda.operator, "adapter": self.keda.adapter}

    @property
    def port(self) -> int:
        return self.keda.port

    def path(self, service: scene.Service) -> str:
        return self.scene.keda_path(service)

    def install(self, **spec: Any) -> None:
        """Sets up the programs, and a ScaledObject with its HPA for each service.

        KEDA makes the first pair. The others are copies of it: KEDA itself takes minutes for 300.
        """
        self.keda.start()
        client, first = self.scene.cluster.client, self.services[0]
        self.scene.put_scaled_objects([first], cached=self.cached, **spec)
        path = client.path(self.scene.scaled_object(first))
        hpa_path = f"/apis/autoscaling/v2/namespaces/{first.namespace}/horizontalpodautoscalers/keda-hpa-{first.name}"
        hpa = client.wait_for(hpa_path, timeout=60)
        pattern = client.wait_for(path, lambda item: condition_true(item, "Ready"), 60)
        copies = [_copied(pattern, first, service) for service in self.services[1:]]
        hpas = [_copied(hpa, first, service) for service in self.services[1:]]
        etcd = self.scene.cluster.layout.port("etcd")
        store.put(etcd, [(f"/registry/keda.sh/scaledobjects/{_key(item)}", item) for item in copies])
        store.put(etcd, [(f"/registry/horizontalpodautoscalers/{_key(item)}", item) for item in hpas])
        self.keda.operator.stop()
        self.keda.operator.start()

    def done(self) -> None:
        self.kill()
        self.scene.remove_only_hpas()

    def put_hpas(self) -> None:
        serve_external(self.scene, keda.SERVICE, self.port, keda.NAMESPACE)


def _key(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _copied(item: Object, of: scene.Service, service: scene.Service) -> Object:
    """The object that KEDA would make for another service."""
    text = json.dumps(item).replace(of.name, service.name).replace(f'"{of.namespace}"', f'"{service.namespace}"')
    text = text.replace(f'\\"{of.namespace}\\"', f'\\"{service.namespace}\\"')
    copy: Object = json.loads(text)
    target = f"{requests_per_second(service):g}"
    if copy["kind"] == "ScaledObject":
        copy["spec"]["triggers"][0]["metadata"]["threshold"] = target
        copy["metadata"]["uid"] = _uid(service)
    else:
        copy["spec"]["metrics"][0]["external"]["target"]["averageValue"] = target
        copy["metadata"] |= {"uid": str(uuid.uuid4())}
        copy["metadata"]["ownerReferences"][0]["uid"] = _uid(service)
    for key in ("resourceVersion", "managedFields"):
        copy["metadata"].pop(key, None)
    return copy


def _uid(service: scene.Service) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, service.name))


class OfKedaCached(OfKeda):
    """KEDA with `useCachedMetrics`: asks Prometheus every 30 s for each ScaledObject."""

    name, title = "keda_cached", "KEDA 2.21 with useCachedMetrics"
    cached = True


def _rule(series: str, query: str, name: str) -> Object:
    return {
        "seriesQuery": f'{series}{{namespace!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "name": {"as": name},
        "metricsQuery": query,
    }


def external_metric(service: scene.Service, name: str) -> Object:
    """The metric of an HPA that asks for an External one of the service."""
    selector = {"matchLabels": {"service": service.name}}
    target = {"type": "AverageValue", "averageValue": f"{requests_per_second(service):g}"}
    return {"type": "External", "external": {"metric": {"name": name, "selector": selector}, "target": target}}


def serve_external(stage: PrometheusScene, service: str, port: int, namespace: str = PEER_NAMESPACE) -> None:
    """Leads external.metrics.k8s.io to a program on this machine."""
    client, name = stage.cluster.client, service.replace("_", "-")
    client.apply(objects.namespace(namespace))
    client.apply(objects.external_service(name, namespace, port))
    client.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{EXTERNAL}")
    client.apply(objects.api_service(EXTERNAL, "v1beta1", (namespace, name, port)))
    stage.cluster.wait_api_service(f"v1beta1.{EXTERNAL}")


def sample_time_path(contender: Contender, service: scene.Service) -> str:
    """Where the contender answers the time of the service's sample; KEDA's ScaledObject is made for it."""
    if isinstance(contender, OfKeda):
        return contender.path(service)
    return contender.scene.external_path(service, SAMPLE_TIME)


def announce(line: str) -> None:
    """Shows how far a run is."""
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)
