"""Observations decoded from the API server's answers."""

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from lab.demo.objects import OURS, STOCK, Object
from lab.demo.observe import ClusterReader, DemoError, replica
from lab.demo.sharing import Replica
from lab.harness.client import ApiError, Client, Response
from tests.demo.world import observation, pod, pod_metrics, pods


class FakeClient:
    """A client with answers by the end of a path, else 404."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        self.answers = answers

    def raw(self, path: str) -> Response:
        status, body = next((answer for end, answer in self.answers.items() if path.endswith(end)), (404, {}))
        return Response(status, {"Date": "Thu, 01 Jan 2026 12:00:00 GMT"}, json.dumps(body).encode())

    def get(self, path: str) -> Any:
        return next((answer[1] for part, answer in self.answers.items() if part in path), {"items": []})

    def list(self, path: str) -> Any:
        return self.get(path)["items"]

    def find(self, path: str) -> Any:
        return self.get(path)


def reader(answers: Mapping[str, tuple[int, Any]]) -> ClusterReader:
    return ClusterReader(cast("Client", FakeClient(answers)), "demo")


def value(text: str) -> tuple[int, Any]:
    return 200, {"items": [{"value": text}]}


def test_an_observation_has_the_api_servers_time() -> None:
    seen = reader({"api/v1/namespaces/demo/pods": (200, {"items": []})}).observe()
    assert seen.now == dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_pods_are_grouped_by_service() -> None:
    items = [*pods(OURS, 2), pod(STOCK, "twin"), pod("other", "stranger")]
    seen = reader({"api/v1/namespaces/demo/pods": (200, {"items": items})}).observe()
    assert {name: len(found) for name, found in seen.pods.items()} == {OURS: 2, STOCK: 1}


def test_a_refused_request_is_an_error() -> None:
    with pytest.raises(ApiError, match="403"):
        reader({"api/v1/namespaces/demo/pods": (403, {"message": "no"})}).observe()


def test_figures_are_in_milli_units_and_those_in_error_are_left_out() -> None:
    answers = {
        "/effective_cpu": value("1142857142n"),
        "/raw_cpu": value("2"),
        "/desired_replicas": (503, {"message": "no samples"}),
        "/effective_pods": (200, {"items": []}),
    }
    assert reader(answers).figures() == {"effective_cpu": 1143, "raw_cpu": 2000}


def test_samples_are_summed_over_containers() -> None:
    two = pod_metrics("checkout-0", 300, 0)
    two["containers"] = [*two["containers"], {"name": "side", "usage": {"cpu": "50m"}}]
    seen = observation(pods(OURS, 2), pods(STOCK, 1))
    seen.usage.extend([two, pod_metrics("stranger", 1, 0)])
    assert seen.sampled(OURS) == {"checkout-0": 350}


def test_the_stock_average_is_the_current_metric_of_its_hpa() -> None:
    assert observation([], [], stock_average="1149m").stock_average() == 1149
    assert observation([], []).stock_average() is None


def test_a_deleted_deployment_is_an_error() -> None:
    seen = reader({"api/v1/namespaces/demo/pods": (200, {"items": []})}).observe()
    with pytest.raises(DemoError, match="does not exist any more"):
        seen.count(OURS)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(OURS, "a", usage=1500), Replica("a", ready=True, usage=1500)),
        (pod(OURS, "a", ready=False), Replica("a", ready=False)),
        ({**pod(OURS, "a"), "status": {}}, Replica("a", ready=False)),
    ],
)
def test_a_pod_is_read_as_a_replica(one: Object, expected: Replica) -> None:
    found = replica(one)
    assert (found.name, found.ready, found.leaving, found.usage) == (
        expected.name,
        expected.ready,
        False,
        expected.usage,
    )


def test_a_pod_being_deleted_is_leaving() -> None:
    one = pod(OURS, "a")
    one["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert replica(one).leaving


def event(message: str, when: str) -> Object:
    return {"message": message, "lastTimestamp": when}


def test_the_rescale_message_is_the_latest_event_for_the_count() -> None:
    items = [
        event("New size: 7; reason: old", "2026-01-01T12:00:00Z"),
        event("New size: 7; reason: new", "2026-01-01T12:01:00Z"),
        event("New size: 70; reason: other", "2026-01-01T12:02:00Z"),
    ]
    watching = reader({"/events": (200, {"items": items})})
    assert watching.rescale_message(OURS, 7) == "New size: 7; reason: new"
    assert watching.rescale_message(OURS, 9, patience=0) == ""


def test_active_is_the_hpas_condition_scaling_active() -> None:
    condition = {"type": "ScalingActive", "status": "False", "message": "no metrics"}
    assert (
        reader({"/horizontalpodautoscalers": (200, {"status": {"conditions": [condition]}})}).active(OURS) == condition
    )
    assert reader({"/horizontalpodautoscalers": (200, {})}).active(OURS) is None
