"""The harness registers an adapter with the aggregator; tested with a stub that answers one number."""

import dataclasses
from collections.abc import Iterator

import pytest

from lab.harness.adapter import NAMESPACE, SERVICE, AdapterProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.wire import Wire
from lab.harness.workloads import Workloads, target_metric

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane for this module only: the shared adapter would overwrite the stub's caBundle."""
    with ControlPlane(hpa_sync=1, metrics_server=False) as cluster:
        yield cluster


def settings(cluster: ControlPlane, count: int) -> dict[str, object]:
    pair = cluster.pki.cluster.issue("stub", hosts=[f"{SERVICE}.{NAMESPACE}.svc", "localhost"])
    files = {"mode": "Files", "certFile": str(pair.cert_file), "keyFile": str(pair.key_file)}
    return {"server": {"tls": files}, "stub": count}


@pytest.fixture
def stub(control_plane: ControlPlane) -> Iterator[AdapterProcess]:
    command, authority = ("-m", "tests.harness.stub"), control_plane.pki.cluster.certificate
    given = settings(control_plane, 4)
    process = AdapterProcess(control_plane, given, name="stub", command=command, authority=authority)
    with process:
        yield process
    control_plane.watched.remove(process.component)


def test_stock_hpa_follows_a_metrics_api_on_this_machine(
    control_plane: ControlPlane, stub: AdapterProcess, workloads: Workloads, wire: Wire
) -> None:
    workloads.deployment("web", 2)
    workloads.hpa("web", metrics=[target_metric("Deployment", "web")])
    workloads.wait_replicas("web", 4, timeout=60)
    assert wire.object(workloads.namespace, "Deployment.apps", "web", "desired_replicas").milli == 4000
    older = dataclasses.replace(wire, version="v1beta1", json=True)
    assert older.object(workloads.namespace, "Deployment.apps", "web", "desired_replicas").milli == 4000
    stub.configure(settings(control_plane, 5))
    workloads.wait_replicas("web", 5, timeout=30)
    workloads.wait_syncs("web", 1)
    assert {sync.outcome for sync in workloads.hold_replicas("web", 5)} == {"kept"}

    stub.kill()
    workloads.wait_condition("web", "ScalingActive", status="False", contains="unable to fetch metrics")
    assert {sync.outcome for sync in workloads.hold_replicas("web", 5)} == {"failed"}
    stub.configure(settings(control_plane, 3))
    stub.restart()
    workloads.wait_replicas("web", 3, timeout=60)
    workloads.wait_event("web", "New size: 3")
    assert workloads.cluster.hpa_log.proposals(workloads.namespace, "web")[-1] == 3


def test_a_client_can_act_as_the_aggregator(control_plane: ControlPlane, stub: AdapterProcess) -> None:
    assert control_plane.as_aggregator(stub.port, "somebody").raw("/readyz").status == 200
    assert stub.get("/nothing").status == 404
