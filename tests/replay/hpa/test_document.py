"""The `hpa` file: what it accepts and refuses, and the controller's counts and conditions for it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.commands.hpa.document import Played, PodForm, as_data, lines, play, read
from adapter.runtime.faults import FaultyDocument

QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def hpa(*metrics: dict[str, Any], minimum: int = 1, maximum: int = 100, **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": reference, "minReplicas": minimum, "maxReplicas": maximum, "metrics": list(metrics)}
    return {"metadata": {"name": "web", "namespace": "shop"}, "spec": {**spec, **more}}


def text(*steps: dict[str, Any], replicas: int = 10, controller: Any = None, **document: Any) -> str:
    own = document.pop("hpa", None) or hpa(QUEUE)
    whole = {"hpa": own, "replicas": replicas, "steps": list(steps), **document}
    return yaml.safe_dump(whole | ({"controller": controller} if controller is not None else {}))


def played(*steps: dict[str, Any], **document: Any) -> list[Played]:
    return list(play(read(text(*steps, **document))))


def counts(*steps: dict[str, Any], **document: Any) -> list[int]:
    return [one.sync.replicas for one in played(*steps, **document)]


def faults(document: str) -> list[str]:
    with pytest.raises(FaultyDocument) as error:
        read(document)
    return [str(fault) for fault in error.value.faults]


def test_one_to_thirteen_with_900_percent_in_300_seconds_is_ten_at_once_and_thirteen_after_300_seconds() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 300}]}}
    steps = [{"at": at, "metrics": {"queue": 13}} for at in range(0, 316, 15)]
    found = counts(*steps, replicas=1, hpa=hpa(QUEUE, behavior=behavior))
    assert found == [10] * 20 + [13] * 2


def test_thirteen_to_one_waits_for_its_window_and_then_falls_by_one_pod_each_ten_seconds() -> None:
    down = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]}
    steps = [{"at": 0, "metrics": {"queue": 13}}, *({"at": at, "metrics": {"queue": 1}} for at in range(10, 200, 10))]
    found = counts(*steps, replicas=13, hpa=hpa(QUEUE, behavior={"scaleDown": down}))
    assert found == [13] * 6 + list(range(12, 0, -1)) + [1, 1]


def test_without_behavior_the_count_doubles_to_the_highest_of_five_minutes_and_then_falls() -> None:
    assert counts(*({"at": at, "metrics": {"queue": queue}} for at, queue in ((0, 50), (15, 5), (316, 5)))) == [
        20,
        40,
        5,
    ]


def test_a_tolerance_of_zero_makes_every_step_and_the_default_ignores_small_ones() -> None:
    step = {"at": 0, "metrics": {"queue": 21}}
    exact = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0"}}
    assert counts(step, replicas=20) == [20]
    assert counts(step, replicas=20, hpa=hpa(QUEUE, behavior=exact)) == [21]
    assert counts(step, replicas=20, controller={"tolerance": 0}) == [21]


def test_the_controllers_tolerance_is_parsed_as_a_float_and_that_of_behavior_as_a_quantity() -> None:
    """118 × 0.001 is the float next to 0.118, and the edge of the tolerance is just there."""
    step = {"at": 0, "metrics": {"queue": "1118m"}}
    assert counts(step, replicas=1, controller={"tolerance": 0.118}) == [2]
    own = {"scaleUp": {"tolerance": "0.118"}}
    assert counts(step, replicas=1, hpa=hpa(QUEUE, behavior=own)) == [1]


@pytest.mark.parametrize(
    ("metrics", "count"), [((CPU,), 8), ((), 5)], ids=["50 % of the requests", "80 % where no metric is named"]
)
def test_utilization_is_that_of_the_pods_requests(metrics: tuple[dict[str, Any], ...], count: int) -> None:
    step = {"at": 0, "metrics": {"cpu": "400m"}, "pods": {"ready": 4, "requests": {"cpu": "440m"}}}
    assert counts(step, replicas=4, hpa=hpa(*metrics)) == [count]


def test_pods_may_be_objects_and_samples_may_have_a_time_and_a_window() -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    app = {"name": "app", "resources": {"requests": {"cpu": "1"}}}
    pods = [
        {
            "metadata": {"name": f"web-{number}"},
            "spec": {"containers": [app]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": ready},
        }
        for number in range(2)
    ]
    young = {"value": "1", "at": "2026-01-01T00:00:10Z", "windowSeconds": 15}
    old = {"value": "1", "at": "2026-01-01T00:00:20Z", "windowSeconds": 15}
    at = "2026-01-01T00:00:30Z"
    document = {"replicas": 2, "hpa": hpa(CPU)}
    assert counts({"at": at, "pods": pods, "metrics": {"cpu": {"web-0": old, "web-1": old}}}, **document) == [4]
    # A sample whose window began before the pod was ready does not count, and its pod uses nothing on the way up.
    assert counts({"at": at, "pods": pods, "metrics": {"cpu": {"web-0": old, "web-1": young}}}, **document) == [2]


@pytest.mark.parametrize(
    ("spec", "request_of_pod"),
    [
        ({"resources": {"requests": {"cpu": "2"}}}, 2000),
        ({"resources": {"requests": {"memory": "1Gi"}}}, 500),
        ({"resources": {"requests": {"memory": "1Gi"}}, "overhead": {"cpu": "100m"}}, 600),
        ({"resources": {"requests": {"memory": "1Gi"}}, "initContainers": [{"name": "init", "cpu": "3"}]}, 3000),
        ({"resources": {"requests": {"memory": "1Gi"}}, "containers": [{"name": "app"}]}, 0),
    ],
)
def test_with_pod_level_requests_the_whole_pod_is_counted(spec: dict[str, Any], request_of_pod: int) -> None:
    whole = {"containers": [{"name": "app", "cpu": "500m"}], **spec}
    for part in ("containers", "initContainers"):
        for one in whole.get(part, ()):
            one["resources"] = {"requests": {"cpu": one.pop("cpu")} if "cpu" in one else {}}
    pod = PodForm.model_validate({"metadata": {"name": "web"}, "spec": whole})
    assert pod.model().requests["cpu"] == request_of_pod


def test_a_container_without_an_answer_is_not_filled_by_its_pod() -> None:
    source = {"name": "cpu", "container": "app", "target": {"type": "AverageValue", "averageValue": "1"}}
    both = hpa(CPU, {"type": "ContainerResource", "containerResource": source})
    step = {"at": 0, "metrics": {"cpu": "400m"}, "pods": {"ready": 4, "requests": {"cpu": "500m"}}}
    [one] = played(step, replicas=4, hpa=both)
    assert one.sync.proposals[1] == "the step has no value of cpu"


def test_a_metric_without_a_value_is_an_error_and_keeps_the_count() -> None:
    [one] = played({"at": 0})
    assert one.sync.replicas == 10
    assert one.sync.conditions["ScalingActive"][:2] == (False, "FailedGetExternalMetric")


def test_one_failing_metric_of_two_blocks_only_the_way_down() -> None:
    both = hpa(QUEUE, {**QUEUE, "external": {**QUEUE["external"], "metric": {"name": "rate"}}})
    assert counts({"at": 0, "metrics": {"queue": 15}}, hpa=both) == [15]
    assert counts({"at": 0, "metrics": {"queue": 5}}, hpa=both) == [10]


def test_a_count_outside_the_bounds_is_set_to_them_without_a_look_at_the_metrics() -> None:
    assert counts({"at": 0}, replicas=200) == [100]
    assert counts({"at": 0}, replicas=1, hpa=hpa(QUEUE, minimum=3)) == [3]


def test_a_count_of_zero_is_left_alone_unless_the_hpa_itself_scaled_to_it() -> None:
    zero = hpa(QUEUE, minimum=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    gate = {"scaleToZero": True}
    steps = [{"at": 0, "metrics": {"queue": 0}}, {"at": 15, "metrics": {"queue": 3}}]
    assert counts(*steps, replicas=1, hpa=zero, controller=gate) == [0, 3]
    assert counts(*steps, replicas=0, hpa=zero, controller=gate) == [0, 0]
    [by_hand, _] = played(*steps, replicas=0, hpa=zero)
    assert by_hand.sync.conditions["ScalingActive"].reason == "ScalingDisabled"


def test_a_count_set_by_hand_is_what_the_next_sync_finds() -> None:
    steps = [{"at": 0, "metrics": {"queue": 10}}, {"at": 15, "replicas": 4, "metrics": {"queue": 6}}]
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    assert counts(*steps, hpa=hpa(QUEUE, behavior=behavior)) == [10, 6]
    # With the window, the ten of before are recommended still; without behavior a count at most doubles.
    assert counts(*steps) == [10, 8]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"replicas": -1}, "replicas: -1: Input should be greater than or equal to 0"),
        ({"more": 1}, "more: 1: Extra inputs are not permitted"),
        ({"steps": []}, "steps: []: List should have at least 1 item after validation, not 0"),
        ({"steps": [{"at": 0}, {"at": 0}]}, "steps[1].at: 0.0: must be later than the step before"),
        ({"steps": [{"at": "noon"}]}, "steps[0].at: 'noon': must be seconds or a time such as 2026-01-01T12:00:00Z"),
        (
            {"steps": [{"at": 0, "metrics": {"load": 1}}]},
            "steps[0].metrics.load: is no metric of the HPA; it has queue",
        ),
        (
            {"steps": [{"at": 0, "metrics": {"queue": {"web-0": 1}}}]},
            "steps[0].metrics.queue: {'web-0': 1}: must be one value; only Pods and resource metrics are by pod",
        ),
        ({"hpa": hpa(QUEUE, minimum=5, maximum=3)}, "hpa.spec.minReplicas: 5: must be at most maxReplicas (3)"),
    ],
)
def test_a_fault_names_its_place_the_value_and_what_to_do(change: dict[str, Any], fault: str) -> None:
    document = {"hpa": hpa(QUEUE), "replicas": 1, "steps": [{"at": 0}]} | change
    assert fault in faults(yaml.safe_dump(document))


@pytest.mark.parametrize("document", ["", "[]", "{", "a: &a [*a]", "1", "hpa: 3"])
def test_what_is_no_document_is_refused(document: str) -> None:
    assert faults(document)


def test_every_step_is_a_line_and_as_json_has_its_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"at": 60, "metrics": {"queue": 30}}, {"at": 75, "metrics": {"queue": 30}}]
    document = read(text(*steps))
    _, first, second = lines(document)
    assert first.split()[:5] == ["0s", "10", "→", "20", "30"]
    assert "ScalingLimited=True ScaleUpLimit" in first
    assert second.split()[:5] == ["15s", "20", "→", "30", "30"]
    file = tmp_path / "hpa.yaml"
    file.write_text(text(*steps))
    assert cli.main(["hpa", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"steps": [as_data(document, one) for one in play(document)]}
    file.write_text("replicas: 1")
    assert cli.main(["hpa", str(file)]) == cli.INVALID
    assert "hpa: Field required" in capsys.readouterr().err
