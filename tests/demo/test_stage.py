"""The objects that the stage makes on a cluster."""

import pytest

from lab.demo.objects import OURS, STOCK, scaling, workloads
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane


def test_both_services_differ_only_in_their_names_and_in_their_hpas_metric_and_tolerance() -> None:
    ours, stock = workloads("shop")
    assert str(ours).replace(OURS, STOCK) == str(stock)
    _, ours, stock = ({**item["spec"], "metrics": []} for item in scaling("shop"))
    assert {ours["behavior"][way].pop("tolerance") for way in ("scaleUp", "scaleDown")} == {"0"}
    assert str(ours).replace(OURS, STOCK) == str(stock)


@pytest.mark.integration
def test_the_api_server_accepts_all_objects(api_server: ControlPlane, api_namespace: str) -> None:
    install_crds(api_server)
    for item in workloads(api_namespace) + scaling(api_namespace):
        api_server.client.apply(item, dry_run=True)
