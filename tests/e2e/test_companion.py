"""The companion: a policy's status, leader election, and memory across restarts."""

import time
from typing import Any

from lab.harness.companion import LEASE_PATH, CompanionProcess
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import Laws, MakeCompanion
from tests.e2e.kit import CALM, Load, condition, policy_path, prometheus_settings, wait_desired

FAILOVER_SECONDS = 15
BUSY = 2
"""So many times as long it may take beside five other workers."""


SERVICE: dict[str, Any] = {"each": 150, "marks": ("120", "40"), "hpa": {"behavior": CALM}}


def test_a_status_shows_the_assessment_and_the_decision_also_in_columns(
    companion: CompanionProcess, workloads: Workloads, load: Load
) -> None:
    load.serve(5, **SERVICE)
    found = wait_desired(workloads, 7)
    assert (found["verdict"], found["metric"], found["current"]) == ("Above", "load", 5)
    assert (found["effective"], found["raw"], found["high"], found["low"]) == ("150", "150", "120", "40")
    assert found["pods"]["serving"] == 5
    assert found["metrics"][0]["proposal"] == 7
    assert found["observedGeneration"] == 1
    assert condition(workloads, "InputsFresh")["reason"] == "SamplesFresh"
    as_table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}  # `kubectl get wmp`
    table = workloads.client.raw(policy_path(workloads), as_table).json()
    row = dict(zip((one["name"] for one in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    columns = ("Verdict", "Effective", "High", "Low", "Serving", "Out", "Desired", "Current")
    assert [row[name] for name in columns] == ["Above", "150", "120", "40", 5, 0, 7, 5]


def test_a_killed_leader_is_followed_and_an_ending_one_hands_over(
    make_companion: MakeCompanion, workloads: Workloads, load: Load, shared_prometheus: Prometheus, laws: Laws
) -> None:
    """Conditions stay as old as they are."""
    load.serve(5, **SERVICE)
    settings = laws.over(prometheus_settings(shared_prometheus))
    first = make_companion(settings)
    first.wait_leading()
    second = make_companion(settings)
    wait_desired(workloads, 7)
    since = condition(workloads, "InputsFresh")["lastTransitionTime"]
    time.sleep(laws.statuses_apart)
    assert not second.leads
    load.each("web", 200)
    first.kill()
    wait_desired(workloads, 9, seconds=BUSY * FAILOVER_SECONDS)
    assert second.leads
    assert condition(workloads, "InputsFresh")["lastTransitionTime"] == since
    assert workloads.client.get(LEASE_PATH)["spec"]["leaseTransitions"] == 2
    first.start()
    time.sleep(2)
    assert not first.leads
    second.stop()
    first.wait_leading(5)
    assert second.component.process is not None
    assert second.component.process.returncode == 0
    assert "Traceback" not in first.logs(200) + second.logs(200)
