"""The document of a policy's decision: served like a metric of the policy, complete, bounded, and for nobody else."""

import json
from dataclasses import replace
from typing import Any

import pytest

from adapter.apiserver import decision_document
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.commands.decide.reader import decision_json, read_document
from adapter.evaluation.object_index import decode_policy
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Scale
from adapter.snapshot import PolicyView, SnapshotStore
from tests.apiserver import snapshots
from tests.apiserver.conftest import Ask, Service, StubScales
from tests.apiserver.metric_requests import FILLING
from tests.evaluation.kit import deployment, hpa, loads, web_pods
from tests.evaluation.test_evaluator import Stand
from tests.load.kit import NOW

PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/web/decision"
POLICY = {
    "apiVersion": "effective-load.io/v1alpha1",
    "kind": "WatermarkPolicy",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 3},
    "spec": {
        "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "600m", "lowWatermark": "400m"}],
        "velocity": {"scaleUpPercent": 20},
        "cooldown": {"scaleDownSeconds": 120},
    },
}


def view(count: int = 5, stand: Stand | None = None, spec: dict[str, Any] | None = None) -> PolicyView:
    """The view of a policy with so many busy pods, one of which no endpoint serves."""
    stand = stand or Stand()
    stand.world.policy_changed(None, decode_policy(json.dumps(POLICY | {"spec": spec or POLICY["spec"]}).encode()))
    stand.world.hpa_changed(None, hpa())
    for one in web_pods(count):
        own = {**one.labels, "pod-template-hash": "abc"}
        ip = f"10.0.0.{one.name.rpartition('-')[2]}"
        stand.world.pod_changed(None, replace(one, labels=own, ips=(ip,)))
    stand.inputs.found, stand.inputs.samples = deployment(count), loads(count, "1500m")
    stand.inputs.endpoints["web-0"] = False
    return stand.view()


def documents(*views: PolicyView, scales: StubScales | None = None, now: float = NOW + 4) -> MetricsProvider:
    store = SnapshotStore()
    store.swap(snapshots.snapshot(*views))
    return MetricsProvider(store, scales or StubScales(), lambda _: None, lambda: FILLING, lambda: now)


async def answer(served: MetricsProvider, path: str = PATH) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await decision_document.answer(served, parse_target(path)))
    return found


async def test_the_answer_names_the_policy_and_its_decision_from_the_live_scale() -> None:
    scales = StubScales(Scale(replicas=6, status_replicas=5, selector="app=web"))  # scaled since the assessment
    envelope = await answer(documents(view(), scales=scales))
    assert (envelope["kind"], envelope["apiVersion"]) == ("PolicyDecision", "custom.metrics.k8s.io/v1beta2")
    assert envelope["metadata"] == {"namespace": "shop", "name": "web"}
    assert envelope["document"]["policy"]["spec"] == POLICY["spec"]
    expected = {
        "current": 6,
        "desiredReplicas": 7,
        "served": "7",
        "error": None,
        "verdict": "Above",
        "heldBy": "Velocity",
        "lowerBound": 10,
        "upperBound": None,
    }
    assert {key: envelope["decision"][key] for key in expected} == expected
    case = read_document(json.dumps(envelope["document"]))
    assert decision_json(case) == envelope["decision"], "`decide` decides as the server does"
    assert (case.inputs.now, case.now, case.inputs.scale.replicas) == (NOW, NOW + 4, 5)


async def refused(served: MetricsProvider, path: str = PATH) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await answer(served, path)
    return caught.value


async def test_a_policy_that_hpas_get_an_error_for_has_that_error_here() -> None:
    stand = Stand()
    stand.inputs.silent = "the watch of pods has been silent for 60 s"
    assert (await refused(documents(stand.view()))).code == 503
    assert (await refused(documents())).code == 404


async def test_service_with_more_pods_or_instances_than_decide_reads_is_refused_with_its_count() -> None:
    seen = view(5)
    assert seen.inputs is not None
    crowd = [replace(pod, name=f"web-{number}") for number, pod in enumerate([*seen.inputs.pods] * 1001)]
    refusal = await refused(documents(replace(seen, inputs=replace(seen.inputs, pods=crowd))))
    assert refusal.code == 413
    assert "5005 pods or instances; a document has at most 5000" in refusal.message
    listed = Roster(tuple(Instance(ip=f"10.0.{number // 256}.{number % 256}") for number in range(5001)))
    refusal = await refused(documents(replace(seen, inputs=replace(seen.inputs, roster=listed))))
    assert (refusal.code, "5001 pods or instances" in refusal.message) == (413, True)


async def test_it_is_authorized_as_a_subresource_of_the_policy_before_anything_is_looked_up(
    service: Service, ask: Ask
) -> None:
    service.cluster.may = lambda spec: spec["user"] != "bob"
    assert (await ask(f"{PATH}?labelSelector=a", "bob")).status == 403
    assert service.cluster.bodies[-1][1]["spec"]["resourceAttributes"] == {
        "verb": "get",
        "group": "custom.metrics.k8s.io",
        "version": "v1beta2",
        "resource": "watermarkpolicies.effective-load.io",
        "subresource": "decision",
        "name": "web",
        "namespace": "shop",
    }
    assert (await ask(PATH, "amy", method="POST")).status == 405


async def test_nobody_on_the_way_may_keep_it(service: Service, ask: Ask) -> None:
    seen = view(5)
    assert seen.assessment is not None
    # Else it would be too old to be served.
    metrics = tuple(metric._replace(stale_at=None) for metric in seen.assessment.metrics)
    fresh = replace(seen.assessment, at=service.session.now(), metrics=metrics)
    service.snapshot_store.swap(snapshots.snapshot(replace(seen, assessment=fresh)))
    got = await ask(PATH, "amy")
    assert (got.status, got.headers["Cache-Control"]) == (200, "no-store")
