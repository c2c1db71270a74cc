"""No count is set below what the load needs, and the count comes down afterwards: with the real HPA, in the situations
that cost other autoscalers pods.

Each service has ten pods, and its demand is shared by those that serve. The policy's watermarks are 1.2 and 0.4 a pod.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.client import condition_true
from lab.harness.prometheus import Page, Prometheus
from lab.harness.registries.consul import Consul
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.course import Course
from tests.e2e.kit import prometheus_settings, query_watermarks

PODS = 10
SERVICE = "shop.web"
SOON = {"registrationGraceSeconds": 2, "absenceConfirmationSeconds": 2}
"""A registry's word counts after seconds, not after minutes."""
SLOWLY = {
    way: {
        "tolerance": "0",
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 3}],
    }
    for way in ("scaleUp", "scaleDown")
}
"""The behavior of an HPA that changes the count by two pods in three seconds, so that a test can interrupt it."""
TRUSTED_SECONDS = 2
_SHORTENED = f"from adapter.load import states; states.ABSENCE_TRUSTED_SECONDS = {TRUSTED_SECONDS}.0"
FORGETFUL = ("-c", f"{_SHORTENED}; from adapter.cli import main; raise SystemExit(main())", "serve")
"""An adapter to which seconds are as long as minutes to others: with SOON, an outage of ten minutes takes seconds."""


class Service:
    """The service `web`: its demand, who serves it, and the counts that its HPA sets."""

    def __init__(self, workloads: Workloads, page: Page) -> None:
        self.workloads, self.demand = workloads, 0.0
        self.idle: set[str] = set()
        """Pods without a share of the demand."""
        page.set_page(self._page)

    def begin(
        self,
        demand: float,
        *,
        behavior: dict[str, Any] | None = None,
        deployment: dict[str, Any] | None = None,
        **policy: Any,
    ) -> None:
        """Runs the service until its HPA follows the policy."""
        self.demand = demand
        self.workloads.deployment("web", PODS, **{"ready_after": "1s", **(deployment or {})})
        self.workloads.policy("web", [query_watermarks("load", "1200m", "400m")], **policy)
        self.workloads.hpa("web", behavior=behavior)
        self.workloads.wait_condition("web", "ScalingActive")

    def _page(self) -> str:
        pods = [pod for pod in self.workloads.pods("web") if "deletionTimestamp" not in pod["metadata"]]
        ready = [pod["metadata"]["name"] for pod in pods if condition_true(pod, "Ready")]
        carry = [name for name in ready if name not in self.idle]
        share = {name: self.demand / len(carry) for name in carry}
        labels = f'namespace="{self.workloads.namespace}",pod'
        return "".join(f'load{{{labels}="{name}"}} {share.get(name, 0.01)}\n' for name in ready)


@pytest.fixture
def service(workloads: Workloads, page: Page) -> Service:
    return Service(workloads, page)


@pytest.fixture
def consul() -> Iterator[Consul]:
    with Consul() as server:
        yield server


Register = Callable[..., None]


@pytest.fixture
def register(consul: Consul, workloads: Workloads) -> Register:
    """Registers pods of the service, by default all."""

    def register(*names: str) -> None:
        for pod in workloads.pods("web"):
            if not names or pod["metadata"]["name"] in names:
                consul.register(SERVICE, pod["metadata"]["name"], pod["status"]["podIP"])

    return register


def consul_settings(prometheus: Prometheus, consul: Consul) -> dict[str, Any]:
    registry = {"name": "consul", "type": "Consul", "servers": [consul.url]}
    return {**prometheus_settings(prometheus), "registries": [registry]}


def test_a_wiped_registry_with_half_of_the_pods_back_keeps_all_ten(
    make_adapter: MakeAdapter, service: Service, consul: Consul, register: Register, shared_prometheus: Prometheus
) -> None:
    """Only the five that are back get calls: at 1.8 a pod they are too few, and the other five look idle."""
    make_adapter(consul_settings(shared_prometheus, consul))
    service.begin(9.0, registry={"name": "consul", "service": SERVICE, **SOON})
    register()
    names = service.workloads.pod_names("web")
    service.workloads.hold_replicas("web", PODS, syncs=1)
    consul.kill()
    consul.wipe()
    consul.resume()
    service.idle = set(names[5:])
    register(*names[:5])
    with Course(service.workloads) as course:
        service.workloads.hold_replicas("web", PODS, 5)
        service.idle = set()
        register()
        service.demand = 3.0
        service.workloads.wait_replicas("web", 7)  # 3.0 / 0.4
        assert min(course.counts("web")) == 7
        service.workloads.hold_replicas("web", 7, syncs=2)


