"""The companion: what it writes into a policy's status, and that one of several leads."""

from tests.cluster.controlplane import ControlPlane
from tests.cluster.prometheus import Exporter, Prometheus
from tests.cluster.workloads import Workloads
from tests.e2e.conftest import MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

POLICIES = "/apis/effective-load.io/v1alpha1/namespaces/{}/watermarkpolicies/{}"


def test_a_policy_says_what_was_found_and_decided(
    make_companion: MakeCompanion,
    control_plane: ControlPlane,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
) -> None:
    load = Load(exporter, workloads)
    workloads.deployment("web", 5)
    load.each("web", 150)
    workloads.policy("web", [query_watermarks("load", "120", "40")])
    workloads.hpa("web")
    companion = make_companion(prometheus_settings(prometheus))
    companion.wait_leading()
    path = POLICIES.format(workloads.namespace, "web")
    status = control_plane.client.wait_for(path, lambda one: one.get("status", {}).get("desired") == 7, 30)["status"]
    assert status["verdict"] == "Above"
    assert status["pods"]["serving"] == 5
    assert companion.writes("WriteStatus") >= 1
