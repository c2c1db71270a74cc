"""HPA configuration: the companion sets an HPA's behavior, and yields to other field managers."""

import secrets
import time
from collections.abc import Iterator

import pytest

from lab.harness import binaries
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds, merged
from lab.harness.client import Object
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.kwok import READY_AFTER
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, policy_metric, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, condition, prometheus_settings, query_watermarks, wait_finding

ON = {"companion": {"features": {"hpaConfiguration": True}}}
RIGHTS = ("status", "hpa-configuration")
ROUNDS = 6
GATE = "HPAConfigurableTolerance"


def behavior(workloads: Workloads) -> Object:
    found: Object = workloads.client.get(workloads.hpa_path("web"))["spec"].get("behavior", {})
    return found


def tolerances(workloads: Workloads) -> list[str | None]:
    return [behavior(workloads).get(direction, {}).get("tolerance") for direction in ("scaleUp", "scaleDown")]


def test_tolerance_and_an_outer_guard_are_set_and_repaired(companion: CompanionProcess, workloads: Workloads) -> None:
    before = companion.writes("WireHpa")
    workloads.deployment("web", 2)
    workloads.policy("web", [query_watermarks("load", "120", "40")], hpaConfiguration="Manage")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 100, "metrics": [policy_metric("web")]}
    item = workloads.item("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec)
    workloads.client.post(f"{workloads.client.collection(item)}?fieldManager=kubectl", item)
    until(lambda: tolerances(workloads) == ["0", "0"], 30, lambda: f"{behavior(workloads)} {companion.logs()}")
    up = behavior(workloads)["scaleUp"]
    assert up["policies"] == [{"type": "Pods", "value": 100, "periodSeconds": 1}]
    conformant = lambda: condition(workloads, "HPAConformant")  # noqa: E731
    until(lambda: conformant().get("status") == "True", 30, lambda: str(conformant()))
    assert companion.writes("WireHpa") == before + 1
    workloads.client.put(f"{workloads.hpa_path('web')}?fieldManager=kubectl", item)
    assert tolerances(workloads) == [None, None]
    companion.restart()  # it would wait for 10 min; another leader does not know that wait
    until(lambda: tolerances(workloads) == ["0", "0"], 30, lambda: f"{behavior(workloads)} {companion.logs()}")
    assert behavior(workloads)["scaleUp"]["policies"] == up["policies"]
    assert companion.writes("WireHpa") == 1


def test_fields_of_other_managers_stay_and_are_named(companion: CompanionProcess, workloads: Workloads) -> None:
    workloads.deployment("web", 2)
    workloads.policy("web", [query_watermarks("load", "120", "40")], hpaConfiguration="Manage")
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    workloads.hpa("web", behavior=rules)
    until(lambda: tolerances(workloads) == ["0", "0"], 30, lambda: str(behavior(workloads)))
    assert behavior(workloads)["scaleUp"]["policies"] == rules["scaleUp"]["policies"]
    wait_finding(workloads, "HPAConformant", "WiringConflict", "owns behavior.scaleUp.policies")
    spec = {"behavior": {"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"tolerance": "0.05"}}}
    item = workloads.item("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec)
    before = companion.writes("WireHpa")
    for _ in range(ROUNDS):
        workloads.client.patch(f"{workloads.hpa_path('web')}?fieldManager=flux&force=true", item, "apply")
        time.sleep(1)
    assert companion.writes("WireHpa") - before <= 1
    assert tolerances(workloads) == ["50m", "50m"]
    wait_finding(workloads, "HPAConformant", "WiringConflict", "flux owns behavior.scaleUp.tolerance")


def test_a_step_that_the_hpa_would_swallow_is_held_and_reported(
    adapter: AdapterProcess, companion: CompanionProcess, workloads: Workloads, load: Load
) -> None:
    load.serve(20, each=123, marks=("120", "40"), hpa={"tolerance": None})
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", 20)
    place = f'namespace="{workloads.namespace}",policy="web"'
    assert adapter.metric(f"effective_load_policy_suppressed_replicas{{{place}}}") == 1
    wait_finding(workloads, "HPAConformant", "Tolerance", "suppresses the step from 20 to 21")
    load.each("web", 138)
    workloads.wait_replicas("web", 23)


def test_a_rollout_does_not_ratchet_an_hpa_with_a_tolerance(
    make_adapter: MakeAdapter, workloads: Workloads, load: Load, shared_prometheus: Prometheus
) -> None:
    """Without coarse mode the surge pod would become a replica.

    The HPA may scale up once the rollout is seen: on a busy machine the adapter may learn of the surge after the HPA.
    """
    workloads.deployment("web", 20, max_surge=1, max_unavailable=0)
    load.queue("web", 1600)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    calm = {"stabilizationWindowSeconds": 0}
    workloads.hpa("web", behavior={"scaleUp": calm | {"selectPolicy": "Disabled"}, "scaleDown": calm})
    make_adapter({**prometheus_settings(shared_prometheus), "kubernetes": {"hpaTolerance": 0.1}})
    workloads.wait_condition("web", "ScalingActive")
    workloads.client.patch(
        workloads.path("web"), {"spec": {"template": {"metadata": {"annotations": {READY_AFTER: "10s"}}}}}
    )
    workloads.wait_condition("web", "ScalingActive", status="False", contains="rollout in progress")
    workloads.client.patch(workloads.hpa_path("web"), {"spec": {"behavior": {"scaleUp": {"selectPolicy": "Max"}}}})
    workloads.hold_replicas("web", 20, syncs=5)


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[ControlPlane]:
    """A control plane whose HPAs have no field tolerance, as before Kubernetes 1.35."""
    off = {"feature-gates": f"{GATE}=false"} if binaries.HPA_TOLERANCE else {}
    with ControlPlane(apiserver_flags=off, metrics_server=False, prepared=install_crds) as cluster:
        reset_lease(cluster)
        yield cluster


@pytest.fixture
def old(old_cluster: ControlPlane) -> Workloads:
    """A namespace in that cluster."""
    made = Workloads(old_cluster, f"old-{secrets.token_hex(3)}")
    made.make_namespace()
    return made


@pytest.mark.versions
@pytest.mark.skipif(not binaries.HPA_TOLERANCE_GATE, reason="the gate is locked on")
@pytest.mark.timeout(240)
def test_cluster_without_the_field_is_detected_and_served_coarsely(
    old_cluster: ControlPlane, old: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, old)
    old.deployment("web", 20, max_surge=1, max_unavailable=0)
    load.each("web", 123)
    old.policy("web", [query_watermarks("load", "120", "40")], hpaConfiguration="Manage")
    old.hpa("web", tolerance="0")
    settings = prometheus_settings(prometheus)
    rights = companion_kubeconfig(old_cluster, RIGHTS)
    with (
        AdapterProcess(old_cluster, settings, kubeconfig=account_kubeconfig(old_cluster)) as adapter,
        CompanionProcess(old_cluster, merged(settings, ON), kubeconfig=rights),
    ):
        if binaries.HPA_TOLERANCE:
            wait_finding(old, "HPAConformant", "WiringConflict", "of HPA web, and the API server kept no value")
        old.client.delete(old.hpa_path("web"))
        old.hpa("web", tolerance=None)
        # The creator owns the API server's defaults in scaleUp.policies, and that conflict is reported first.
        told = "HPAs have no field tolerance here"  # a sentence alone is written within a minute
        wait_finding(old, "HPAConformant", "WiringConflict", told, seconds=90)
        assert "suppresses the step from 20 to 21" in condition(old, "HPAConformant")["message"]
        assert tolerances(old) == [None, None]
        old.wait_condition("web", "ScalingActive")
        old.hold_replicas("web", 20)
        load.each("web", 200)
        old.wait_replicas("web", 34)
        assert adapter.component.running