def test_a_restart_of_the_adapter_in_a_fall_or_a_rise_ends_at_the_same_count(
    adapter: AdapterProcess, service: Service
) -> None:
    service.begin(0.8 * PODS, behavior=SLOWLY)
    for demand, end in ((1.6, 4), (10.9, 10)):  # 1.6 / 0.4, and 10.9 / 1.2
        with Course(service.workloads) as course:
            service.demand = demand
            until(lambda: len(course.counts("web")) > 1, 30, lambda: "the count does not move", 0.1)
            adapter.kill()
            adapter.restart()
            service.workloads.wait_replicas("web", end)
            service.workloads.hold_replicas("web", end)
            counts = course.counts("web")
        assert counts == sorted(counts, reverse=end == 4)
        assert len(counts) > 2


def test_a_registry_that_is_down_for_ten_minutes_delays_neither_a_rise_nor_a_fall(
    make_adapter: MakeAdapter, service: Service, consul: Consul, register: Register, shared_prometheus: Prometheus
) -> None:
    """Callers do not learn of pods that start meanwhile, so those stay idle until the registry is back."""
    adapter = make_adapter(consul_settings(shared_prometheus, consul), command=FORGETFUL)
    service.begin(9.0, registry={"name": "consul", "service": SERVICE, **SOON})
    register()
    old = set(service.workloads.pod_names("web"))
    service.workloads.hold_replicas("web", PODS, syncs=1)
    consul.kill()
    service.workloads.hold_replicas("web", PODS, 1.5 * TRUSTED_SECONDS)
    service.idle = _Others(old)
    service.demand = 15.0
    service.workloads.wait_replicas("web", 13)
    service.workloads.wait_ready("web", 13)
    service.workloads.hold_replicas("web", 13, syncs=2)
    consul.resume()
    register()
    service.idle = set()
    labels = f'namespace="{service.workloads.namespace}",policy="web",state="serving"'
    serving = f"effective_load_policy_pods{{{labels}}}"
    until(lambda: adapter.metric(serving) == 13, 30, lambda: f"{adapter.metric(serving)} of 13 pods serve", 0.2)
    consul.kill()
    service.workloads.hold_replicas("web", 13, 1.5 * TRUSTED_SECONDS)
    with Course(service.workloads) as course:
        service.demand = 2.6
        service.workloads.wait_replicas("web", 6)  # 2.6 / 0.4
        service.workloads.hold_replicas("web", 6, syncs=2)
        assert min(course.counts("web")) == 6


class _Others(set[str]):
    """All names but these."""

    def __contains__(self, name: object) -> bool:
        return not super().__contains__(name)


@pytest.mark.usefixtures("adapter")
def test_a_fall_during_a_rolling_update_ends_at_the_count_that_it_justifies(service: Service) -> None:
    """The old pods show 0.3, under the low watermark, while each new one may need as much as a full one."""
    service.begin(9.0)
    old = set(service.workloads.pod_names("web"))
    service.workloads.rollout("web")
    until(lambda: set(service.workloads.pod_names("web")) - old, 30, lambda: "no new pod", 0.1)
    with Course(service.workloads) as course:
        service.demand = 3.0
        service.workloads.wait_replicas("web", 7)  # 3.0 / 0.4
        service.workloads.wait_ready("web", 7)
        service.workloads.hold_replicas("web", 7)
        assert min(course.counts("web")) == 7


@pytest.mark.usefixtures("adapter")
def test_a_rollout_with_full_surge_changes_no_count(service: Service) -> None:
    service.begin(0.8 * PODS, deployment={"max_surge": "100%", "ready_after": "4s"})
    with Course(service.workloads) as course:
        service.workloads.rollout("web")
        service.workloads.hold_replicas("web", PODS, 6)
        service.workloads.wait_ready("web", PODS)
        service.workloads.hold_replicas("web", PODS)
        assert course.counts("web") == [PODS]
