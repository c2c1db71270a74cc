"""The stage on a cluster: the objects that it makes, what it reads, and what it writes."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import kubernetes_validate
import pytest

from lab.demo.model import ModelStage
from lab.demo.objects import OURS, STOCK, Object, scaling, workloads
from lab.demo.stage import Stage
from lab.harness.adapter import install_crds
from lab.harness.client import ApiError, Response
from lab.harness.control_plane import ControlPlane
from lab.harness.kwok import USAGE_CPU

PULLED_OUT = "effective-load.io/pulled-out"


@pytest.mark.parametrize("item", workloads("shop") + scaling("shop")[1:], ids=lambda item: item["metadata"]["name"])
def test_the_manifests_are_valid(item: dict[str, Any]) -> None:
    kubernetes_validate.validate(item, "1.37", strict=True)


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


class FakeClient:
    """A client with answers by the end of a path, else 404; it records what is written."""

    def __init__(self, answers: Mapping[str, Any], refusal: int = 0) -> None:
        self.answers, self.refusal = answers, refusal
        self.patched: dict[str, Any] = {}

    def raw(self, path: str) -> Response:
        found = next((answer for end, answer in self.answers.items() if path.endswith(end)), None)
        status = 404 if found is None else 200
        return Response(status, {"Date": "Thu, 01 Jan 2026 12:00:00 GMT"}, json.dumps(found).encode())

    def list(self, path: str, **_: str) -> Any:
        answer = self.raw(path)
        return answer.json()["items"] if answer.status == 200 else []

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        if self.refusal:
            raise ApiError(Response(self.refusal, {}, b"{}"), path)
        self.patched[path.rpartition("/")[2]] = body["metadata"]["annotations"]


def stage(refusal: int = 0, **answers: Any) -> tuple[Stage, FakeClient]:
    client = FakeClient(answers, refusal)
    return Stage(cast("ControlPlane", SimpleNamespace(client=client))), client


def test_only_pods_whose_share_changed_are_set() -> None:
    made, client = stage()
    seen = ModelStage().observe()
    changed, *_ = seen.pods[OURS]
    changed["metadata"]["annotations"][USAGE_CPU] = "900m"
    made.load(seen, 5500)
    assert client.patched == {changed["metadata"]["name"]: {USAGE_CPU: "1100m"}}


def test_a_pulled_out_pod_idles_in_both_services_and_only_ours_is_annotated() -> None:
    made, client = stage()
    seen = ModelStage().observe()
    first = {name: seen.pods[name][0]["metadata"]["name"] for name in (OURS, STOCK)}
    for name, pod in first.items():
        made.pull_out(name, [pod])
    assert client.patched == {first[OURS]: {PULLED_OUT: "true"}}
    made.load(seen, 8000)
    assert {client.patched[pod][USAGE_CPU] for pod in first.values()} == {"20m"}
    assert sorted(note[USAGE_CPU] for note in client.patched.values()) == ["2000m"] * 8 + ["20m"] * 2


def test_a_pod_deleted_meanwhile_is_ignored_and_any_other_refusal_is_raised() -> None:
    seen = ModelStage().observe()
    stage(refusal=404)[0].load(seen, 8000)
    with pytest.raises(ApiError):
        stage(refusal=403)[0].load(seen, 8000)


def test_what_is_read_has_the_api_servers_time_pods_by_service_and_figures_in_milli_units_without_errors() -> None:
    both = ModelStage().observe().pods
    value = {"/effective_cpu": "1142857142n", "/raw_cpu": "2"}
    answers = {name: {"items": [{"value": text}]} for name, text in value.items()}
    made, _ = stage(**{"v1/namespaces/demo/pods": {"items": both[OURS] + both[STOCK]}, **answers})
    seen = made.observe()
    assert (seen.now.hour, seen.now.minute) == (12, 0)
    assert seen.pods == both
    assert seen.figures == {"effective_cpu": 1143, "raw_cpu": 2000}


def event(message: str, when: str) -> Object:
    return {"message": message, "lastTimestamp": when}


def test_the_rescale_message_is_the_latest_event_for_the_count() -> None:
    items = [
        event("New size: 7; reason: new", "2026-01-01T12:01:00Z"),
        event("New size: 7; reason: old", "2026-01-01T12:00:00Z"),
        event("New size: 70; reason: other", "2026-01-01T12:02:00Z"),
    ]
    made, _ = stage(**{"/events": {"items": items}})
    assert made.rescale_message(OURS, 7) == "New size: 7; reason: new"
    assert made.rescale_message(OURS, 9, patience=0) == ""
