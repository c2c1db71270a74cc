"""Object metrics on policies and their scale targets."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from adapter.kube.errors import KubeError
from adapter.load.assessment import Assessment, Decision, Verdict
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.load.samples import time_text
from adapter.load.spec import Bounds, Scale
from adapter.snapshot import PolicyView, Problem, Snapshot
from tests.apiserver.conftest import StubScales
from tests.apiserver.metric_requests import (
    CUSTOM,
    EXTERNAL,
    FILLING,
    POLICY,
    TARGET,
    ask,
    items,
    refused,
    seven,
    value,
)
from tests.apiserver.snapshots import NOW, SCALE_PATH, assessed, measured, snapshot, view


def shop() -> Snapshot:
    pods = [
        assessed("web-1"),
        assessed("web-2"),
        assessed("web-3", PodState.PULLED_OUT),
        assessed("web-4", PodState.STARTING),
    ]
    return snapshot(view(pods=pods, assessments=[measured(usage=1500, raw=Fraction(NANO))]))


@pytest.mark.parametrize("path", [POLICY, TARGET])
@pytest.mark.parametrize(
    ("metric", "expected"),
    [("effective_pods", "2"), ("pulled_out_pods", "1"), ("effective_cpu", "1500m"), ("raw_cpu", "1")],
)
async def test_a_metric_is_served_on_the_policy_and_on_its_target(path: str, metric: str, expected: str) -> None:
    assert await value(shop(), f"{path}/{metric}") == expected


async def test_a_metric_carries_the_object_asked_for_with_the_time_and_window_of_its_samples() -> None:
    [on_policy] = await items(shop(), f"{POLICY}/effective_cpu")
    assert on_policy["describedObject"] == {
        "kind": "WatermarkPolicy",
        "namespace": "shop",
        "name": "checkout",
        "apiVersion": "effective-load.io/v1alpha1",
    }
    assert (on_policy["timestamp"], on_policy["windowSeconds"]) == ("2027-01-15T07:59:48Z", 30)
    [on_target] = await items(shop(), f"{TARGET}/effective_cpu")
    deployment = {"kind": "Deployment", "namespace": "shop", "name": "web", "apiVersion": "apps/v1"}
    assert on_target["describedObject"] == deployment
    [count] = await items(shop(), f"{POLICY}/effective_pods")
    assert (count["timestamp"], "windowSeconds" in count) == ("2027-01-15T07:59:59Z", False)


async def test_desired_replicas_alone_is_decided_from_the_live_scale_and_the_hpas_bounds() -> None:
    seen: list[tuple[str, Scale, Bounds]] = []

    def decide(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Decision:
        seen.append((assessment.policy.name, scale, bounds))
        return seven(assessment, scale, bounds, now)

    for path, replicas, served in ((POLICY, 5, "7"), (TARGET, 9, "6001m")):
        live = Scale(replicas=replicas - 1, status_replicas=replicas)
        scales = StubScales(live)
        assert await value(shop(), f"{path}/desired_replicas", scales=scales, decide=decide) == served
        assert seen.pop() == ("checkout", live, Bounds(minimum=1, maximum=50))
        await ask(shop(), f"{path}/effective_cpu", scales=scales, decide=decide)
        assert (scales.reads, seen) == ([SCALE_PATH], [])


def announced(name: str = "checkout") -> PolicyView:
    """A policy before its first evaluation: its target is not known."""
    return replace(view(name, is_assessed=False), target=None, target_resource="", pending=True)


def in_error(_assessment: Assessment, _scale: Scale, _bounds: Bounds, _now: float) -> Decision:
    return Decision(desired=None, served=None, error="no sample", verdict=Verdict.ERROR, held_by=None, current=5)


COUNT, CPU, PODS_COUNTED = (f"{POLICY}/{name}" for name in ("desired_replicas", "effective_cpu", "effective_pods"))
OTHER = f"{CUSTOM}/deployments.apps/other/desired_replicas"
NAMED = "WatermarkPolicy shop/checkout"
NOT_ASSESSED = f"{NAMED} has not been assessed yet"
NEW = snapshot(announced())
OLD = f"{NAMED} was last assessed at {time_text(NOW - 100)}"


def cpu_measured(**changes: Any) -> Snapshot:
    return snapshot(view(assessments=[measured(usage=None, **changes)]))


UNREAD = KubeError(f"GET {SCALE_PATH}: no answer", public="too slow")
EXPIRED = snapshot(view(assessments=[measured(stale_at=NOW - 30)]))
"""A process without processor time assesses late: a request must not serve what no longer counts."""


@pytest.mark.parametrize(
    ("picture", "target", "more", "sentence"),
    [
        (snapshot(view(is_assessed=False)), CPU, {}, NOT_ASSESSED),
        (snapshot(view(at=NOW - 100)), COUNT, {}, OLD),
        (snapshot(view(at=NOW - 100)), CPU, {}, OLD),
        (EXPIRED, COUNT, {}, f"{NAMED} was last assessed at {time_text(NOW - 1)}"),
        (cpu_measured(error="metrics.k8s.io: refused"), CPU, {}, f"metric cpu of {NAMED}: metrics.k8s.io: refused"),
        (cpu_measured(), CPU, {}, f"metric cpu of {NAMED}: no serving pod has a sample"),
        (snapshot(view(), synced=False), PODS_COUNTED, {}, FILLING),
        (NEW, COUNT, {}, NOT_ASSESSED),
        (NEW, CPU, {}, NOT_ASSESSED),
        (NEW, f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Dcheckout", {}, NOT_ASSESSED),
        (shop(), COUNT, {"decide": in_error}, "no sample"),
        (shop(), f"{TARGET}/desired_replicas", {"decide": in_error}, f"{NAMED}: no sample"),
        (
            shop(),
            COUNT,
            {"scales": StubScales(error=UNREAD)},
            f"the live replica count cannot be read: GET {SCALE_PATH}: {UNREAD.public}",
        ),
        (shop(), PODS_COUNTED, {"stale": "the watch is silent"}, "the watch is silent"),
        (shop(), CPU, {"stale": "the watch is silent"}, "the watch is silent"),
    ],
)
async def test_what_has_no_value_now_is_a_503_that_says_why(
    picture: Snapshot, target: str, more: dict[str, Any], sentence: str
) -> None:
    error = await refused(picture, target, **more)
    assert (error.code, error.reason, error.message) == (503, "ServiceUnavailable", sentence)


async def test_a_problem_is_answered_with_its_own_code_reason_and_sentence() -> None:
    problem = Problem(409, "Contested", "two policies scale deployments.apps web")
    for name in ("desired_replicas", "effective_cpu", "effective_pods"):
        error = await refused(snapshot(view(problem=problem)), f"{POLICY}/{name}")
        assert (error.code, error.reason, error.message) == problem


ELSEWHERE = snapshot(view(namespace="other"))
POLICIES = ("watermarkpolicies", "effective-load.io")
KNOWN = "it has desired_replicas, effective_pods, pulled_out_pods, effective_cpu, raw_cpu"


@pytest.mark.parametrize(
    ("picture", "target", "details", "says"),
    [
        (ELSEWHERE, COUNT, (*POLICIES, "checkout"), "kubectl get watermarkpolicies -n shop"),
        (shop(), OTHER, ("deployments", "apps", "other"), "scales deployments.apps other"),
        (shop(), f"{CUSTOM}/statefulsets.apps/web/raw_cpu", ("statefulsets", "apps", "web"), "statefulsets.apps web"),
        # No HPA lists them, and a list would read every live scale.
        (shop(), f"{CUSTOM}/deployments.apps/%2A/raw_cpu", ("deployments", "apps", "*"), "scales deployments.apps *"),
        (shop(), f"{CUSTOM}/{'.'.join(POLICIES)}/%2A/raw_cpu", (*POLICIES, "*"), "there is no WatermarkPolicy *"),
        (shop(), f"{POLICY}/effective_memory", ("", "", "effective_memory"), KNOWN),
        (shop(), f"{CUSTOM}/metrics/raw_cpu", ("metrics", "", "raw_cpu"), "scales metrics raw_cpu"),
        (shop(), "/apis/custom.metrics.k8s.io/v1beta2/nodes/n1/raw_cpu", ("nodes", "", "n1"), "scales nodes n1"),
    ],
)
async def test_what_does_not_exist_is_a_404_that_names_it_and_says_what_does(
    picture: Snapshot, target: str, details: tuple[str, str, str], says: str
) -> None:
    error = await refused(picture, target)
    assert (error.code, tuple(error.details.get(key, "") for key in ("kind", "group", "name"))) == (404, details)
    assert says in error.message
